//! Unit ring and property ring: the state through its interface: each operation, the models, the bounds, threads.
#![allow(clippy::expect_used)]

mod back_channel;
mod bounds;
mod clients;
mod common;
mod delegations;
mod exclusion;
mod gate;
mod grace;
mod holdings;
mod local;
mod lock_model;
mod lock_waiters;
mod locks;
mod looks;
mod nlm;
mod opens;
mod opens_model;
mod slots;
mod taking_back;
mod v40;
