//! Whether clients of NFSv4.1 have what they opened and locked when the server is there again, and nobody else.
//!
//! After a power cut [`mod@reclaim`] finds out who gets it back, and who does not; after a kill [`mod@resume`] goes on with
//! the sessions. [`View`] is what is known of the moment, by what the clients have noted ([`crate::nfs4`]).

mod inquiry;
mod reclaim;
mod resume;

pub(crate) use inquiry::View;
pub(crate) use reclaim::reclaim;
pub(crate) use resume::resume;
