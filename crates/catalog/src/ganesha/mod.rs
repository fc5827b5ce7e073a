//! The configuration of nfs-ganesha: its exports become shares.
//!
//! What a client gets there is what the first of an export's `CLIENT` blocks that has him says, then the
//! export, then `EXPORT_DEFAULTS`, then what nfs-ganesha takes if nobody says anything (ganesha-export-config(8)).
//! Rules here are asked in the same order, so they stay in it. Nobody gets more than there: what cannot be said
//! here is refused if it keeps somebody out, and told by name if it does not.

mod import;
mod permissions;
mod text;
mod words;

#[cfg(test)]
mod tests;

pub use import::import;
pub use text::{Included, included};
