//! Message types.
#![forbid(unsafe_code)]
pub mod nfs3;
pub mod rpc;
