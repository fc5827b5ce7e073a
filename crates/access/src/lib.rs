//! Name services, and the decisions about clients that are made with what they say.
//!
//! A [`NameBook`] knows about names and answers from memory; what it does not know it asks a
//! [`NameService`] for, in the background, once for all who wait. [`SystemNames`] is the service of
//! a running server: hosts file, DNS, netgroup file, and the system's name service switch in a
//! process of its own ([`helper`]). [`Access`] decides what clients may do
//! ([`steadfast_shares::Authority`]), remembers its decisions, and keeps all of it going.
//!
//! It knows, too, which number the owner of a file has whom a client names, and the other way round.
//!
//! Nobody who asks ever waits for a name service, and an answer that was once there is used until
//! there is a newer one: a name server that is dead is noticed by new clients only.
#![forbid(unsafe_code)]

mod access;
mod book;
mod cache;
mod clock;
mod dns;
mod entry;
mod facts;
mod group;
pub mod helper;
mod hosts_file;
mod netgroup_file;
mod service;
mod settings;
mod system;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod watched;

pub use access::{Access, AccessStatistics};
pub use book::{
    ANSWERS_SHOWN, Asking, At, BookError, IN_FLIGHT_MAX, Kept, KeptName, KindStatistics,
    LATENCY_CLASSES_MS, Listener, LookUp, NameBook, NameStatistics, State,
};
pub use cache::CacheStatistics;
pub use clock::{Clock, SystemClock};
pub use facts::{Fact, Kind, MEMBERS_MAX, Members, Source, Subject};
pub use hosts_file::HostsFile;
pub use netgroup_file::NetgroupFile;
pub use service::{Failure, Family, NameService, Outcome, Reply};
pub use settings::{AccessSettings, Bounds};
pub use system::SystemNames;
