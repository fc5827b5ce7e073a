//! Administration: what can be asked of a running server, and the shares that it keeps.
//!
//! [`api`], [`statistics`], [`clients`] and [`intent_log`] have the documents, as JSON; [`Client`] asks for them,
//! [`Control`] answers by the [`Services`] of the server, of which [`ShareService`] is the largest.
//! [`metrics`] has numbers for monitoring. [`plain`] shows them on a terminal, which no text of theirs may command. [`sharetab`] tells other
//! programs what is shared, [`plugins`] have them share it by other protocols. NFS calls wait for
//! none of this.
#![forbid(unsafe_code)]

pub mod api;
pub mod capture;
mod client;
pub mod clients;
pub mod explain;
mod health;
pub mod intent_log;
pub mod metrics;
pub mod plain;
pub mod plugins;
mod server;
pub mod service;
pub mod sharetab;
pub mod slow;
pub mod statistics;
pub mod store;
pub mod top;

pub use client::{
    AddressError, AskError, CaptureStream, Captured, Client, Collector, Patience, PostError, Watch,
};
pub use health::Health;
pub use server::{
    Control, ControlOptions, MetricsOptions, OPENAPI, Peer, Permissions, SOCKET_NAME, ScraperToken,
    read_token_file, router,
};
pub use service::{
    ClientService, LogService, RawJson, Refusal, RefusalKind, Services, ShareService,
};
