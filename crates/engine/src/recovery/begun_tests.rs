//! Unit ring.
