//! Unit ring: NFSv4.0 as RFC 7530 has it, 4.1 as RFC 8881, and 4.2 as RFC 7862 and RFC 8276, by whole
//! COMPOUNDs against an engine over the in-memory
//! model.
#![allow(clippy::unwrap_used)]

mod acls;
mod beside;
mod callbacks;
mod clients;
mod compounds;
mod counted;
mod delegations;
mod extents;
mod gate;
mod harness;
mod holders;
mod idmap;
mod instead;
mod listings;
mod local_guards;
mod local_locks;
mod names;
mod opens;
mod positions;
mod reclaim;
mod revoked;
mod slots;
mod taking_back;
mod v40;
mod v40_owners;
mod wild;
mod xattrs;
