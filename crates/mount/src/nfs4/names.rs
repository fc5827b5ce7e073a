//! Calls that change names.

use steadfast_client::nfs4::{ACCESS_BOTH, NfsStat4, Opening4, Settings4, WANT_NO_DELEGATION};
use steadfast_client::{
    ClientError, CreateHow3, DeviceData3, FileHandle, Linked, Made, MknodData3, NfsStat3, Renamed,
    Settings, Wcc,
};
use steadfast_wire::nfs4::{
    Attribute4, Bitmap4, Create4Args, CreateType4, Fattr4, FileType4, Link4Args, Op4, OpenHow4,
    Remove4Args, Rename4Args, StateId4, Verify4Args,
};
use steadfast_xdr::Writer;

use super::calls::{Calls4, beside, told};
use super::convert::{self, WANTED};
use super::opens::unasked_for;
use super::session::Outcome;

/// What OPEN has made.
struct Opened {
    handle: Option<FileHandle>,
    stateid: StateId4,
    delegation: Option<StateId4>,
    made: Made,
}

impl Calls4 {
    /// Makes a file, which is open then for a while, so that its maker need not open it.
    pub(crate) fn create(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        how: &CreateHow3,
    ) -> Outcome<Made> {
        let encoded = match how {
            CreateHow3::Unchecked(set) | CreateHow3::Guarded(set) => convert::settings(set),
            CreateHow3::Exclusive(_) => Settings4::default(),
        }
        .encode();
        let how = match how {
            CreateHow3::Unchecked(_) => OpenHow4::Unchecked(encoded.fattr()),
            CreateHow3::Guarded(_) => OpenHow4::Guarded(encoded.fattr()),
            CreateHow3::Exclusive(verifier) => OpenHow4::Exclusive41(*verifier, encoded.fattr()),
        };
        let owner = super::opens::owner_of(&self.requests.identity);
        let share_access = ACCESS_BOTH | WANT_NO_DELEGATION;
        let opening = Opening4 { share_access, owner: &owner, ..Opening4::making(name, how) };
        let arguments = opening.arguments();
        let (opened, epoch) = self.change(
            "CREATE",
            |compound| {
                let start = compound.put(directory).attributes(WANTED).plain(Op4::SaveFh);
                let made = start.op(Op4::Open, &arguments).handle().attributes(WANTED);
                made.plain(Op4::RestoreFh).attributes(WANTED)
            },
            |reply| {
                reply.done(Op4::PutFh)?;
                let before = reply.attributes()?;
                reply.done(Op4::SaveFh)?;
                let opened = reply.open()?;
                let handle = reply.handle().ok();
                let attributes = beside(reply);
                let after = reply.done(Op4::RestoreFh).ok().and_then(|()| beside(reply));
                let directory = convert::around(Some(&before), &opened.cinfo, after.as_ref());
                let attributes = told(attributes.as_ref());
                let made = Made { handle: handle.clone(), attributes, directory };
                let (stateid, delegation) = (opened.stateid, unasked_for(&opened.delegation));
                Ok(Opened { handle, stateid, delegation, made })
            },
        )?;
        if let Some(handle) = &opened.handle {
            self.requests.made_open(handle, opened.stateid, epoch);
            self.requests.return_delegation(handle, opened.delegation);
        }
        Ok(opened.made)
    }

    fn make(
        &mut self,
        name_of_call: &'static str,
        (directory, name): (&FileHandle, &[u8]),
        what: CreateType4<'_>,
        settings: &Settings4,
    ) -> Outcome<Made> {
        let encoded = settings.encode();
        let arguments = Create4Args { objtype: what, objname: name, createattrs: encoded.fattr() };
        let (made, _) = self.change(
            name_of_call,
            |compound| {
                let start = compound.put(directory).attributes(WANTED).plain(Op4::SaveFh);
                let made = start.op(Op4::Create, &arguments).handle().attributes(WANTED);
                made.plain(Op4::RestoreFh).attributes(WANTED)
            },
            |reply| {
                reply.done(Op4::PutFh)?;
                let before = reply.attributes()?;
                reply.done(Op4::SaveFh)?;
                let created = reply.create()?;
                let handle = reply.handle().ok();
                let attributes = told(beside(reply).as_ref());
                let after = reply.done(Op4::RestoreFh).ok().and_then(|()| beside(reply));
                let directory = convert::around(Some(&before), &created.cinfo, after.as_ref());
                Ok(Made { handle, attributes, directory })
            },
        )?;
        Ok(made)
    }

    pub(crate) fn mkdir(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        settings: &Settings,
    ) -> Outcome<Made> {
        let settings = convert::settings(&settings.0);
        self.make("MKDIR", (directory, name), CreateType4::Directory, &settings)
    }

    pub(crate) fn symlink(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        target: &[u8],
        settings: &Settings,
    ) -> Outcome<Made> {
        let settings = convert::settings(&settings.0);
        self.make("SYMLINK", (directory, name), CreateType4::Link(target), &settings)
    }

    pub(crate) fn mknod(
        &mut self,
        directory: &FileHandle,
        name: &[u8],
        what: &MknodData3,
    ) -> Outcome<Made> {
        let (what, settings) = match what {
            MknodData3::Chr(DeviceData3 { dev_attributes, spec }) => {
                (CreateType4::CharacterDevice(spec.specdata1, spec.specdata2), dev_attributes)
            }
            MknodData3::Blk(DeviceData3 { dev_attributes, spec }) => {
                (CreateType4::BlockDevice(spec.specdata1, spec.specdata2), dev_attributes)
            }
            MknodData3::Sock(settings) => (CreateType4::Socket, settings),
            MknodData3::Fifo(settings) => (CreateType4::Fifo, settings),
            _ => {
                let why = "nothing that MKNOD makes";
                return Err(ClientError::Contradiction { procedure: "MKNOD", why });
            }
        };
        let settings = convert::settings(settings);
        self.make("MKNOD", (directory, name), what, &settings)
    }

    /// Removes a name of anything but a directory.
    pub(crate) fn remove(&mut self, directory: &FileHandle, name: &[u8]) -> Outcome<Wcc> {
        self.remove_if("REMOVE", directory, name, false)
    }

    /// Removes an empty directory.
    pub(crate) fn rmdir(&mut self, directory: &FileHandle, name: &[u8]) -> Outcome<Wcc> {
        self.remove_if("RMDIR", directory, name, true)
    }

    /// REMOVE removes anything: the server is told first what it has to be.
    fn remove_if(
        &mut self,
        name_of_call: &'static str,
        directory: &FileHandle,
        name: &[u8],
        is_directory: bool,
    ) -> Outcome<Wcc> {
        let mut value = Vec::new();
        Writer::new(&mut value).u32(FileType4::Directory as u32);
        let attrmask = Bitmap4::of(&[Attribute4::Type]);
        let type_is = Verify4Args { obj_attributes: Fattr4 { attrmask, attr_vals: &value } };
        let verify = if is_directory { Op4::Verify } else { Op4::NVerify };
        let arguments = Remove4Args { target: name };
        let removed = self.requests.request(
            super::session::Manner::changing(name_of_call),
            |compound| {
                let start = compound.put(directory).attributes(WANTED).plain(Op4::SaveFh);
                let checked = start.lookup(name).op(verify, &type_is).plain(Op4::RestoreFh);
                checked.op(Op4::Remove, &arguments).attributes(WANTED)
            },
            |reply| {
                reply.done(Op4::PutFh)?;
                let before = reply.attributes()?;
                reply.done(Op4::SaveFh)?;
                reply.done(Op4::Lookup)?;
                reply.done(verify)?;
                reply.done(Op4::RestoreFh)?;
                let told = reply.change(Op4::Remove)?;
                Ok(convert::around(Some(&before), &told, beside(reply).as_ref()))
            },
        );
        removed.map(|(wcc, _)| wcc).map_err(|error| match error.status4() {
            Some(NfsStat4::NotSame) => convert::with_status(error, NfsStat3::NotDir),
            Some(NfsStat4::Same) => convert::with_status(error, NfsStat3::IsDir),
            _ => convert::failed(error),
        })
    }

    pub(crate) fn rename(
        &mut self,
        from: &FileHandle,
        name: &[u8],
        to: &FileHandle,
        new_name: &[u8],
    ) -> Outcome<Renamed> {
        let arguments = Rename4Args { oldname: name, newname: new_name };
        let (renamed, _) = self.change(
            "RENAME",
            |compound| {
                let start = compound.put(from).attributes(WANTED).plain(Op4::SaveFh);
                let renamed = start.put(to).attributes(WANTED).op(Op4::Rename, &arguments);
                renamed.attributes(WANTED).plain(Op4::RestoreFh).attributes(WANTED)
            },
            |reply| {
                reply.done(Op4::PutFh)?;
                let from_before = reply.attributes()?;
                reply.done(Op4::SaveFh)?;
                reply.done(Op4::PutFh)?;
                let to_before = reply.attributes()?;
                let told = reply.rename()?;
                let to_after = beside(reply);
                let from_after = reply.done(Op4::RestoreFh).ok().and_then(|()| beside(reply));
                let from = convert::around(Some(&from_before), &told.source, from_after.as_ref());
                let to = convert::around(Some(&to_before), &told.target, to_after.as_ref());
                Ok(Renamed { from, to })
            },
        )?;
        Ok(renamed)
    }

    pub(crate) fn link(
        &mut self,
        file: &FileHandle,
        directory: &FileHandle,
        name: &[u8],
    ) -> Outcome<Linked> {
        let arguments = Link4Args { newname: name };
        let (linked, _) = self.change(
            "LINK",
            |compound| {
                let start = compound.put(file).plain(Op4::SaveFh).put(directory).attributes(WANTED);
                let linked = start.op(Op4::Link, &arguments).attributes(WANTED);
                linked.plain(Op4::RestoreFh).attributes(WANTED)
            },
            |reply| {
                reply.done(Op4::PutFh)?;
                reply.done(Op4::SaveFh)?;
                reply.done(Op4::PutFh)?;
                let before = reply.attributes()?;
                let of = reply.change(Op4::Link)?;
                let after = beside(reply);
                let attributes = reply.done(Op4::RestoreFh).ok().and_then(|()| beside(reply));
                let directory = convert::around(Some(&before), &of, after.as_ref());
                Ok(Linked { attributes: told(attributes.as_ref()), directory })
            },
        )?;
        Ok(linked)
    }
}
