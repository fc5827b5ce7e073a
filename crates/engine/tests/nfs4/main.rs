//! Unit ring: NFSv4.1 as RFC 8881 has it, and 4.2 as RFC 7862 and RFC 8276, by whole COMPOUNDs against an engine over the in-memory
//! model.
#![allow(clippy::unwrap_used)]

mod clients;
mod compounds;
mod extents;
mod harness;
mod listings;
mod names;
mod opens;
mod positions;
mod slots;
mod wild;
mod xattrs;
