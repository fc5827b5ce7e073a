//! Safe wrappers over Linux system calls, for what `rustix` and the standard library lack.
//!
//! The only crate of the workspace with `unsafe`: every block says why it is sound (`SAFETY:`).
//! Storage uses [`mod@file`], [`btrfs`], [`directory`], [`extents`], [`handle`], [`identity`], [`range_lock`], [`volume`] and [`xattr`]; the
//! runtime uses [`net`], [`epoll`], [`extents`], [`memory`] and [`scheduling`]; the programs use [`process`];
//! name services [`nss`]; `steadfast watch` [`packet_ring`]; the control socket [`peer`]; whoever keeps state [`durable_file`], and what
//! others read meanwhile [`lease`]; diagnosis [`clock`] and [`netlink`]; tests [`alarm`] and [`mapping`].
//!
//! A wrapper here does one system call (or a fixed few) and decides nothing. No wrapper is [`pinned`]: a
//! pointer of which storage knows why its owners have it.

pub mod alarm;
pub mod block_device;
pub mod btrfs;
pub mod clock;
pub mod cpu_time;
pub mod directory;
pub mod durable_file;
pub mod epoll;
pub mod extents;
pub mod file;
pub mod handle;
pub mod identity;
pub mod journal;
pub mod lease;
pub mod mapping;
pub mod memory;
pub mod net;
pub mod netlink;
pub mod nss;
pub mod packet_ring;
pub mod peer;
pub mod pinned;
pub mod process;
pub mod range_lock;
pub mod scheduling;
pub mod volume;
pub mod xattr;
