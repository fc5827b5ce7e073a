//! The shares of a running server.

#[allow(dead_code)]
pub(crate) mod watching;
