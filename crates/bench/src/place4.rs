//! A directory of a load's own in a share, made and removed over NFSv4.

use steadfast_client::nfs4::{
    ClientSettings, Nfs4Client, NfsStat4, Opening4, Settings4, StateId4, patiently4,
};
use steadfast_client::{ClientError, FileHandle, Identity, RpcConnection};
use steadfast_wire::nfs4::{CreateType4, OpenHow4};

use crate::error::BenchError;
use crate::setup::{CALL_TIMEOUT, Target, unique_name};

/// A client over a connection of its own.
pub(crate) fn connect(
    target: &Target,
    settings: &ClientSettings,
) -> Result<Nfs4Client, BenchError> {
    connect_over(target.connect()?, &target.identity, settings)
}

/// A client over this connection.
pub(crate) fn connect_over(
    connection: RpcConnection,
    identity: &Identity,
    settings: &ClientSettings,
) -> Result<Nfs4Client, BenchError> {
    let connecting = || BenchError::client("connecting over NFSv4");
    let mut client = Nfs4Client::connect_to_reclaim(connection, identity.clone(), settings)
        .map_err(connecting())?;
    patiently(|| client.complete_reclaim()).map_err(connecting())?;
    Ok(client)
}

/// Makes a request until the server neither puts it off nor is in its grace period.
pub(crate) fn patiently<R>(
    mut request: impl FnMut() -> Result<R, ClientError>,
) -> Result<R, ClientError> {
    let deadline = std::time::Instant::now() + 2 * CALL_TIMEOUT;
    loop {
        match patiently4(CALL_TIMEOUT, &mut request) {
            Err(error)
                if error.status4() == Some(NfsStat4::Grace)
                    && std::time::Instant::now() < deadline =>
            {
                std::thread::sleep(std::time::Duration::from_millis(200));
            }
            outcome => return outcome,
        }
    }
}

/// The directory.
#[derive(Clone, Debug)]
pub(crate) struct Place4 {
    share: FileHandle,
    name: Vec<u8>,
    pub(crate) directory: FileHandle,
}

impl Place4 {
    /// Makes it.
    pub(crate) fn make(
        client: &mut Nfs4Client<RpcConnection>,
        path: &str,
        prefix: &str,
    ) -> Result<Self, BenchError> {
        let making = || BenchError::client("making a directory over NFSv4");
        let share = patiently(|| client.lookup_path(path.as_bytes())).map_err(making())?;
        let (name, mode) = (unique_name(prefix), Settings4::mode(0o755));
        let what = CreateType4::Directory;
        let directory = patiently(|| client.make(&share, &name, what, &mode)).map_err(making())?;
        Ok(Self { share, name, directory })
    }

    /// Makes an empty file in it.
    pub(crate) fn make_file(
        &self,
        client: &mut Nfs4Client<RpcConnection>,
        name: &[u8],
    ) -> Result<(FileHandle, StateId4), BenchError> {
        let mode = Settings4::mode(0o644).encode();
        let opening = Opening4::making(name, OpenHow4::Guarded(mode.fattr()));
        let opened = patiently(|| client.open(&self.directory, &opening))
            .map_err(BenchError::client("making a file over NFSv4"))?;
        Ok((opened.handle, opened.stateid))
    }

    /// Removes it, and these files in it.
    pub(crate) fn remove<'n>(
        &self,
        client: &mut Nfs4Client<RpcConnection>,
        files: impl Iterator<Item = &'n [u8]>,
    ) -> Result<(), BenchError> {
        let removing = || BenchError::client("removing what was made over NFSv4");
        for name in files {
            patiently(|| client.remove(&self.directory, name)).map_err(removing())?;
        }
        patiently(|| client.remove(&self.share, &self.name)).map_err(removing())?;
        Ok(())
    }
}
