//! Preparations over NFSv4.1 and 4.2.
//!
//! Files are written and read by the anonymous stateid (RFC 8881 §8.2.3), so that nothing stays open.

use steadfast_client::nfs4::{
    ANONYMOUS, ClientSettings, Nfs4Client, NfsStat4, Opening4, Settings4,
};
use steadfast_client::{ClientError, FileHandle, RpcConnection, StableHow};
use steadfast_wire::nfs4::{
    Attribute4, Bitmap4, Create4Args, CreateType4, FileType4, Op4, OpenHow4, Write4Args,
};

use super::{Limits, Making, Piece, What};
use crate::drive::Control;
use crate::error::BenchError;
use crate::nfs4::pipeline::pipelined;
use crate::nfs4::requests;
use crate::nfs4::sessions::{OVERHEAD_BYTES, Open, close_all};
use crate::pattern;
use crate::place4::{self, patiently};
use crate::setup::{TREE_DEPTH_MAX, Target};
use crate::version::NfsVersion;

/// Calls in flight.
const SLOTS: u32 = 32;
/// Most bytes of a listing.
const LISTING_BYTES: u32 = 32 << 10;

/// A client with a session.
pub(crate) struct Preparer4 {
    client: Nfs4Client<RpcConnection>,
}

fn preparing() -> impl FnOnce(ClientError) -> BenchError {
    BenchError::client("preparing over NFSv4")
}

impl Preparer4 {
    pub(super) fn connect(target: &Target, nfs: NfsVersion) -> Result<Self, BenchError> {
        let settings = ClientSettings {
            slots: SLOTS,
            transfer_bytes_max: pattern::SLICE_BYTES_MAX as u32,
            minor_version: nfs.minor(),
            ..ClientSettings::default()
        };
        Ok(Self { client: place4::connect(target, &settings)? })
    }

    pub(super) fn share(&mut self, path: &str) -> Result<FileHandle, BenchError> {
        patiently(|| self.client.lookup_path(path.as_bytes()))
            .map_err(BenchError::client("looking up the share over NFSv4"))
    }

    pub(super) fn limits(&mut self, share: &FileHandle) -> Result<Limits, BenchError> {
        let wanted = Bitmap4::of(&[Attribute4::MaxRead, Attribute4::MaxWrite]);
        let told = patiently(|| self.client.attributes(share, wanted))
            .map_err(BenchError::client("asking the server for its limits"))?;
        let fore = &self.client.session().fore;
        let most = |told: Option<u64>, channel_bytes: u32| {
            let told = told.filter(|bytes| *bytes > 0).unwrap_or(u64::MAX);
            let channel = channel_bytes.saturating_sub(OVERHEAD_BYTES);
            u32::try_from(told).unwrap_or(u32::MAX).min(channel)
        };
        Ok(Limits {
            read_max: most(told.read_bytes_max, fore.maxresponsesize),
            write_max: most(told.write_bytes_max, fore.maxrequestsize),
        })
    }

    pub(super) fn directory(
        &mut self,
        parent: &FileHandle,
        name: &[u8],
    ) -> Result<FileHandle, BenchError> {
        let mode = Settings4::mode(0o755);
        let made = patiently(|| self.client.make(parent, name, CreateType4::Directory, &mode));
        match made {
            Err(error) if error.status4() == Some(NfsStat4::Exist) => {
                patiently(|| self.client.lookup(parent, name, Bitmap4::EMPTY))
                    .map(|(found, _)| found)
            }
            made => made,
        }
        .map_err(BenchError::client("making a directory over NFSv4"))
    }

    pub(super) fn find(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
    ) -> Result<Option<FileHandle>, BenchError> {
        match patiently(|| self.client.lookup(directory, name, Bitmap4::EMPTY)) {
            Ok((found, _)) => Ok(Some(found)),
            Err(error) if error.status4() == Some(NfsStat4::NoEnt) => Ok(None),
            Err(error) => Err(BenchError::client("looking for a name over NFSv4")(error)),
        }
    }

    pub(super) fn make(
        &mut self,
        control: &Control,
        all: &[Making<'_>],
    ) -> Result<Vec<FileHandle>, BenchError> {
        let [file_mode, directory_mode, link_mode] =
            [0o644, 0o755, 0o777].map(|mode| Settings4::mode(mode).encode());
        let is_file =
            |index: usize| all.get(index).is_some_and(|making| matches!(making.what, What::File));
        let made = pipelined(
            &mut self.client,
            control,
            all.len(),
            |index, compound| {
                let Some(Making { parent, name, what }) = all.get(index) else { return compound };
                let (objtype, createattrs) = match what {
                    What::File => {
                        let how = OpenHow4::Guarded(file_mode.fattr());
                        let open = Opening4::making(name, how).arguments();
                        return compound.put(parent).op(Op4::Open, &open).handle();
                    }
                    What::Directory => (CreateType4::Directory, directory_mode.fattr()),
                    What::Link(target) => (CreateType4::Link(target), link_mode.fattr()),
                };
                let create = Create4Args { objtype, objname: name, createattrs };
                compound.put(parent).op(Op4::Create, &create).handle()
            },
            |index, reply| {
                reply.done(Op4::PutFh)?;
                let stateid = if is_file(index) {
                    Some(reply.open()?.stateid)
                } else {
                    reply.create()?;
                    None
                };
                Ok((reply.handle()?, stateid))
            },
        )?;
        let open =
            |(handle, stateid): &(FileHandle, Option<_>)| Some((handle.clone(), (*stateid)?));
        let opened: Vec<Open> = made.iter().filter_map(open).collect();
        close_all(&mut self.client, &opened)?;
        Ok(made.into_iter().map(|(handle, _)| handle).collect())
    }

    pub(super) fn fill(
        &mut self,
        control: &Control,
        pieces: &[Piece<'_>],
        files: &[&FileHandle],
    ) -> Result<(), BenchError> {
        let counts = pipelined(
            &mut self.client,
            control,
            pieces.len(),
            |index, compound| {
                let Some((file, offset, data)) = pieces.get(index) else { return compound };
                let (stateid, stable) = (ANONYMOUS, StableHow::Unstable);
                let write = Write4Args { stateid, offset: *offset, stable, data };
                compound.put(file).op(Op4::Write, &write)
            },
            |_, reply| {
                reply.done(Op4::PutFh)?;
                reply.write().map(|written| written.count as usize)
            },
        )?;
        if counts.iter().zip(pieces).any(|(count, (_, _, data))| *count != data.len()) {
            return Err(BenchError::broken("write", "WRITE wrote less than it was given"));
        }
        // What is not on disk yet would be written while something is measured.
        pipelined(
            &mut self.client,
            control,
            files.len(),
            |index, compound| match files.get(index) {
                Some(file) => requests::commit(compound, file, 0, 0),
                None => compound,
            },
            |_, reply| {
                reply.done(Op4::PutFh)?;
                reply.commit().map(drop)
            },
        )
        .map(drop)
    }

    pub(super) fn read(
        &mut self,
        file: &FileHandle,
        offset: u64,
        bytes: u32,
    ) -> Result<Vec<u8>, BenchError> {
        patiently(|| self.client.read(file, ANONYMOUS, offset, bytes))
            .map(|read| read.data)
            .map_err(BenchError::client("reading back what was written"))
    }

    pub(super) fn write(
        &mut self,
        file: &FileHandle,
        offset: u64,
        data: &[u8],
    ) -> Result<(u32, StableHow, [u8; 8]), BenchError> {
        patiently(|| self.client.write(file, ANONYMOUS, offset, data, StableHow::Unstable))
            .map(|written| (written.count, written.committed, written.verifier))
            .map_err(BenchError::client("committing what was written"))
    }

    pub(super) fn commit(&mut self, file: &FileHandle) -> Result<[u8; 8], BenchError> {
        patiently(|| self.client.commit(file, 0, 0))
            .map_err(BenchError::client("committing what was written"))
    }

    pub(super) fn mode(&mut self, object: &FileHandle) -> Result<Option<u32>, BenchError> {
        patiently(|| self.client.attributes(object, Bitmap4::of(&[Attribute4::Mode])))
            .map(|attributes| attributes.mode)
            .map_err(BenchError::client("looking at the modes that were set"))
    }

    pub(super) fn remove(&mut self, directory: &FileHandle, name: &[u8]) -> Result<(), BenchError> {
        match patiently(|| self.client.remove(directory, name)) {
            Err(error) if error.status4() != Some(NfsStat4::NoEnt) => {
                Err(BenchError::client("removing a tree over NFSv4")(error))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn remove_tree(
        &mut self,
        parent: &FileHandle,
        name: &[u8],
    ) -> Result<(), BenchError> {
        if let Some(top) = self.find(parent, name)? {
            self.empty(&top, 0)?;
        }
        self.remove(parent, name)
    }

    /// Removes all that is in a directory.
    fn empty(&mut self, directory: &FileHandle, depth: usize) -> Result<(), BenchError> {
        if depth > TREE_DEPTH_MAX {
            let what = format!(
                "directories nested deeper than {TREE_DEPTH_MAX} stay: remove them by hand"
            );
            return Err(BenchError::broken("readdir", what));
        }
        let wanted =
            Bitmap4::of(&[Attribute4::Type, Attribute4::RdattrError, Attribute4::FileHandle]);
        let listed = patiently(|| self.client.read_directory(directory, wanted, LISTING_BYTES))
            .map_err(BenchError::client("listing a directory to be removed"))?;
        let mut names = Vec::with_capacity(listed.len());
        for entry in listed {
            let mut found = (entry.attributes.file_type, entry.attributes.handle);
            if found.0.is_none() || found.1.is_none() {
                let wanted = Bitmap4::of(&[Attribute4::Type]);
                let (handle, attributes) =
                    patiently(|| self.client.lookup(directory, &entry.name, wanted))
                        .map_err(preparing())?;
                found = (attributes.file_type, Some(handle));
            }
            if let (Some(FileType4::Directory), Some(handle)) = found {
                self.empty(&handle, depth + 1)?;
            }
            names.push(entry.name);
        }
        // What cleans up is not interrupted.
        let control = Control::default();
        pipelined(
            &mut self.client,
            &control,
            names.len(),
            |index, compound| match names.get(index) {
                Some(name) => requests::remove(compound, directory, name),
                None => compound,
            },
            |_, reply| {
                reply.done(Op4::PutFh)?;
                reply.change(Op4::Remove).map(drop)
            },
        )
        .map(drop)
    }

    pub(super) fn end(self) -> Result<(), BenchError> {
        self.client.destroy().map_err(BenchError::client("ending a session")).map(drop)
    }
}
