//! Unit ring: NFSv4.1 as RFC 8881 has it, and NFSv4.0 as RFC 7530 has it, by whole COMPOUNDs against an engine over the in-memory
//! model.
#![allow(clippy::unwrap_used)]

mod clients;
mod compounds;
mod harness;
mod listings;
mod names;
mod opens;
mod positions;
mod slots;
mod v40;
mod v40_owners;
mod wild;
