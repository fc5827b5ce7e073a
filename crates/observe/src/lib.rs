//! Diagnosis of NFS servers and clients, ours and others'.
//!
//! [`doctor`] looks at a machine twice and tells what makes NFS slow there; [`tune`] knows the kernel's
//! settings for it, and changes them.
#![forbid(unsafe_code)]

pub mod doctor;
mod machine;
pub mod tune;

pub use machine::Machine;
