//! An engine that serves NFSv2, and a small client of it.

use std::sync::Arc;

use steadfast_engine::{
    CallHost, Complaint, Engine, EngineConfig, Export, ExportTable, Peer, ReplyBuffer, Transport,
    Transports, Verdict,
};
use steadfast_shares::{ClientPattern, ClientRule, Rights, Share, ShareId, Squash};
use steadfast_vfs::model::ModelFs;
use steadfast_wire::mount::{DirPath, FhStatus};
use steadfast_wire::nfs2::{
    Create2Args, DirOpArgs2, NfsFh2, NfsTime2, Readdir2Args, Sattr2, Setattr2Args, UNSET,
};
use steadfast_xdr::{Decode, Encode, Reader, Writer};

pub(crate) const NFS: u32 = 100_003;
pub(crate) const MOUNT: u32 = 100_005;

pub(crate) type Handle = [u8; 32];

/// Name, number and cookie of an entry of READDIR.
pub(crate) type Listed = (Vec<u8>, u32, u32);

/// Nothing is to be set.
pub(crate) const UNCHANGED: Sattr2 = {
    let unset = NfsTime2 { seconds: UNSET, useconds: UNSET };
    Sattr2 { mode: UNSET, uid: UNSET, gid: UNSET, size: UNSET, atime: unset, mtime: unset }
};

pub(crate) struct Host;

impl CallHost for Host {
    fn may_block(&mut self) {}
    fn will_block(&mut self) {}
}

pub(crate) fn xdr(value: &impl Encode) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.encode(&mut Writer::new(&mut bytes));
    bytes
}

/// Attributes as a client reads them (`fattr`, RFC 1094 §2.3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fattr {
    pub(crate) kind: u32,
    pub(crate) mode: u32,
    pub(crate) links: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u32,
    pub(crate) rdev: u32,
    pub(crate) fileid: u32,
    pub(crate) atime: (u32, u32),
    pub(crate) mtime: (u32, u32),
}

impl Fattr {
    pub(crate) fn read(r: &mut Reader<'_>) -> Self {
        let words: Vec<u32> = (0..17).map(|_| r.u32().unwrap()).collect();
        Self {
            kind: words[0],
            mode: words[1],
            links: words[2],
            uid: words[3],
            gid: words[4],
            size: words[5],
            rdev: words[7],
            fileid: words[10],
            atime: (words[11], words[12]),
            mtime: (words[13], words[14]),
        }
    }
}

fn share(id: u64, path: &str, rights: Rights) -> Arc<Share> {
    Arc::new(Share {
        id: ShareId(id),
        path: path.into(),
        elsewhere: None,
        crosses_mounts: false,
        required_mounts: Arc::default(),
        size: None,
        without_log: false,
        is_draining: false,
        rules: Arc::new(
            vec![ClientRule { pattern: ClientPattern::Any, grants: Arc::new([rights]) }].into(),
        ),
    })
}

pub(crate) struct Bench {
    pub(crate) engine: Engine,
    pub(crate) peer: Peer,
    next_xid: u32,
    pub(crate) uid: u32,
    pub(crate) complaint: Option<Complaint>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let rights = Rights { squash: Squash::None, ..Rights::default() };
        let read_only = Rights { is_read_only: true, ..rights.clone() };
        let storage = Arc::new(ModelFs::new(1, 0o777));
        let of = |id, path, rights, storage| Export { share: share(id, path, rights), storage };
        let exports = ExportTable::new(vec![
            of(1, "/a", rights.clone(), storage.clone()),
            of(2, "/ro", read_only, storage),
            of(3, "/squashed", Rights::default(), Arc::new(ModelFs::new(3, 0o777))),
            of(4, "/fifteen", rights.clone(), Arc::new(ModelFs::new(4, 0o777).with_handles_of(15))),
            of(5, "/long", rights, Arc::new(ModelFs::new(5, 0o777).with_handles_of(16))),
        ]);
        let config = EngineConfig {
            instance: 1,
            nfs2: true,
            delegations: steadfast_engine::Delegations::None,
            local_guard: steadfast_engine::LocalGuard::None,
            idmapping: steadfast_engine::IdMapping::default(),
            nfs4: false,
            handle_key: [9; 16],
            write_verifier: 77,
            transfer_bytes_max: 1 << 20,
            reply_cache_bytes_max: 1 << 20,
            reply_cache_history_ms: 65_000,
            nfs_port: 2049,
            transports: Transports { udp: true, ipv4: true, ipv6: true },
        };
        Self {
            engine: Engine::new(config, exports),
            peer: Peer::new(
                "127.0.0.1:700".parse().unwrap(),
                "127.0.0.1:2049".parse().unwrap(),
                Transport::Udp,
            ),
            next_xid: 1,
            uid: 0,
            complaint: None,
        }
    }

    pub(crate) fn message(
        &mut self,
        (program, version, procedure): (u32, u32, u32),
        arguments: &[u8],
    ) -> Vec<u8> {
        self.next_xid += 1;
        let mut message = Vec::new();
        let mut w = Writer::new(&mut message);
        for word in [self.next_xid, 0, 2, program, version, procedure, 1, 20] {
            w.u32(word);
        }
        for word in [0, 0, self.uid, self.uid, 0, 0, 0] {
            w.u32(word);
        }
        message.extend_from_slice(arguments);
        message
    }

    /// The result of a message; `None` if there is no reply.
    pub(crate) fn exchange(&mut self, host: &mut dyn CallHost, message: &[u8]) -> Option<Vec<u8>> {
        let mut reply = ReplyBuffer::default();
        let verdict = self.engine.call(host, &self.peer, 0, message, &mut reply);
        self.complaint = reply.complaint.take();
        let bytes = match verdict {
            Verdict::Replied => reply.bytes,
            Verdict::Parked(call) => {
                let mut bytes = Vec::new();
                self.engine.settle(call, Ok(()), 0, &mut bytes);
                bytes
            }
            Verdict::Silent | Verdict::Suspended(_) | Verdict::HangUp(_) => {
                assert!(reply.bytes.is_empty());
                return None;
            }
        };
        assert_eq!(bytes[4..24], [[0, 0, 0, 1], [0; 4], [0; 4], [0; 4], [0; 4]].concat());
        Some(bytes[24..].to_vec())
    }

    pub(crate) fn ask(
        &mut self,
        program: u32,
        version: u32,
        procedure: u32,
        arguments: &[u8],
    ) -> Vec<u8> {
        let message = self.message((program, version, procedure), arguments);
        self.exchange(&mut Host, &message).unwrap()
    }

    /// The result of a procedure of NFSv2.
    pub(crate) fn call(&mut self, procedure: u32, arguments: &[u8]) -> Vec<u8> {
        self.ask(NFS, 2, procedure, arguments)
    }

    pub(crate) fn status(&mut self, procedure: u32, arguments: &impl Encode) -> u32 {
        let result = self.call(procedure, &xdr(arguments));
        let status = u32::from_be_bytes(result[..4].try_into().unwrap());
        assert!(status == 0 || result.len() == 4, "a failure says nothing else");
        status
    }

    pub(crate) fn mount(&mut self, path: &str) -> Handle {
        let result = self.ask(MOUNT, 1, 1, &xdr(&DirPath { path: path.as_bytes() }));
        match FhStatus::decode(&mut Reader::new(&result)).unwrap() {
            FhStatus::Ok(handle) => handle,
            FhStatus::Failed(status) => panic!("{path}: {status}"),
        }
    }

    /// What `attrstat` or `diropres` begins with.
    fn succeeded(result: &[u8]) -> Result<Reader<'_>, u32> {
        let mut r = Reader::new(result);
        match r.u32().unwrap() {
            0 => Ok(r),
            status => Err(status),
        }
    }

    fn attrstat(result: &[u8]) -> Result<Fattr, u32> {
        let mut r = Self::succeeded(result)?;
        let attr = Fattr::read(&mut r);
        assert!(r.is_empty());
        Ok(attr)
    }

    fn diropres(result: &[u8]) -> Result<(Handle, Fattr), u32> {
        let mut r = Self::succeeded(result)?;
        let found = (r.array().unwrap(), Fattr::read(&mut r));
        assert!(r.is_empty());
        Ok(found)
    }

    pub(crate) fn getattr(&mut self, object: &Handle) -> Fattr {
        Self::attrstat(&self.call(1, object)).unwrap()
    }

    pub(crate) fn setattr(&mut self, object: &Handle, set: &Sattr2) -> Result<Fattr, u32> {
        let arguments = Setattr2Args { file: NfsFh2(object), attributes: *set };
        Self::attrstat(&self.call(2, &xdr(&arguments)))
    }

    pub(crate) fn write(&mut self, file: &Handle, offset: u32, data: &[u8]) -> Result<Fattr, u32> {
        let arguments = steadfast_wire::nfs2::Write2Args {
            file: NfsFh2(file),
            beginoffset: 9,
            offset,
            totalcount: 9,
            data,
        };
        Self::attrstat(&self.call(8, &xdr(&arguments)))
    }

    pub(crate) fn read(
        &mut self,
        file: &Handle,
        offset: u32,
        count: u32,
    ) -> Result<(Fattr, Vec<u8>), u32> {
        let arguments =
            steadfast_wire::nfs2::Read2Args { file: NfsFh2(file), offset, count, totalcount: 0 };
        let result = self.call(6, &xdr(&arguments));
        let mut r = Self::succeeded(&result)?;
        let read = (Fattr::read(&mut r), r.opaque(8192).unwrap().to_vec());
        assert!(r.is_empty());
        Ok(read)
    }

    pub(crate) fn lookup(&mut self, dir: &Handle, name: &[u8]) -> Result<(Handle, Fattr), u32> {
        Self::diropres(&self.call(4, &xdr(&DirOpArgs2 { dir: NfsFh2(dir), name })))
    }

    fn make(
        &mut self,
        procedure: u32,
        dir: &Handle,
        name: &[u8],
        set: &Sattr2,
    ) -> Result<(Handle, Fattr), u32> {
        let where_ = DirOpArgs2 { dir: NfsFh2(dir), name };
        let arguments = Create2Args { where_, attributes: *set };
        Self::diropres(&self.call(procedure, &xdr(&arguments)))
    }

    pub(crate) fn create(
        &mut self,
        dir: &Handle,
        name: &[u8],
        set: &Sattr2,
    ) -> Result<(Handle, Fattr), u32> {
        self.make(9, dir, name, set)
    }

    pub(crate) fn mkdir(
        &mut self,
        dir: &Handle,
        name: &[u8],
        set: &Sattr2,
    ) -> Result<(Handle, Fattr), u32> {
        self.make(14, dir, name, set)
    }

    /// Names, numbers and cookies of a page, and whether it is the last.
    pub(crate) fn readdir(
        &mut self,
        dir: &Handle,
        cookie: u32,
        count: u32,
    ) -> Result<(Vec<Listed>, bool), u32> {
        let result = self.call(16, &xdr(&Readdir2Args { dir: NfsFh2(dir), cookie, count }));
        assert!(result.len() <= (count as usize).max(4));
        let mut r = Self::succeeded(&result)?;
        let mut entries = Vec::new();
        while r.bool().unwrap() {
            let fileid = r.u32().unwrap();
            entries.push((r.opaque(255).unwrap().to_vec(), fileid, r.u32().unwrap()));
        }
        let is_end = r.bool().unwrap();
        assert!(r.is_empty());
        Ok((entries, is_end))
    }
}
