//! The `steadfast` program.
#![forbid(unsafe_code)]
fn main() {}
