//! What clients see: which shares are told, and whether they can be mounted.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use steadfast_bench::Target;
use steadfast_bench::mountstorm::{self, ShareList};
use steadfast_client::{ClientError, Identity, RpcConnection, mount};

/// How long a server may take for a reply.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where MOUNT answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    pub(super) mount: SocketAddr,
}

impl Probe {
    /// What EXPORT tells.
    pub(super) fn list(self) -> Result<ShareList> {
        let target = Target::new(self.mount);
        mountstorm::list_shares(&target, PATIENCE).context("EXPORT")
    }

    /// A connection for many MNTs.
    pub(super) fn mounter(self) -> Result<Mounter> {
        Ok(Mounter { connection: RpcConnection::connect(self.mount, PATIENCE)? })
    }

    /// Whether a share can be mounted at this moment.
    pub(super) fn can_mount(self, path: &str) -> Result<bool> {
        Ok(self.mounter()?.mount(path)?.is_some())
    }

    /// Makes sure that so many shares are told, and these can be mounted.
    pub(super) fn expect_all(self, count: usize, paths: &[String]) -> Result<()> {
        let told = self.list()?.shares;
        if told != count as u64 {
            bail!("EXPORT tells {told} shares instead of {count}");
        }
        let mut mounter = self.mounter()?;
        for path in paths {
            if mounter.mount(path)?.is_none() {
                bail!("{path} cannot be mounted though it is shared");
            }
        }
        Ok(())
    }

    /// Makes sure that nothing is told, and these cannot be mounted.
    pub(super) fn expect_none(self, paths: &[String]) -> Result<()> {
        let told = self.list()?.shares;
        if told != 0 {
            bail!("EXPORT tells {told} shares though none is shared");
        }
        let mut mounter = self.mounter()?;
        for path in paths {
            if mounter.mount(path)?.is_some() {
                bail!("{path} can be mounted though it is not shared");
            }
        }
        Ok(())
    }
}

/// Calls MNT on one connection.
pub(super) struct Mounter {
    connection: RpcConnection,
}

impl Mounter {
    /// Mounts; how long that took, and none if the server refuses.
    pub(super) fn mount(&mut self, path: &str) -> Result<Option<Duration>> {
        let started = Instant::now();
        match mount::mnt(&mut self.connection, &Identity::root(), path.as_bytes()) {
            Ok(_) => Ok(Some(started.elapsed())),
            Err(ClientError::Mount(_)) => Ok(None),
            Err(error) => Err(error).with_context(|| format!("MNT of {path}")),
        }
    }
}
