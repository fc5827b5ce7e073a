//! Administration: what can be asked of a running server, and the shares that it keeps.
#![forbid(unsafe_code)]

pub mod store;
