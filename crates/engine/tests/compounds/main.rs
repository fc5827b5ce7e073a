//! Unit ring: whole COMPOUNDs of NFSv4.1 against an engine over the in-memory model.
#![allow(clippy::unwrap_used)]

#[path = "../common/asynchronous.rs"]
mod asynchronous;
mod bench;
mod killed;
mod objects;
mod positions;
mod promises;
mod restart;
mod slots;
mod taken_back;
mod waiting;
