//! Tests, measurements and checks of the workspace.
#![forbid(unsafe_code)]
fn main() {}
