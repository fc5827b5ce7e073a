//! The procedures of the fake server.

use std::collections::BTreeMap;

use steadfast_client::{NfsStat3, StableHow};
use steadfast_wire::nfs3::{
    Commit3Args, Create3Args, CreateHow3, Getattr3Args, Link3Args, Lookup3Args, Mkdir3Args,
    Mknod3Args, NfsFh3, Read3Args, Readdir3Args, Readdirplus3Args, Remove3Args, Rename3Args,
    Sattr3, Setattr3Args, Symlink3Args, Write3Args,
};
use steadfast_xdr::{Decode, Reader, Writer};

use super::{Fault, Kind, Object, State};

/// What FSINFO says.
pub const TRANSFER_BYTES_MAX: u32 = 1 << 20;

type Answer = Result<(), NfsStat3>;

/// The status, and after a failure what has to follow it.
pub fn answer(state: &mut State, procedure: u32, r: &mut Reader<'_>, w: &mut Writer<'_>) {
    if procedure == 0 {
        return;
    }
    let mut results = Vec::new();
    let outcome = execute(state, procedure, r, &mut Writer::new(&mut results));
    match outcome {
        Ok(()) => {
            w.u32(0);
            assert!(results.len().is_multiple_of(4));
            w.fixed_opaque(&results);
        }
        Err(status) => {
            w.u32(status as u32);
            failure_tail(w, procedure);
        }
    }
}

/// What follows the status of a failure: as many absent attributes as the procedure has.
pub fn failure_tail(w: &mut Writer<'_>, procedure: u32) {
    let words = match procedure {
        1 => 0,
        14 => 4,
        15 => 3,
        2 | 7..=13 | 21 => 2,
        _ => 1,
    };
    for _ in 0..words {
        w.u32(0);
    }
}

fn number(handle: NfsFh3<'_>) -> Result<u64, NfsStat3> {
    handle.0.try_into().map(u64::from_be_bytes).map_err(|_| NfsStat3::BadHandle)
}

fn args<'a, T: Decode<'a>>(r: &mut Reader<'a>) -> Result<T, NfsStat3> {
    T::decode(r).map_err(|_| NfsStat3::Inval)
}

impl State {
    pub fn object(&mut self, handle: NfsFh3<'_>) -> Result<(u64, &mut Object), NfsStat3> {
        let number = number(handle)?;
        self.objects.get_mut(&number).map(|object| (number, object)).ok_or(NfsStat3::Stale)
    }

    pub fn names(&mut self, handle: NfsFh3<'_>) -> Result<&mut BTreeMap<Vec<u8>, u64>, NfsStat3> {
        match &mut self.object(handle)?.1.kind {
            Kind::Directory(names) => Ok(names),
            _ => Err(NfsStat3::NotDir),
        }
    }

    /// Only what calls make while it is measured.
    fn forgets(&self, name: &[u8]) -> bool {
        self.fault == Fault::ForgetsNames && name.starts_with(b"n")
    }

    pub fn make(
        &mut self,
        directory: NfsFh3<'_>,
        name: &[u8],
        kind: Kind,
    ) -> Result<u64, NfsStat3> {
        let (number, forgets) = (self.next, self.forgets(name));
        let names = self.names(directory)?;
        if names.contains_key(name) {
            return Err(NfsStat3::Exist);
        }
        if !forgets {
            names.insert(name.to_vec(), number);
        }
        let nlink = if matches!(kind, Kind::Directory(_)) { 2 } else { 1 };
        self.objects.insert(number, Object { kind, nlink, mode: 0o644 });
        self.next += 1;
        Ok(number)
    }

    fn made(&mut self, number: u64, w: &mut Writer<'_>) {
        w.bool(true);
        w.opaque(&number.to_be_bytes());
        self.post(number, w);
        w.u32(0);
        w.u32(0);
    }

    pub fn drop_link(&mut self, number: u64) {
        if let Some(object) = self.objects.get_mut(&number) {
            object.nlink -= 1;
            if object.nlink == 0 || matches!(object.kind, Kind::Directory(_)) {
                self.objects.remove(&number);
            }
        }
    }

    fn post(&mut self, number: u64, w: &mut Writer<'_>) {
        w.bool(true);
        self.attributes(number, w);
    }

    fn attributes(&mut self, number: u64, w: &mut Writer<'_>) {
        let object = &self.objects[&number];
        let (file_type, size) = match &object.kind {
            Kind::File(data) => (1, data.len()),
            Kind::Directory(names) => (2, names.len()),
            Kind::Symlink(target) => (5, target.len()),
            Kind::Fifo => (7, 0),
        };
        for word in [file_type, object.mode, object.nlink, 0, 0] {
            w.u32(word);
        }
        w.u64(size as u64);
        w.u64(size as u64);
        w.zeros(8);
        w.u64(1);
        w.u64(number);
        w.zeros(24);
    }

    pub fn verifier(&self) -> [u8; 8] {
        match self.fault {
            Fault::ForgetfulEvery(n) | Fault::LosesUnstableEvery(n) => {
                (self.writes / n).to_be_bytes()
            }
            _ => [7; 8],
        }
    }

    /// Loses what was not committed, if its time has come.
    pub fn lose(&mut self) {
        if !matches!(self.fault, Fault::LosesUnstableEvery(n) if self.writes.is_multiple_of(n)) {
            return;
        }
        for (number, offset, length) in std::mem::take(&mut self.uncommitted) {
            if let Some(Object { kind: Kind::File(data), .. }) = self.objects.get_mut(&number) {
                data[offset..offset + length].fill(0);
            }
        }
    }

    pub fn set(&mut self, number: u64, set: &Sattr3) {
        if let Some(object) = self.objects.get_mut(&number) {
            object.mode = set.mode.unwrap_or(object.mode);
            if let (Kind::File(data), Some(size)) = (&mut object.kind, set.size) {
                data.resize(size as usize, 0);
            }
        }
    }

    /// WRITE: what it promises, with its verifier.
    pub fn write(
        &mut self,
        file: NfsFh3<'_>,
        offset: u64,
        new: &[u8],
        stable: StableHow,
    ) -> Result<(StableHow, [u8; 8]), NfsStat3> {
        self.writes += 1;
        self.lose();
        let (fault, verifier) = (self.fault, self.verifier());
        let (number, object) = self.object(file)?;
        let Kind::File(data) = &mut object.kind else { return Err(NfsStat3::Inval) };
        let (start, end) = (offset as usize, offset as usize + new.len());
        if data.len() < end {
            data.resize(end, 0);
        }
        if fault != Fault::LostWrites {
            data[start..end].copy_from_slice(new);
        }
        let is_stable = stable != StableHow::Unstable && fault != Fault::LessStable;
        if !is_stable && matches!(fault, Fault::LosesUnstableEvery(_)) {
            self.uncommitted.push((number, start, new.len()));
        }
        Ok((if is_stable { StableHow::FileSync } else { StableHow::Unstable }, verifier))
    }

    /// COMMIT: the verifier.
    pub fn commit(&mut self, file: NfsFh3<'_>) -> Result<[u8; 8], NfsStat3> {
        let (number, _) = self.object(file)?;
        self.uncommitted.retain(|(file, _, _)| *file != number);
        Ok(self.verifier())
    }

    /// REMOVE or RMDIR.
    pub fn remove(
        &mut self,
        directory: NfsFh3<'_>,
        name: &[u8],
        is_directory: bool,
    ) -> Result<(), NfsStat3> {
        let keeps = self.fault == Fault::StaleNames;
        let found = *self.names(directory)?.get(name).ok_or(NfsStat3::NoEnt)?;
        if let Kind::Directory(inner) = &self.objects[&found].kind
            && (!is_directory || !inner.is_empty())
        {
            return Err(NfsStat3::NotEmpty);
        }
        if !keeps || is_directory {
            self.names(directory)?.remove(name);
            self.drop_link(found);
        }
        Ok(())
    }

    /// RENAME.
    pub fn rename(
        &mut self,
        (from, old): (NfsFh3<'_>, &[u8]),
        (to, new): (NfsFh3<'_>, &[u8]),
    ) -> Result<(), NfsStat3> {
        let keeps = self.fault == Fault::StaleNames;
        let names = self.names(from)?;
        let moved = *names.get(old).ok_or(NfsStat3::NoEnt)?;
        if !keeps {
            names.remove(old);
        }
        let replaced = self.names(to)?.insert(new.to_vec(), moved);
        if let Some(replaced) = replaced {
            self.drop_link(replaced);
        }
        Ok(())
    }

    /// LINK: the file's number.
    pub fn link(
        &mut self,
        file: NfsFh3<'_>,
        directory: NfsFh3<'_>,
        name: &[u8],
    ) -> Result<u64, NfsStat3> {
        let forgets = self.forgets(name);
        let (number, object) = self.object(file)?;
        object.nlink += 1;
        if !forgets {
            self.names(directory)?.insert(name.to_vec(), number);
        }
        Ok(number)
    }

    fn listing(&mut self, directory: NfsFh3<'_>, cookie: u64, max: u32, plus: bool) -> Listing {
        let directory_number = number(directory)?;
        let mut names: Vec<_> =
            self.names(directory)?.iter().map(|(name, number)| (name.clone(), *number)).collect();
        names.insert(0, (b"..".to_vec(), 1));
        names.insert(0, (b".".to_vec(), directory_number));
        if self.fault == Fault::MissingEntry && names.len() > 2 {
            names.pop();
        }
        let count = names.len();
        let mut bytes = Vec::new();
        let mut w = Writer::new(&mut bytes);
        self.post(directory_number, &mut w);
        w.fixed_opaque(&[1; 8]);
        let mut is_end = true;
        for (index, (name, entry)) in names.into_iter().enumerate().skip(cookie as usize) {
            if w.position() + 200 + name.len() > max as usize {
                is_end = false;
                break;
            }
            assert!(index < count);
            w.bool(true);
            w.u64(entry);
            w.opaque(&name);
            w.u64(index as u64 + 1);
            if plus {
                self.post(entry, &mut w);
                w.bool(true);
                w.opaque(&entry.to_be_bytes());
            }
        }
        w.bool(false);
        w.bool(is_end);
        Ok(bytes)
    }
}

type Listing = Result<Vec<u8>, NfsStat3>;

fn execute(state: &mut State, procedure: u32, r: &mut Reader<'_>, w: &mut Writer<'_>) -> Answer {
    match procedure {
        1 => getattr(state, r, w),
        2 => setattr(state, r, w),
        3 => lookup(state, r, w),
        4 => access(state, r, w),
        5 => readlink(state, r, w),
        6 => read(state, r, w),
        7 => write(state, r, w),
        8 => create(state, r, w),
        9 => mkdir(state, r, w),
        10 => symlink(state, r, w),
        11 => mknod(state, r, w),
        12 => remove(state, r, w, false),
        13 => remove(state, r, w, true),
        14 => rename(state, r, w),
        15 => link(state, r, w),
        16 => {
            let args: Readdir3Args<'_> = args(r)?;
            let bytes = state.listing(args.dir, args.cookie, args.count, false)?;
            w.fixed_opaque(&bytes);
            Ok(())
        }
        17 => {
            let args: Readdirplus3Args<'_> = args(r)?;
            let bytes = state.listing(args.dir, args.cookie, args.maxcount, true)?;
            w.fixed_opaque(&bytes);
            Ok(())
        }
        18..=20 => about_file_system(state, procedure, r, w),
        21 => commit(state, r, w),
        _ => Err(NfsStat3::NotSupp),
    }
}

fn getattr(state: &mut State, r: &mut Reader<'_>, w: &mut Writer<'_>) -> Answer {
    let (number, _) = state.object(args::<Getattr3Args<'_>>(r)?.object)?;
    state.attributes(number, w);
    Ok(())
}

fn setattr(state: &mut State, r: &mut Reader<'_>, w: &mut Writer<'_>) -> Answer {
    let args: Setattr3Args<'_> = args(r)?;
    let (number, _) = state.object(args.object)?;
    if state.fault != Fault::IgnoresSetattr {
        state.set(number, &args.new_attributes);
    }
    w.u32(0);
    state.post(number, w);
    Ok(())
}

fn lookup(state: &mut State, r: &mut Reader<'_>, w: &mut Writer<'_>) -> Answer {
    let args: Lookup3Args<'_> = args(r)?;
    let is_wrong = state.fault == Fault::WrongHandle;
    let names = state.names(args.what.dir)?;
    let found = *names.get(args.what.name).ok_or(NfsStat3::NoEnt)?;
    let last = names.last_key_value().map_or(found, |(_, number)| *number);
    let found = if is_wrong { last } else { found };
    w.opaque(&found.to_be_bytes());
    state.post(found, w);
    w.u32(0);
    Ok(())
}

fn access(state: &mut State, r: &mut Reader<'_>, w: &mut Writer<'_>) -> Answer {
    let handle = args::<NfsFh3<'_>>(r)?;
    let (number, _) = state.object(handle)?;
    let bits = r.u32().map_err(|_| NfsStat3::Inval)?;
    state.post(number, w);
    w.u32(bits);
    Ok(())
}

fn readlink(state: &mut State, r: &mut Reader<'_>, w: &mut Writer<'_>) -> Answer {
    let is_damaged = state.fault == Fault::DamagedData;
    let (number, object) = state.object(args(r)?)?;
    let Kind::Symlink(target) = &object.kind else { return Err(NfsStat3::Inval) };
    let mut target = target.clone();
    if let (true, Some(byte)) = (is_damaged, target.last_mut()) {
        *byte ^= 1;
    }
    state.post(number, w);
    w.opaque(&target);
    Ok(())
}

fn read(state: &mut State, r: &mut Reader<'_>, w: &mut Writer<'_>) -> Answer {
    let args: Read3Args<'_> = args(r)?;
    let is_damaged = state.fault == Fault::DamagedData;
    let offset = if state.fault == Fault::OtherPlace { 0 } else { args.offset };
    let (number, object) = state.object(args.file)?;
    let Kind::File(data) = &object.kind else { return Err(NfsStat3::Inval) };
    let start = (offset as usize).min(data.len());
    let end = (start + args.count as usize).min(data.len());
    let mut piece = data[start..end].to_vec();
    let is_end = end == data.len();
    if let (true, Some(byte)) = (is_damaged, piece.last_mut()) {
        *byte ^= 1;
    }
    state.post(number, w);
    w.u32(piece.len() as u32);
    w.bool(is_end);
    w.opaque(&piece);
    Ok(())
}

fn write(state: &mut State, r: &mut Reader<'_>, w: &mut Writer<'_>) -> Answer {
    let args: Write3Args<'_> = args(r)?;
    let (committed, verifier) = state.write(args.file, args.offset, args.data, args.stable)?;
    w.u32(0);
    w.u32(0);
    w.u32(args.data.len() as u32);
    w.u32(committed as u32);
    w.fixed_opaque(&verifier);
    Ok(())
}

fn create(state: &mut State, r: &mut Reader<'_>, w: &mut Writer<'_>) -> Answer {
    let args: Create3Args<'_> = args(r)?;
    let made = state.make(args.where_.dir, args.where_.name, Kind::File(Vec::new()));
    let number = match (made, &args.how) {
        (Err(NfsStat3::Exist), CreateHow3::Unchecked(_)) => {
            state.names(args.where_.dir)?[args.where_.name]
        }
        (made, _) => made?,
    };
    if let CreateHow3::Unchecked(set) | CreateHow3::Guarded(set) = &args.how {
        state.set(number, set);
    }
    state.made(number, w);
    Ok(())
}

fn mkdir(state: &mut State, r: &mut Reader<'_>, w: &mut Writer<'_>) -> Answer {
    let args: Mkdir3Args<'_> = args(r)?;
    let kind = Kind::Directory(BTreeMap::new());
    let number = state.make(args.where_.dir, args.where_.name, kind)?;
    state.made(number, w);
    Ok(())
}

fn symlink(state: &mut State, r: &mut Reader<'_>, w: &mut Writer<'_>) -> Answer {
    let args: Symlink3Args<'_> = args(r)?;
    let kind = Kind::Symlink(args.symlink.symlink_data.to_vec());
    let number = state.make(args.where_.dir, args.where_.name, kind)?;
    state.made(number, w);
    Ok(())
}

fn mknod(state: &mut State, r: &mut Reader<'_>, w: &mut Writer<'_>) -> Answer {
    let args: Mknod3Args<'_> = args(r)?;
    let number = state.make(args.where_.dir, args.where_.name, Kind::Fifo)?;
    state.made(number, w);
    Ok(())
}

/// REMOVE and RMDIR.
fn remove(state: &mut State, r: &mut Reader<'_>, w: &mut Writer<'_>, is_directory: bool) -> Answer {
    let args: Remove3Args<'_> = args(r)?;
    state.remove(args.object.dir, args.object.name, is_directory)?;
    w.zeros(8);
    Ok(())
}

fn rename(state: &mut State, r: &mut Reader<'_>, w: &mut Writer<'_>) -> Answer {
    let args: Rename3Args<'_> = args(r)?;
    state.rename((args.from.dir, args.from.name), (args.to.dir, args.to.name))?;
    w.zeros(16);
    Ok(())
}

fn link(state: &mut State, r: &mut Reader<'_>, w: &mut Writer<'_>) -> Answer {
    let args: Link3Args<'_> = args(r)?;
    let number = state.link(args.file, args.link.dir, args.link.name)?;
    state.post(number, w);
    w.zeros(8);
    Ok(())
}

/// FSSTAT, FSINFO and PATHCONF.
fn about_file_system(
    state: &mut State,
    procedure: u32,
    r: &mut Reader<'_>,
    w: &mut Writer<'_>,
) -> Answer {
    let (number, _) = state.object(args(r)?)?;
    state.post(number, w);
    match procedure {
        18 => w.zeros(52),
        19 => {
            // Preferences and limits of READ, WRITE and READDIR, then the rest.
            for _ in 0..7 {
                w.u32(TRANSFER_BYTES_MAX);
            }
            w.zeros(20);
        }
        _ => w.zeros(24),
    }
    Ok(())
}

fn commit(state: &mut State, r: &mut Reader<'_>, w: &mut Writer<'_>) -> Answer {
    let args: Commit3Args<'_> = args(r)?;
    let verifier = state.commit(args.file)?;
    w.zeros(8);
    w.fixed_opaque(&verifier);
    Ok(())
}
