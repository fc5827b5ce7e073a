//! Making and removing what loads work on over NFSv3: many calls in flight, on several connections.
//! [`crate::preparing`] does that over the version that is measured.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use steadfast_client::{
    CallTemplate, ClientError, CreateHow3, Entry, FileHandle, FileSystemInfo, FileType, Identity,
    Nfs3Client, NfsStat3, Procedure, Retransmission, RpcConnection, RpcDatagram, Settings,
    arguments, procedure,
};
use steadfast_xdr::Reader;

use crate::drive::{Control, Transport};
use crate::error::BenchError;
use crate::records::Outbox;

/// Calls in flight of a connection.
const WINDOW: usize = 64;
/// How long one call may take.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// How long to wait when the server puts calls off.
const TRY_LATER: Duration = Duration::from_millis(20);
/// File data longer than this is sent from the pattern itself instead of being copied.
const COPY_BYTES_MAX: usize = 8 << 10;
/// Deepest directory that is removed: one that a load makes must not be deeper, or it stays with an error.
pub(crate) const TREE_DEPTH_MAX: usize = 64;
/// Most bytes of a listing.
const LISTING_BYTES: u32 = 32 << 10;
/// Most names of a directory that is removed.
const ENTRIES_MAX: usize = 10_000_000;
/// Connections that prepare.
pub(crate) const PREPARING: usize = 4;

/// A server, and who calls it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Where NFS answers.
    pub server: SocketAddr,
    /// Where MOUNT answers.
    pub mount_server: SocketAddr,
    /// Who calls.
    pub identity: Identity,
}

impl Target {
    /// NFS and MOUNT at one address, called by root.
    pub fn new(server: SocketAddr) -> Self {
        Self { server, mount_server: server, identity: Identity::root() }
    }

    /// Mounts a share.
    pub(crate) fn mount(&self, path: &str) -> Result<(Nfs3Client, FileHandle), BenchError> {
        let identity = self.identity.clone();
        Nfs3Client::mount(self.server, self.mount_server, path.as_bytes(), identity, CALL_TIMEOUT)
            .map_err(BenchError::client("mounting the share"))
    }

    /// What the server says about sizes to those who come this way.
    pub(crate) fn limits(
        &self,
        root: &FileHandle,
        transport: Transport,
    ) -> Result<FileSystemInfo, BenchError> {
        let identity = self.identity.clone();
        let asking = || BenchError::client("asking the server for its limits");
        match transport {
            Transport::Tcp => {
                let mut client = Nfs3Client::new(self.connect()?, identity);
                patiently(|| client.fsinfo(root)).map_err(asking())
            }
            Transport::Udp => {
                let datagrams = RpcDatagram::connect(self.server, Retransmission::default());
                let mut client = Nfs3Client::new(datagrams.map_err(asking())?, identity);
                patiently(|| client.fsinfo(root)).map_err(asking())
            }
        }
    }

    /// A connection for preparations.
    pub(crate) fn connect(&self) -> Result<RpcConnection, BenchError> {
        RpcConnection::connect(self.server, CALL_TIMEOUT)
            .map_err(BenchError::client("connecting to the server"))
    }
}

/// A call, to be sent.
pub(crate) type Call = (Procedure, Vec<u8>);

/// Sends calls with [`WINDOW`] in flight and hands the results of each, from their status on, to
/// `each`, which returns the statuses it takes as success beside `NFS3_OK`.
pub(crate) fn pipeline(
    connection: &mut RpcConnection,
    identity: &Identity,
    control: &Control,
    calls: impl Iterator<Item = Call>,
    accepted: &[NfsStat3],
    mut each: impl FnMut(usize, &mut Reader<'_>) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let failed = || BenchError::client("preparing or removing a tree");
    let mut calls = calls.enumerate().fuse();
    let mut in_flight: VecDeque<(u32, usize, Call)> = VecDeque::with_capacity(WINDOW);
    loop {
        while in_flight.len() < WINDOW
            && let Some((index, call)) = calls.next()
        {
            let xid = connection.send(call.0, identity, &call.1).map_err(failed())?;
            in_flight.push_back((xid, index, call));
        }
        let Some((xid, index, call)) = in_flight.pop_front() else { return Ok(()) };
        if control.is_interrupted() {
            return Err(BenchError::Interrupted);
        }
        let reply = connection.receive(xid).map_err(failed())?;
        let results = reply.results().ok_or_else(|| {
            let why = "the server did not execute the call";
            failed()(ClientError::Contradiction { procedure: call.0.name, why })
        })?;
        let broken = |what: String| BenchError::broken(call.0.name, what);
        let mut r = Reader::new(results);
        let status = r.u32().map_err(|error| broken(error.to_string()))?;
        if status == NfsStat3::Jukebox as u32 {
            std::thread::sleep(TRY_LATER);
            let xid = connection.send(call.0, identity, &call.1).map_err(failed())?;
            in_flight.push_back((xid, index, call));
        } else if status == 0 || accepted.iter().any(|one| *one as u32 == status) {
            each(index, &mut Reader::new(results))?;
        } else {
            return Err(broken(format!("status {status} while preparing or removing a tree")));
        }
    }
}

/// Does a share of the work on each of several threads at the same time, which make their connections themselves; results come
/// in the order of the items.
pub(crate) fn in_parts<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(usize, &[T]) -> Result<Vec<R>, BenchError> + Sync,
) -> Result<Vec<R>, BenchError> {
    let share = items.len().div_ceil(PREPARING).max(1);
    let results = std::thread::scope(|scope| {
        let threads: Vec<_> = items
            .chunks(share)
            .enumerate()
            .map(|(number, own)| {
                let work = &work;
                scope.spawn(move || work(number * share, own))
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or(Err(BenchError::Panicked)))
            .collect::<Result<Vec<_>, _>>()
    })?;
    Ok(results.into_iter().flatten().collect())
}

/// A guarded CREATE of an empty file.
pub(crate) fn create(directory: &FileHandle, name: &[u8]) -> Call {
    let how = CreateHow3::Guarded(Settings::mode(0o644).0);
    (procedure::CREATE, arguments::create(directory, name, &how))
}

/// MKDIR.
pub(crate) fn mkdir(directory: &FileHandle, name: &[u8]) -> Call {
    (procedure::MKDIR, arguments::mkdir(directory, name, &Settings::mode(0o755)))
}

/// The handle of an object that was made, from the results of CREATE, MKDIR, SYMLINK.
pub(crate) fn made_handle(r: &mut Reader<'_>) -> Result<FileHandle, BenchError> {
    let handle = r.u32().and_then(|_status| r.optional(|r| r.opaque(64)));
    match handle {
        Ok(Some(handle)) => Ok(FileHandle(handle.to_vec())),
        Ok(None) => Err(BenchError::broken("create", "a new object without a handle")),
        Err(error) => Err(BenchError::broken("create", error.to_string())),
    }
}

/// Makes objects and returns their handles, in the order of the calls.
pub(crate) fn make(
    connection: &mut RpcConnection,
    target: &Target,
    control: &Control,
    calls: impl ExactSizeIterator<Item = Call>,
) -> Result<Vec<FileHandle>, BenchError> {
    let mut handles = vec![FileHandle(Vec::new()); calls.len()];
    pipeline(connection, &target.identity, control, calls, &[], |index, r| {
        if let Some(place) = handles.get_mut(index) {
            *place = made_handle(r)?;
        }
        Ok(())
    })?;
    Ok(handles)
}

/// Makes one call, again and again while the server puts it off.
pub(crate) fn patiently<T>(
    mut call: impl FnMut() -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    let deadline = Instant::now() + CALL_TIMEOUT;
    loop {
        match call() {
            Err(error)
                if error.status() == Some(NfsStat3::Jukebox) && Instant::now() < deadline =>
            {
                std::thread::sleep(TRY_LATER);
            }
            outcome => return outcome,
        }
    }
}

/// Makes a directory, or finds it.
pub(crate) fn directory(
    client: &mut Nfs3Client,
    parent: &FileHandle,
    name: &[u8],
) -> Result<FileHandle, BenchError> {
    let making = || BenchError::client("making a directory");
    match patiently(|| client.mkdir(parent, name, &Settings::mode(0o755))) {
        Ok(made) if made.handle.is_some() => {
            made.handle.ok_or_else(|| BenchError::broken("mkdir", "no handle"))
        }
        Err(error) if error.status() != Some(NfsStat3::Exist) => Err(making()(error)),
        _ => {
            let found = patiently(|| client.lookup(parent, name)).map_err(making())?;
            Ok(found.handle)
        }
    }
}

/// The object of a name, if there is one.
pub(crate) fn find(
    client: &mut Nfs3Client,
    directory: &FileHandle,
    name: &[u8],
) -> Result<Option<FileHandle>, BenchError> {
    match patiently(|| client.lookup(directory, name)) {
        Ok(found) => Ok(Some(found.handle)),
        Err(error) if error.status() == Some(NfsStat3::NoEnt) => Ok(None),
        Err(error) => Err(BenchError::client("looking for a name")(error)),
    }
}

/// A name that no other run has.
pub(crate) fn unique_name(prefix: &str) -> Vec<u8> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now = now.map_or(0, |now| now.as_micros());
    format!("{prefix}-{}-{now}", std::process::id()).into_bytes()
}

/// Removes a directory with all that is in it.
pub(crate) fn remove_tree(
    target: &Target,
    parent: &FileHandle,
    name: &[u8],
) -> Result<(), BenchError> {
    let mut client = Nfs3Client::new(target.connect()?, target.identity.clone());
    let removing = || BenchError::client("removing a tree");
    let top = match patiently(|| client.lookup(parent, name)) {
        Ok(found) => found.handle,
        Err(error) if error.status() == Some(NfsStat3::NoEnt) => return Ok(()),
        Err(error) => return Err(removing()(error)),
    };
    empty(&mut client, target, &top, 0)?;
    patiently(|| client.rmdir(parent, name)).map_err(removing())?;
    Ok(())
}

/// All entries of a directory.
fn list(client: &mut Nfs3Client, directory: &FileHandle) -> Result<Vec<Entry>, ClientError> {
    let (mut entries, mut cookie, mut verifier): (Vec<Entry>, u64, [u8; 8]) =
        (Vec::new(), 0, [0; 8]);
    loop {
        let listing = patiently(|| {
            client.readdirplus(directory, cookie, verifier, LISTING_BYTES, LISTING_BYTES)
        })?;
        let is_stuck = listing.entries.is_empty() && !listing.eof;
        if is_stuck || entries.len() > ENTRIES_MAX {
            let why = "a listing without an end";
            return Err(ClientError::Contradiction { procedure: "READDIRPLUS", why });
        }
        cookie = listing.entries.last().map_or(cookie, |entry| entry.cookie);
        verifier = listing.verifier;
        entries.extend(listing.entries);
        if listing.eof {
            return Ok(entries);
        }
    }
}

fn empty(
    client: &mut Nfs3Client,
    target: &Target,
    directory: &FileHandle,
    depth: usize,
) -> Result<(), BenchError> {
    if depth > TREE_DEPTH_MAX {
        let what =
            format!("directories nested deeper than {TREE_DEPTH_MAX} stay: remove them by hand");
        return Err(BenchError::broken("readdirplus", what));
    }
    let listing = || BenchError::client("listing a directory to be removed");
    let entries = list(client, directory).map_err(listing())?;
    let (mut names, mut directories) = (Vec::new(), Vec::new());
    for entry in entries {
        if entry.name == b"." || entry.name == b".." {
            continue;
        }
        let found = (entry.attributes, entry.handle);
        let (file_type, handle) = if let (Some(attributes), Some(handle)) = found {
            (attributes.file_type, handle)
        } else {
            let found =
                patiently(|| client.lookup(directory, &entry.name)).map_err(listing())?.handle;
            let attributes = patiently(|| client.getattr(&found)).map_err(listing())?;
            (attributes.file_type, found)
        };
        if file_type == FileType::Directory {
            empty(client, target, &handle, depth + 1)?;
            directories.push(entry.name);
        } else {
            names.push(entry.name);
        }
    }
    let remove = |name: &Vec<u8>| (procedure::REMOVE, arguments::place(directory, name));
    let rmdir = |name: &Vec<u8>| (procedure::RMDIR, arguments::place(directory, name));
    let calls = names.iter().map(remove).chain(directories.iter().map(rmdir));
    // What cleans up is not interrupted.
    let (control, gone) = (Control::default(), [NfsStat3::NoEnt]);
    pipeline(client.transport(), &target.identity, &control, calls, &gone, |_, _| Ok(()))
}

/// Appends calls to what is to be sent; their heads are built once.
pub(crate) struct CallWriter {
    /// By procedure number.
    heads: Vec<Vec<u8>>,
}

impl CallWriter {
    pub(crate) fn new(identity: &Identity) -> Self {
        let head = |procedure: &Procedure| {
            CallTemplate::new(*procedure, identity, &[], 0).record().to_vec()
        };
        Self { heads: procedure::ALL.iter().map(head).collect() }
    }

    /// Appends a call of NFSv3; `data` follows the arguments.
    pub(crate) fn append(
        &self,
        out: &mut Outbox,
        xid: u32,
        procedure: Procedure,
        arguments: &[u8],
        data: &'static [u8],
    ) {
        let head = self.heads.get(procedure.number as usize).map_or(&[][..], Vec::as_slice);
        out.push_head(head, xid, arguments.len() + data.len().next_multiple_of(4));
        out.bytes().extend_from_slice(arguments);
        if data.len() <= COPY_BYTES_MAX {
            out.bytes().extend_from_slice(data);
        } else {
            out.push_static(data);
        }
        let padding = data.len().next_multiple_of(4) - data.len();
        out.bytes().extend(std::iter::repeat_n(0, padding));
    }
}
