//! Diagnosis of NFS servers and clients, ours and others'.
//!
//! [`capture`] makes NFS calls of captured packets, and tables of calls: [`capture::Dissector`],
//! [`capture::Tables`]. It does no I/O but for what its modules `live` and `file` say. [`watch`] is
//! the command that shows these tables; [`recording`] makes a file of the messages inside a Steadfast
//! server; [`top`] shows what a Steadfast server tells of its calls, and [`traces`] sends these to a collector;
//! [`status`] judges how it is, and [`text`] makes tables of its documents. [`doctor`] looks at a
//! machine twice and tells what makes NFS slow there; [`tune`] knows the kernel's settings for it, and
//! changes them. Nothing here knows how a Steadfast server works inside, but for [`status`], which looks
//! at its lock file to tell one that is not there from one that does not answer.
#![forbid(unsafe_code)]

pub mod capture;
pub mod doctor;
mod machine;
mod private_file;
pub mod recording;
mod screen;
pub mod status;
pub mod text;
pub mod top;
pub mod traces;
pub mod tune;
pub mod watch;

pub use machine::Machine;
