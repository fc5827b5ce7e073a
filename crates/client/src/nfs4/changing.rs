//! Operations that change files and directories (RFC 8881 §18.3, §18.4, §18.9, §18.16, §18.25, §18.26,
//! §18.30, §18.32).

use steadfast_wire::nfs4::{
    ChangeInfo4, Commit4Args, Create4Args, CreateType4, Link4Args, Op4, Open4Args, OpenClaim4,
    OpenDelegation4, OpenHow4, Remove4Args, Rename4Args, SetAttr4Args, StateId4, Write4Args,
    Write4Result,
};

use super::client::{Nfs4Client, Opened4, contradiction};
use super::settable::Settings4;
use crate::error::ClientError;
use crate::object::FileHandle;
use crate::transport::RpcTransport;
use steadfast_wire::nfs3::StableHow;

/// `OPEN4_SHARE_ACCESS_READ`.
pub const ACCESS_READ: u32 = 0x1;
/// `OPEN4_SHARE_ACCESS_WRITE`.
pub const ACCESS_WRITE: u32 = 0x2;
/// `OPEN4_SHARE_ACCESS_BOTH`.
pub const ACCESS_BOTH: u32 = 0x3;
/// `OPEN4_SHARE_ACCESS_WANT_NO_DELEG`.
pub const WANT_NO_DELEGATION: u32 = 0x400;
/// The stateid of who has nothing open (§8.2.3).
pub const ANONYMOUS: StateId4 = StateId4 { seqid: 0, other: [0; 12] };
/// The owner of all opens of a client, unless another is told.
pub const OPEN_OWNER: &[u8] = b"steadfast client";

type Outcome<T> = Result<T, ClientError>;

/// What to open, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening4<'a> {
    /// What for, and which delegation is wanted.
    pub share_access: u32,
    /// What others may not do meanwhile.
    pub share_deny: u32,
    /// For whom.
    pub owner: &'a [u8],
    /// Whether it is made if it is not there.
    pub how: OpenHow4<'a>,
    /// By which name, or as what it was open before.
    pub claim: OpenClaim4<'a>,
}

impl<'a> Opening4<'a> {
    /// A file of a directory that is there, for reading and writing, without a delegation.
    pub fn existing(name: &'a [u8]) -> Self {
        Self::with_claim(OpenClaim4::Null(name))
    }

    /// Likewise, made in this manner.
    pub fn making(name: &'a [u8], how: OpenHow4<'a>) -> Self {
        Self { how, ..Self::existing(name) }
    }

    /// What the claim says, for reading and writing, without a delegation.
    pub fn with_claim(claim: OpenClaim4<'a>) -> Self {
        Self {
            share_access: ACCESS_BOTH | WANT_NO_DELEGATION,
            share_deny: 0,
            owner: OPEN_OWNER,
            how: OpenHow4::NoCreate,
            claim,
        }
    }

    /// The arguments of OPEN: owners belong to the session's client.
    pub fn arguments(&self) -> Open4Args<'a> {
        Open4Args {
            seqid: 0,
            share_access: self.share_access,
            share_deny: self.share_deny,
            clientid: 0,
            owner: self.owner,
            openhow: self.how,
            claim: self.claim,
        }
    }
}

impl<T: RpcTransport> Nfs4Client<T> {
    /// Opens. `object` is the directory of a name, or the file itself if the claim has no name.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn open(&mut self, object: &FileHandle, opening: &Opening4<'_>) -> Outcome<Opened4> {
        let arguments = opening.arguments();
        self.request(
            |compound| compound.put(object).op(Op4::Open, &arguments).handle(),
            |reply| {
                reply.done(Op4::PutFh)?;
                let opened = reply.open()?;
                let delegation = match opened.delegation {
                    OpenDelegation4::Read { stateid, .. }
                    | OpenDelegation4::Write { stateid, .. } => Some(stateid),
                    _ => None,
                };
                let handle = reply.handle()?;
                Ok(Opened4 { handle, stateid: opened.stateid, delegation })
            },
        )
    }

    /// Writes, by an open or a special stateid.
    ///
    /// # Errors
    /// See [`ClientError`]; also if the server says that it wrote more than it was given, nothing, or
    /// less stable than was asked for.
    pub fn write(
        &mut self,
        file: &FileHandle,
        stateid: StateId4,
        offset: u64,
        data: &[u8],
        stable: StableHow,
    ) -> Outcome<Write4Result> {
        let arguments = Write4Args { stateid, offset, stable, data };
        let written = self.request(
            |compound| compound.put(file).op(Op4::Write, &arguments),
            |reply| {
                reply.done(Op4::PutFh)?;
                reply.write()
            },
        )?;
        if written.count as usize > data.len() || (written.count == 0 && !data.is_empty()) {
            return contradiction("WRITE", "another count than was given");
        }
        if (written.committed as u32) < stable as u32 {
            return contradiction("WRITE", "less stable than was asked for");
        }
        Ok(written)
    }

    /// Makes stable what was written; returns the write verifier.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn commit(&mut self, file: &FileHandle, offset: u64, count: u32) -> Outcome<[u8; 8]> {
        let arguments = Commit4Args { offset, count };
        self.request(
            |compound| compound.put(file).op(Op4::Commit, &arguments),
            |reply| {
                reply.done(Op4::PutFh)?;
                reply.commit()
            },
        )
    }

    /// Sets attributes; the size by an open for writing, or a special stateid.
    ///
    /// # Errors
    /// See [`ClientError`]; also if the server says that it set other attributes.
    pub fn set_attributes(
        &mut self,
        object: &FileHandle,
        stateid: StateId4,
        settings: &Settings4,
    ) -> Outcome<()> {
        let encoded = settings.encode();
        let arguments = SetAttr4Args { stateid, obj_attributes: encoded.fattr() };
        let set = self.request(
            |compound| compound.put(object).op(Op4::SetAttr, &arguments),
            |reply| {
                reply.done(Op4::PutFh)?;
                reply.set_attributes()
            },
        )?;
        if set != encoded.mask() {
            return contradiction("SETATTR", "set other attributes than it was told to");
        }
        Ok(())
    }

    /// Makes a directory, a symbolic link or a special file; returns its handle.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn make(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        what: CreateType4<'_>,
        settings: &Settings4,
    ) -> Outcome<FileHandle> {
        let encoded = settings.encode();
        let arguments = Create4Args { objtype: what, objname: name, createattrs: encoded.fattr() };
        self.request(
            |compound| compound.put(directory).op(Op4::Create, &arguments).handle(),
            |reply| {
                reply.done(Op4::PutFh)?;
                reply.create()?;
                reply.handle()
            },
        )
    }

    /// Removes a name of a file or of an empty directory.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn remove(&mut self, directory: &FileHandle, name: &[u8]) -> Outcome<ChangeInfo4> {
        let arguments = Remove4Args { target: name };
        self.request(
            |compound| compound.put(directory).op(Op4::Remove, &arguments),
            |reply| {
                reply.done(Op4::PutFh)?;
                reply.change(Op4::Remove)
            },
        )
    }

    /// Gives an object another name.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn rename(
        &mut self,
        (from, old): (&FileHandle, &[u8]),
        (to, new): (&FileHandle, &[u8]),
    ) -> Outcome<()> {
        let arguments = Rename4Args { oldname: old, newname: new };
        self.request(
            |compound| compound.put(from).plain(Op4::SaveFh).put(to).op(Op4::Rename, &arguments),
            |reply| {
                reply.done(Op4::PutFh)?;
                reply.done(Op4::SaveFh)?;
                reply.done(Op4::PutFh)?;
                reply.rename().map(drop)
            },
        )
    }

    /// Gives a file one more name.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub fn link(
        &mut self,
        file: &FileHandle,
        directory: &FileHandle,
        name: &[u8],
    ) -> Outcome<ChangeInfo4> {
        let arguments = Link4Args { newname: name };
        self.request(
            |compound| {
                compound.put(file).plain(Op4::SaveFh).put(directory).op(Op4::Link, &arguments)
            },
            |reply| {
                reply.done(Op4::PutFh)?;
                reply.done(Op4::SaveFh)?;
                reply.done(Op4::PutFh)?;
                reply.change(Op4::Link)
            },
        )
    }
}
