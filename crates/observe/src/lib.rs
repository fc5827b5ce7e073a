//! Diagnosis of NFS servers and clients, ours and others'.
#![forbid(unsafe_code)]
