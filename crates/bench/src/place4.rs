//! A directory of a load's own in a share, made and removed over NFSv4.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use steadfast_client::nfs4::{
    ClientSettings, Nfs4Client, NfsStat4, Opening4, Settings4, StateId4, patiently4,
};
use steadfast_client::{ClientError, FileHandle, Identity, RpcConnection};
use steadfast_wire::nfs4::{CreateType4, OpenHow4};

use crate::error::BenchError;
use crate::setup::{CALL_TIMEOUT, Target, unique_name};

/// How long a request is made again while the server puts it off, or is in its grace period.
pub(crate) const GRACE: Duration = Duration::from_secs(120);
/// How long to wait before it is made again.
const TRY_LATER: Duration = Duration::from_millis(200);

/// A client over a connection of its own.
pub(crate) fn connect(
    target: &Target,
    settings: &ClientSettings,
) -> Result<Nfs4Client, BenchError> {
    let connect = || {
        let connection = RpcConnection::connect(target.server, CALL_TIMEOUT)?;
        Nfs4Client::connect_to_reclaim(connection, target.identity.clone(), settings)
    };
    complete(patiently(connect).map_err(refused(settings))?)
}

/// A client over this socket, which must block.
pub(crate) fn connect_by(
    stream: &TcpStream,
    identity: &Identity,
    settings: &ClientSettings,
) -> Result<Nfs4Client, BenchError> {
    let connect =
        || Nfs4Client::connect_to_reclaim(connection(stream)?, identity.clone(), settings);
    complete(patiently(connect).map_err(refused(settings))?)
}

/// A connection of this socket.
pub(crate) fn connection(stream: &TcpStream) -> Result<RpcConnection, ClientError> {
    RpcConnection::over(stream.try_clone()?, CALL_TIMEOUT)
}

fn complete(mut client: Nfs4Client) -> Result<Nfs4Client, BenchError> {
    patiently(|| client.complete_reclaim()).map_err(BenchError::client("connecting over NFSv4"))?;
    Ok(client)
}

/// Why a client could not connect, in the user's words.
fn refused(settings: &ClientSettings) -> impl FnOnce(ClientError) -> BenchError {
    let minor = settings.minor_version;
    move |error| {
        if error.status4() == Some(NfsStat4::MinorVersMismatch) {
            return BenchError::Usage(format!(
                "the server does not speak NFSv4.{minor}: choose another version"
            ));
        }
        if error.is_program_unavailable() {
            let what = "the server does not speak NFSv4: choose another version";
            return BenchError::Usage(what.to_owned());
        }
        BenchError::client("connecting over NFSv4")(error)
    }
}

/// Whether the server only says that a request is to be made again later.
pub(crate) fn is_later(error: &ClientError) -> bool {
    [Some(NfsStat4::Delay), Some(NfsStat4::Grace)].contains(&error.status4())
}

/// Makes a request until the server neither puts it off nor is in its grace period.
pub(crate) fn patiently<R>(
    mut request: impl FnMut() -> Result<R, ClientError>,
) -> Result<R, ClientError> {
    let deadline = Instant::now() + GRACE;
    loop {
        match patiently4(CALL_TIMEOUT, &mut request) {
            Err(error) if is_later(&error) && Instant::now() < deadline => {
                std::thread::sleep(TRY_LATER);
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
