//! What outlives the process: every change of the state as an [`Event`], and the state that events
//! come to ([`Image`]).
//!
//! An event says how something is from now on, not what was done to it. So what an image is told
//! twice does it no harm, and a whole state can be told among the changes that others make to it.
//!
//! Who changes something notes the event while it holds the lock that guards what is changed. So
//! the events of one client, session or slot are in the order of its changes. Those of two clients
//! never contradict each other: what one takes from another was given up by that one before.

mod codec;
mod event;
mod field;
pub(crate) mod fold;
mod journal;
pub(crate) mod lost;
mod record_file;
mod records;
#[cfg(test)]
mod tests;

pub use codec::ImageError;
pub(crate) use event::{ClientEvent, Event};
pub use fold::Image;
pub(crate) use journal::Journal;
pub use record_file::RecordsError;
pub use records::{ClientRecord, ClientRecords};
pub(crate) use records::{RecordEvent, RecordJournal};
