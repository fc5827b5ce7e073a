//! `bench stream`.

use std::time::Duration;

use clap::Args;
use steadfast_client::StableHow;

use super::common::{
    OutputArguments, ShareArguments, VersionArguments, call_size, seconds, size, stability,
};
use crate::drive::Transport;
use crate::stream::{Direction, Stream};

/// Bytes of a call over UDP, unless told.
const UDP_TRANSFER_BYTES: u32 = 32 << 10;

/// The options.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    share: ShareArguments,
    #[command(flatten)]
    version: VersionArguments,
    /// Write; without, read.
    #[arg(long)]
    write: bool,
    /// Streams, each with a connection.
    #[arg(long, value_name = "N", default_value_t = 4)]
    streams: usize,
    /// Calls in flight of a stream.
    #[arg(long, value_name = "N", default_value_t = 2)]
    window: usize,
    /// Client threads.
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
    /// Bytes of a READ or WRITE (default: 1M, over UDP 32k).
    #[arg(long, value_name = "SIZE", value_parser = call_size)]
    transfer: Option<u32>,
    /// Size of each file.
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size)]
    file_size: u64,
    /// One file for all streams: each reads all of it, or writes a part of its own.
    #[arg(long)]
    one_file: bool,
    /// How stable WRITEs are to be: unstable, `data_sync` or `file_sync`.
    #[arg(long, value_name = "HOW", default_value = "unstable", value_parser = stability)]
    stable: StableHow,
    /// COMMIT after so many bytes of a stream.
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = size)]
    commit_every: u64,
    /// Call over UDP.
    #[arg(long)]
    udp: bool,
    /// Measure, before and after, what one plain TCP stream of 1 MiB writes over loopback
    /// reaches, and once what it does with as much data as the files have (512 MiB at most); with
    /// --pid its sender runs on the server's CPUs.
    #[arg(long)]
    loopback_limit: bool,
    /// How long it is measured.
    #[arg(long, value_name = "S", default_value = "5", value_parser = seconds)]
    seconds: Duration,
    /// Not measured, before.
    #[arg(long, value_name = "S", default_value = "0.5", value_parser = seconds)]
    warm_up: Duration,
    #[command(flatten)]
    pub(super) output: OutputArguments,
}

impl Arguments {
    /// What is meant.
    pub(super) fn load(&self) -> Stream {
        let stream = Stream::new(self.share.server.target(), &self.share.path);
        let usual = if self.udp { UDP_TRANSFER_BYTES } else { stream.transfer_bytes };
        Stream {
            direction: if self.write { Direction::Write } else { Direction::Read },
            streams: self.streams,
            window: self.window,
            threads: self.threads,
            transfer_bytes: self.transfer.unwrap_or(usual),
            file_bytes: self.file_size,
            has_one_file: self.one_file,
            stable: self.stable,
            commit_every_bytes: self.commit_every,
            nfs: self.version.nfs,
            transport: if self.udp { Transport::Udp } else { Transport::Tcp },
            warm_up: self.warm_up,
            duration: self.seconds,
            measures_loopback: self.loopback_limit,
            server_pid: self.share.server.pid,
            ..stream
        }
    }
}
