//! The parts of an encoded change: little-endian, every length bounded before anything is made of it.

use steadfast_vfs::{Attr, DeviceNumber, FileKind, StorageHandle, Time};

use super::{
    ACL_BYTES_MAX, Before, Made, MadeAcls, NAME_BYTES_MAX, NotAChange, ObjectKey, Ownership, Place,
    Settled, Unlinked,
};

pub(super) struct Out<'a>(pub(super) &'a mut Vec<u8>);

impl Out<'_> {
    pub(super) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn key(&mut self, key: &ObjectKey) {
        let bytes = key.0.as_bytes();
        self.u8(bytes.len() as u8);
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn place(&mut self, place: &Place<'_>) {
        self.key(&place.dir);
        self.bytes(place.name);
    }

    pub(super) fn unlinked(&mut self, unlinked: &Unlinked) {
        self.key(&unlinked.object);
        self.u8(u8::from(unlinked.is_directory));
        self.u8(u8::from(unlinked.is_left));
    }

    pub(super) fn time(&mut self, time: &Time) {
        self.u64(time.seconds as u64);
        self.u32(time.nanoseconds);
    }

    /// What something was before; the format of the change says whether its ownership is told.
    #[inline]
    pub(super) fn before(&mut self, before: &Before) {
        let Before { ctime, mtime, ownership } = before;
        self.time(ctime);
        self.time(mtime);
        if let Some(Ownership { mode, uid, gid }) = ownership {
            for word in [mode, uid, gid] {
                self.u32(*word);
            }
        }
    }

    pub(super) fn settled(&mut self, settled: &Settled) {
        match settled {
            Settled::Data(key) => {
                self.u8(0);
                self.key(key);
            }
            Settled::Object(key) => {
                self.u8(1);
                self.key(key);
            }
            Settled::FileSystem => self.u8(2),
        }
    }

    pub(super) fn made(&mut self, made: &Made) {
        self.u8(u8::from(made.born.is_some()));
        if let Some(born) = &made.born {
            self.time(born);
        }
        self.u8(u8::from(made.acls.is_some()));
        if let Some(MadeAcls { access, default }) = &made.acls {
            self.bytes(access);
            self.bytes(default);
        }
    }

    pub(super) fn attr(&mut self, attr: &Attr) {
        self.u8(kind_number(attr.kind));
        for word in
            [attr.mode, attr.links, attr.uid, attr.gid, attr.device.major, attr.device.minor]
        {
            self.u32(word);
        }
        for number in [attr.size, attr.used, attr.fsid, attr.fileid] {
            self.u64(number);
        }
        for time in [&attr.atime, &attr.mtime, &attr.ctime] {
            self.time(time);
        }
    }
}

pub(super) const KINDS: [FileKind; 7] = [
    FileKind::Regular,
    FileKind::Directory,
    FileKind::BlockDevice,
    FileKind::CharacterDevice,
    FileKind::Symlink,
    FileKind::Socket,
    FileKind::Fifo,
];

fn kind_number(kind: FileKind) -> u8 {
    KINDS.iter().position(|known| *known == kind).unwrap_or(0) as u8
}

pub(super) struct In<'a>(pub(super) &'a [u8]);

impl<'a> In<'a> {
    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8], NotAChange> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(NotAChange)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], NotAChange> {
        self.take(N)?.try_into().map_err(|_| NotAChange)
    }

    pub(super) fn u8(&mut self) -> Result<u8, NotAChange> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, NotAChange> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, NotAChange> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(super) fn settled(&mut self) -> Result<Settled, NotAChange> {
        match self.u8()? {
            0 => Ok(Settled::Data(self.key()?)),
            1 => Ok(Settled::Object(self.key()?)),
            2 => Ok(Settled::FileSystem),
            _ => Err(NotAChange),
        }
    }

    /// An access list, if it was set.
    pub(super) fn acl(&mut self) -> Result<Option<&'a [u8]>, NotAChange> {
        let is_set = self.flag()?;
        let bytes = self.bytes(ACL_BYTES_MAX)?;
        // One form for one meaning.
        if !is_set && !bytes.is_empty() {
            return Err(NotAChange);
        }
        Ok(is_set.then_some(bytes))
    }

    pub(super) fn flag(&mut self) -> Result<bool, NotAChange> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(NotAChange),
        }
    }

    pub(super) fn bytes(&mut self, max: usize) -> Result<&'a [u8], NotAChange> {
        let length = self.u32()? as usize;
        if length > max {
            return Err(NotAChange);
        }
        self.take(length)
    }

    pub(super) fn key(&mut self) -> Result<ObjectKey, NotAChange> {
        let length = self.u8()?;
        StorageHandle::new(self.take(usize::from(length))?).map(ObjectKey).ok_or(NotAChange)
    }

    pub(super) fn place(&mut self) -> Result<Place<'a>, NotAChange> {
        Ok(Place { dir: self.key()?, name: self.bytes(NAME_BYTES_MAX)? })
    }

    pub(super) fn unlinked(&mut self) -> Result<Unlinked, NotAChange> {
        Ok(Unlinked { object: self.key()?, is_directory: self.flag()?, is_left: self.flag()? })
    }

    pub(super) fn time(&mut self) -> Result<Time, NotAChange> {
        Ok(Time { seconds: self.u64()? as i64, nanoseconds: self.u32()? })
    }

    pub(super) fn ownership(&mut self) -> Result<Ownership, NotAChange> {
        Ok(Ownership { mode: self.u32()?, uid: self.u32()?, gid: self.u32()? })
    }

    pub(super) fn made(&mut self) -> Result<Made, NotAChange> {
        let born = if self.flag()? { Some(self.time()?) } else { None };
        let acls = if self.flag()? {
            let access = self.bytes(ACL_BYTES_MAX)?.to_vec();
            Some(MadeAcls { access, default: self.bytes(ACL_BYTES_MAX)?.to_vec() })
        } else {
            None
        };
        Ok(Made { born, acls })
    }

    pub(super) fn attr(&mut self) -> Result<Attr, NotAChange> {
        let kind = *KINDS.get(usize::from(self.u8()?)).ok_or(NotAChange)?;
        let (mode, links, uid, gid) = (self.u32()?, self.u32()?, self.u32()?, self.u32()?);
        let device = DeviceNumber { major: self.u32()?, minor: self.u32()? };
        let (size, used, fsid, fileid) = (self.u64()?, self.u64()?, self.u64()?, self.u64()?);
        let (atime, mtime, ctime) = (self.time()?, self.time()?, self.time()?);
        Ok(Attr {
            kind,
            mode,
            links,
            uid,
            gid,
            size,
            used,
            device,
            fsid,
            fileid,
            atime,
            mtime,
            ctime,
        })
    }
}
