//! Who prepares what loads work on, looks at what they left, and removes it: by the version of NFS that is measured, so
//! that a server needs no other.

mod four;

use steadfast_client::{
    FileHandle, Nfs3Client, NfsStat3, Settings, StableHow, arguments, procedure,
};

use crate::drive::{Control, Transport};
use crate::error::BenchError;
use crate::nfs4::judging::PERMISSIONS;
use crate::setup::{self, Call, Target};
use crate::version::NfsVersion;
use four::Preparer4;

/// What is to be made, of which name.
#[derive(Clone, Debug)]
pub(crate) struct Making<'a> {
    pub(crate) parent: &'a FileHandle,
    pub(crate) name: Vec<u8>,
    pub(crate) what: What,
}

/// What kind of object.
#[derive(Clone, Debug)]
pub(crate) enum What {
    Directory,
    /// Empty, and closed.
    File,
    /// A symbolic link with this target.
    Link(Vec<u8>),
}

/// A piece of a file that is to be written.
pub(crate) type Piece<'a> = (&'a FileHandle, u64, &'static [u8]);

/// Most bytes of calls; a server that tells 0 tells nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) read_max: u32,
    pub(crate) write_max: u32,
}

/// A client of either version.
pub(crate) enum Preparer {
    V3(Box<Nfs3Client>, Target),
    V4(Box<Preparer4>),
}

impl Preparer {
    /// A client over a connection of its own.
    pub(crate) fn connect(target: &Target, nfs: NfsVersion) -> Result<Self, BenchError> {
        if nfs.is_4() {
            return Ok(Self::V4(Box::new(Preparer4::connect(target, nfs)?)));
        }
        let client = Nfs3Client::new(target.connect()?, target.identity.clone());
        Ok(Self::V3(Box::new(client), target.clone()))
    }

    /// The same, and a share's root: by MOUNT, or where the server shows it to clients of NFSv4.
    pub(crate) fn mount(
        target: &Target,
        nfs: NfsVersion,
        path: &str,
    ) -> Result<(Self, FileHandle), BenchError> {
        if nfs.is_4() {
            let mut client = Preparer4::connect(target, nfs)?;
            let share = client.share(path)?;
            return Ok((Self::V4(Box::new(client)), share));
        }
        let (client, share) = target.mount(path)?;
        Ok((Self::V3(Box::new(client), target.clone()), share))
    }

    /// What the server says about sizes to those who come this way.
    pub(crate) fn limits(
        &mut self,
        share: &FileHandle,
        transport: Transport,
    ) -> Result<Limits, BenchError> {
        match self {
            Self::V3(_, target) => {
                let limits = target.limits(share, transport)?;
                Ok(Limits { read_max: limits.read_max, write_max: limits.write_max })
            }
            Self::V4(client) => client.limits(share),
        }
    }

    /// Makes a directory, or finds it.
    pub(crate) fn directory(
        &mut self,
        parent: &FileHandle,
        name: &[u8],
    ) -> Result<FileHandle, BenchError> {
        match self {
            Self::V3(client, _) => setup::directory(client, parent, name),
            Self::V4(client) => client.directory(parent, name),
        }
    }

    /// The object of a name, if there is one.
    pub(crate) fn find(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
    ) -> Result<Option<FileHandle>, BenchError> {
        match self {
            Self::V3(client, _) => setup::find(client, directory, name),
            Self::V4(client) => client.find(directory, name),
        }
    }

    /// Makes objects and returns their handles, in this order.
    pub(crate) fn make(
        &mut self,
        control: &Control,
        all: &[Making<'_>],
    ) -> Result<Vec<FileHandle>, BenchError> {
        match self {
            Self::V3(client, target) => {
                setup::make(client.transport(), target, control, all.iter().map(call))
            }
            Self::V4(client) => client.make(control, all),
        }
    }

    /// Writes pieces, and commits these files.
    pub(crate) fn fill<'a>(
        &mut self,
        control: &Control,
        pieces: &[Piece<'a>],
        files: &[&'a FileHandle],
    ) -> Result<(), BenchError> {
        match self {
            Self::V3(client, target) => {
                let writes = pieces.iter().map(|(file, offset, data)| -> Call {
                    let arguments = arguments::write(file, *offset, data, StableHow::Unstable);
                    (procedure::WRITE, arguments)
                });
                // What is not on disk yet would be written while something is measured.
                let commit = |file: &&FileHandle| -> Call {
                    (procedure::COMMIT, arguments::commit(file, 0, 0))
                };
                let calls = writes.chain(files.iter().map(commit));
                let identity = &target.identity;
                setup::pipeline(client.transport(), identity, control, calls, &[], |_, _| Ok(()))
            }
            Self::V4(client) => client.fill(control, pieces, files),
        }
    }

    /// Reads.
    pub(crate) fn read(
        &mut self,
        file: &FileHandle,
        offset: u64,
        bytes: u32,
    ) -> Result<Vec<u8>, BenchError> {
        match self {
            Self::V3(client, _) => setup::patiently(|| client.read(file, offset, bytes))
                .map(|read| read.data)
                .map_err(BenchError::client("reading back what was written")),
            Self::V4(client) => client.read(file, offset, bytes),
        }
    }

    /// Writes unstable: how many bytes were written, how stable they are, and the verifier.
    pub(crate) fn write(
        &mut self,
        file: &FileHandle,
        offset: u64,
        data: &[u8],
    ) -> Result<(u32, StableHow, [u8; 8]), BenchError> {
        match self {
            Self::V3(client, _) => {
                let unstable = StableHow::Unstable;
                setup::patiently(|| client.write(file, offset, data, unstable))
                    .map(|written| (written.count, written.committed, written.verifier))
                    .map_err(BenchError::client("committing what was written"))
            }
            Self::V4(client) => client.write(file, offset, data),
        }
    }

    /// Makes stable what was written to a file: the verifier.
    pub(crate) fn commit(&mut self, file: &FileHandle) -> Result<[u8; 8], BenchError> {
        match self {
            Self::V3(client, _) => setup::patiently(|| client.commit(file, 0, 0))
                .map(|commit| commit.verifier)
                .map_err(BenchError::client("committing what was written")),
            Self::V4(client) => client.commit(file),
        }
    }

    /// The permissions of an object, if the server tells them.
    pub(crate) fn mode(&mut self, object: &FileHandle) -> Result<Option<u32>, BenchError> {
        let mode = match self {
            Self::V3(client, _) => setup::patiently(|| client.getattr(object))
                .map(|attributes| Some(attributes.mode))
                .map_err(BenchError::client("looking at the modes that were set")),
            Self::V4(client) => client.mode(object),
        }?;
        Ok(mode.map(|mode| mode & PERMISSIONS))
    }

    /// Removes a file, if it is there.
    pub(crate) fn remove(&mut self, directory: &FileHandle, name: &[u8]) -> Result<(), BenchError> {
        match self {
            Self::V3(client, target) => {
                let call = std::iter::once((procedure::REMOVE, arguments::place(directory, name)));
                let (control, gone) = (Control::default(), [NfsStat3::NoEnt]);
                let connection = client.transport();
                let identity = &target.identity;
                setup::pipeline(connection, identity, &control, call, &gone, |_, _| Ok(()))
            }
            Self::V4(client) => client.remove(directory, name),
        }
    }

    /// Removes a directory with all that is in it, if it is there.
    pub(crate) fn remove_tree(
        &mut self,
        parent: &FileHandle,
        name: &[u8],
    ) -> Result<(), BenchError> {
        match self {
            Self::V3(_, target) => setup::remove_tree(target, parent, name),
            Self::V4(client) => client.remove_tree(parent, name),
        }
    }

    /// Leaves the server.
    pub(crate) fn end(self) -> Result<(), BenchError> {
        match self {
            Self::V3(..) => Ok(()),
            Self::V4(client) => client.end(),
        }
    }
}

/// Does a share of the work on each of several connections at the same time; results come in
/// the order of the items.
pub(crate) fn in_parallel<T: Sync, R: Send>(
    target: &Target,
    nfs: NfsVersion,
    items: &[T],
    work: impl Fn(&mut Preparer, usize, &[T]) -> Result<Vec<R>, BenchError> + Sync,
) -> Result<Vec<R>, BenchError> {
    setup::in_parts(items, |first, own| {
        let mut preparer = Preparer::connect(target, nfs)?;
        let done = work(&mut preparer, first, own)?;
        preparer.end()?;
        Ok(done)
    })
}

/// What makes an object over NFSv3.
fn call(Making { parent, name, what }: &Making<'_>) -> Call {
    match what {
        What::Directory => setup::mkdir(parent, name),
        What::File => setup::create(parent, name),
        What::Link(target) => {
            let set = Settings::mode(0o777);
            (procedure::SYMLINK, arguments::symlink(parent, name, target, &set))
        }
    }
}
