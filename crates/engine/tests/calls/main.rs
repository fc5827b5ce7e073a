//! Unit ring: whole RPC calls against an engine over the in-memory model.
#![allow(clippy::unwrap_used)]

mod async_callers;
#[path = "../common/asynchronous.rs"]
mod asynchronous;
mod compressed;
mod late;
mod recovery;
mod suspended;

use std::net::SocketAddr;
use std::sync::Arc;

use steadfast_engine::{
    Awaited, CallHost, Complaint, Engine, EngineConfig, Export, ExportTable, MountRefusal, Peer,
    ReplyBuffer, Transport, Transports, Verdict,
};
use steadfast_shares::{ClientPattern, ClientRule, Rights, Share, ShareId, Squash};
use steadfast_vfs::FsError;
use steadfast_vfs::model::{FlushLog, ModelFs};
use steadfast_wire::nfsacl::{Getacl3Res, Setacl3Res};
use steadfast_xdr::{Decode, Encode, Reader, Writer};

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
const NFSACL: u32 = 100_227;
const RPCBIND: u32 = 100_000;

struct Host;

impl CallHost for Host {
    fn may_block(&mut self) {}
    fn will_block(&mut self) {}
}

struct Bench {
    engine: Engine,
    flushes: Arc<FlushLog>,
    peer: Peer,
    next_xid: u32,
    uid: u32,
}

fn share(id: u64, path: &str, rights: Rights) -> Arc<Share> {
    let pattern = ClientPattern::Network { network: "127.0.0.0".parse().unwrap(), prefix_bits: 8 };
    let rule = ClientRule { pattern, grants: Arc::new([rights]) };
    Arc::new(Share {
        id: ShareId(id),
        path: path.into(),
        elsewhere: None,
        crosses_mounts: false,
        required_mounts: Arc::default(),
        size: None,
        without_log: false,
        is_draining: false,
        rules: Arc::new(vec![rule].into()),
    })
}

impl Bench {
    /// Further calls are those of another peer.
    fn come_from(&mut self, address: SocketAddr) {
        self.peer = Peer::new(address, self.peer.local, self.peer.transport);
    }

    fn new() -> Self {
        let no_squash = Rights { squash: Squash::None, ..Rights::default() };
        let read_only = Rights { is_read_only: true, ..no_squash.clone() };
        let storage = Arc::new(ModelFs::new(1, 0o777));
        let flushes = storage.flush_log();
        let exports = ExportTable::new(vec![
            Export { share: share(1, "/a", no_squash), storage: storage.clone() },
            Export { share: share(2, "/ro", read_only), storage },
            Export {
                share: share(3, "/squashed", Rights::default()),
                storage: Arc::new(ModelFs::new(3, 0o755)),
            },
        ]);
        let config = EngineConfig {
            instance: 1,
            nfs2: false,
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
            flushes,
            peer: Peer::new(
                "127.0.0.1:700".parse().unwrap(),
                "127.0.0.1:2049".parse().unwrap(),
                Transport::Tcp,
            ),
            next_xid: 1,
            uid: 0,
        }
    }

    fn message(&mut self, program: u32, version: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
        self.next_xid += 1;
        let mut message = Vec::new();
        let mut w = Writer::new(&mut message);
        for word in [self.next_xid, 0, 2, program, version, procedure, 1] {
            w.u32(word);
        }
        let mut body = Vec::new();
        let mut cred = Writer::new(&mut body);
        cred.u32(0);
        cred.opaque(b"client");
        for word in [self.uid, self.uid, 0] {
            cred.u32(word);
        }
        w.opaque(&body);
        w.u32(0);
        w.u32(0);
        message.extend_from_slice(arguments);
        message
    }

    /// Sends a message and settles what was parked; the whole reply, or `None`.
    fn exchange(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        let mut reply = ReplyBuffer::default();
        match self.engine.call(&mut Host, &self.peer, 0, message, &mut reply) {
            Verdict::Replied => Some(reply.bytes),
            Verdict::Parked(call) => {
                assert!(reply.bytes.is_empty(), "a parked reply must not be in the batch");
                let Awaited::Flush(flush) = &call.awaited else { panic!("there is no log") };
                let outcome =
                    flush.targets.iter().try_for_each(|(target, what)| target.flush(*what));
                let mut bytes = Vec::new();
                if outcome.is_err() {
                    self.engine.flush_failed();
                }
                self.engine.settle(call, outcome, 0, &mut bytes);
                Some(bytes)
            }
            Verdict::Silent | Verdict::Suspended(_) | Verdict::HangUp(_) => None,
        }
    }

    /// The results of an accepted and successful RPC call.
    fn call(&mut self, program: u32, version: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
        let message = self.message(program, version, procedure, arguments);
        let reply = self.exchange(&message).unwrap();
        assert_eq!(reply[..4], self.next_xid.to_be_bytes());
        assert_eq!(reply[4..24], [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        reply[24..].to_vec()
    }

    fn nfs(&mut self, procedure: u32, arguments: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        self.call(NFS, 3, procedure, &xdr(arguments))
    }

    fn mount(&mut self, path: &str) -> Result<Vec<u8>, u32> {
        let results = self.call(MOUNT, 3, 1, &xdr(|w| w.opaque(path.as_bytes())));
        let mut r = Reader::new(&results);
        match r.u32().unwrap() {
            0 => Ok(r.opaque(64).unwrap().to_vec()),
            status => Err(status),
        }
    }

    fn create(&mut self, dir: &[u8], name: &[u8]) -> Result<Vec<u8>, u32> {
        let results = self.nfs(8, |w| {
            w.opaque(dir);
            w.opaque(name);
            w.u32(1);
            w.zeros(24);
        });
        let mut r = Reader::new(&results);
        match r.u32().unwrap() {
            0 => {
                assert!(r.bool().unwrap());
                Ok(r.opaque(64).unwrap().to_vec())
            }
            status => Err(status),
        }
    }

    fn write(&mut self, file: &[u8], stable: u32, data: &[u8]) -> Vec<u8> {
        self.nfs(7, |w| {
            w.opaque(file);
            w.u64(0);
            w.u32(data.len() as u32);
            w.u32(stable);
            w.opaque(data);
        })
    }
}

fn xdr(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut Writer::new(&mut bytes));
    bytes
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn status(results: &[u8]) -> u32 {
    Reader::new(results).u32().unwrap()
}

#[test]
fn a_file_is_made_written_and_read() {
    let mut bench = Bench::new();
    let root = bench.mount("/a").unwrap();
    let file = bench.create(&root, b"f").unwrap();
    let written = bench.write(&file, 2, b"hello");
    assert_eq!(status(&written), 0);
    let read = bench.nfs(6, |w| {
        w.opaque(&file);
        w.u64(1);
        w.u32(100);
    });
    let mut r = Reader::new(&read);
    assert_eq!(r.u32().unwrap(), 0);
    assert!(r.bool().unwrap());
    r.fixed_opaque(84).unwrap();
    assert_eq!(r.u32().unwrap(), 4);
    assert!(r.bool().unwrap(), "the read reached the end");
    assert_eq!(r.opaque(100).unwrap(), b"ello");
    assert!(r.is_empty());
}

#[test]
fn every_change_is_flushed_before_its_reply_and_an_unstable_write_is_not() {
    let mut bench = Bench::new();
    let root = bench.mount("/a").unwrap();
    let file = bench.create(&root, b"f").unwrap();
    assert_eq!(bench.flushes.flushes(), 2, "file and directory");
    bench.write(&file, 0, b"x");
    assert_eq!(bench.flushes.flushes(), 2);
    bench.write(&file, 1, b"x");
    assert_eq!(bench.flushes.flushes(), 3);
    assert_eq!(
        status(&bench.nfs(21, |w| {
            w.opaque(&file);
            w.u64(0);
            w.u32(0);
        })),
        0
    );
    assert_eq!(bench.flushes.flushes(), 4);
}

#[test]
fn a_failed_flush_fails_the_call_and_changes_the_verifier() {
    let mut bench = Bench::new();
    let root = bench.mount("/a").unwrap();
    let file = bench.create(&root, b"f").unwrap();
    let before = bench.write(&file, 0, b"x");
    bench.flushes.set_failing(true);
    let failed = bench.write(&file, 2, b"x");
    // NFS3ERR_IO and absent attributes.
    assert_eq!(
        failed,
        xdr(|w| {
            w.u32(5);
            w.u32(0);
            w.u32(0);
        })
    );
    assert_eq!(bench.create(&root, b"g"), Err(5));
    bench.flushes.set_failing(false);
    let after = bench.write(&file, 0, b"x");
    assert_ne!(before.last_chunk::<8>(), after.last_chunk::<8>());
    let committed = bench.nfs(21, |w| {
        w.opaque(&file);
        w.u64(0);
        w.u32(0);
    });
    assert_eq!(committed.last_chunk::<8>(), after.last_chunk::<8>());
}

#[test]
fn a_commit_tells_the_verifier_of_its_end_not_of_its_beginning() {
    let mut bench = Bench::new();
    let root = bench.mount("/a").unwrap();
    let file = bench.create(&root, b"f").unwrap();
    let commit = bench.message(
        NFS,
        3,
        21,
        &xdr(|w| {
            w.opaque(&file);
            w.u64(0);
            w.u32(0);
        }),
    );
    let stable = bench.message(
        NFS,
        3,
        7,
        &xdr(|w| {
            w.opaque(&file);
            w.u64(0);
            w.u32(1);
            w.u32(2);
            w.opaque(b"x");
        }),
    );
    let mut reply = ReplyBuffer::default();
    let Verdict::Parked(commit) = bench.engine.call(&mut Host, &bench.peer, 0, &commit, &mut reply)
    else {
        panic!("COMMIT must wait");
    };
    let Verdict::Parked(stable) = bench.engine.call(&mut Host, &bench.peer, 0, &stable, &mut reply)
    else {
        panic!("a stable WRITE must wait");
    };
    let (mut failed, mut committed) = (Vec::new(), Vec::new());
    bench.engine.flush_failed();
    bench.engine.settle(stable, Err(FsError::Io), 0, &mut failed);
    bench.engine.settle(commit, Ok(()), 0, &mut committed);
    let now = bench.write(&file, 0, b"x");
    assert_eq!(committed.last_chunk::<8>(), now.last_chunk::<8>());
}

#[test]
fn a_change_that_was_made_is_never_told_to_come_again() {
    let mut bench = Bench::new();
    let root = bench.mount("/a").unwrap();
    let make = bench.message(
        NFS,
        3,
        9,
        &xdr(|w| {
            w.opaque(&root);
            w.opaque(b"d");
            w.zeros(24);
        }),
    );
    let mut reply = ReplyBuffer::default();
    let Verdict::Parked(made) = bench.engine.call(&mut Host, &bench.peer, 0, &make, &mut reply)
    else {
        panic!("MKDIR must wait");
    };
    let mut failed = Vec::new();
    bench.engine.settle(made, Err(FsError::TryLater), 0, &mut failed);
    assert_eq!(status(&failed[24..]), 5, "an I/O error, not JUKEBOX");
}

#[test]
fn only_directories_have_a_dot_and_only_files_and_directories_are_mounted() {
    let mut bench = Bench::new();
    let root = bench.mount("/a").unwrap();
    let file = bench.create(&root, b"f").unwrap();
    let dot = |w: &mut Writer<'_>, dir: &[u8]| {
        w.opaque(dir);
        w.opaque(b".");
    };
    assert_eq!(status(&bench.nfs(3, |w| dot(w, &root))), 0);
    assert_eq!(status(&bench.nfs(3, |w| dot(w, &file))), 20);
    let linked = bench.nfs(10, |w| {
        w.opaque(&root);
        w.opaque(b"link");
        w.zeros(24);
        w.opaque(b"f");
    });
    assert_eq!(status(&linked), 0);
    let fifo = bench.nfs(11, |w| {
        w.opaque(&root);
        w.opaque(b"fifo");
        w.u32(7);
        w.zeros(24);
    });
    assert_eq!(status(&fifo), 0);
    assert_eq!(bench.mount("/a/f").unwrap(), file);
    assert_eq!(bench.mount("/a/link").unwrap(), file);
    assert_eq!(bench.mount("/a/fifo").unwrap_err(), 20);
    assert_eq!(bench.mount("/a/link/x").unwrap_err(), 20);
}

#[test]
fn a_context_of_rpcsec_gss_is_refused_though_null_needs_no_identity() {
    let mut bench = Bench::new();
    let null = |bench: &mut Bench, flavour| {
        bench.next_xid += 1;
        let message = words(&[bench.next_xid, 0, 2, NFS, 3, 0, flavour, 0, 0, 0]);
        bench.exchange(&message).unwrap()[4..].to_vec()
    };
    assert_eq!(null(&mut bench, 300), words(&[1, 0, 0, 0, 0]));
    // Denied for its credentials: AUTH_ERROR.
    assert_eq!(null(&mut bench, 6)[..12], words(&[1, 1, 1]));
}

#[test]
fn the_list_of_mounts_is_bounded_in_bytes() {
    let mut bench = Bench::new();
    let mut dir = bench.mount("/a").unwrap();
    let mut path = "/a".to_owned();
    // Long paths: each call mounts one level deeper, and from many addresses.
    for _ in 0..3 {
        let name = "n".repeat(200);
        let made = bench.nfs(9, |w| {
            w.opaque(&dir);
            w.opaque(name.as_bytes());
            w.zeros(24);
        });
        let mut r = Reader::new(&made);
        assert_eq!((r.u32().unwrap(), r.bool().unwrap()), (0, true));
        dir = r.opaque(64).unwrap().to_vec();
        path = format!("{path}/{name}");
    }
    for host in 0..2000_u16 {
        let [high, low] = host.to_be_bytes();
        bench.come_from(format!("127.1.{high}.{low}:700").parse().unwrap());
        bench.mount(&path).unwrap();
    }
    let dumped = bench.call(MOUNT, 3, 2, &[]);
    assert!((100_000..300_000).contains(&dumped.len()), "{} bytes", dumped.len());
}

#[test]
fn a_repeated_change_is_executed_once_and_answered_alike() {
    let mut bench = Bench::new();
    let root = bench.mount("/a").unwrap();
    bench.create(&root, b"f").unwrap();
    let remove = bench.message(
        NFS,
        3,
        12,
        &xdr(|w| {
            w.opaque(&root);
            w.opaque(b"f");
        }),
    );
    let first = bench.exchange(&remove).unwrap();
    assert_eq!(status(&first[24..]), 0);
    // From another port, as after a reconnect.
    bench.come_from("127.0.0.1:701".parse().unwrap());
    assert_eq!(bench.exchange(&remove).unwrap(), first);
    // From another client it is another call.
    bench.come_from("127.0.0.2:700".parse().unwrap());
    assert_eq!(status(&bench.exchange(&remove).unwrap()[24..]), 2);
}

#[test]
fn a_duplicate_of_a_parked_call_gets_no_reply() {
    let mut bench = Bench::new();
    let root = bench.mount("/a").unwrap();
    let make = bench.message(
        NFS,
        3,
        9,
        &xdr(|w| {
            w.opaque(&root);
            w.opaque(b"d");
            w.zeros(24);
        }),
    );
    let mut reply = ReplyBuffer::default();
    let verdict = bench.engine.call(&mut Host, &bench.peer, 0, &make, &mut reply);
    let Verdict::Parked(parked) = verdict else { panic!("MKDIR must wait") };
    let second = bench.engine.call(&mut Host, &bench.peer, 0, &make, &mut reply);
    assert!(matches!(second, Verdict::Silent));
    let mut settled = Vec::new();
    bench.engine.settle(parked, Ok(()), 0, &mut settled);
    let Verdict::Replied = bench.engine.call(&mut Host, &bench.peer, 0, &make, &mut reply) else {
        panic!("a finished call is answered again");
    };
    assert_eq!(reply.bytes, settled);
}

#[test]
fn a_read_only_share_refuses_changes_and_access_says_so() {
    let mut bench = Bench::new();
    let root = bench.mount("/ro").unwrap();
    assert_eq!(bench.create(&root, b"f"), Err(30));
    let access = bench.nfs(4, |w| {
        w.opaque(&root);
        w.u32(0x3f);
    });
    assert_eq!(access.last_chunk::<4>(), Some(&0x03_u32.to_be_bytes()));
}

#[test]
fn squashing_applies_and_the_share_is_the_border() {
    let mut bench = Bench::new();
    let squashed = bench.mount("/squashed").unwrap();
    assert_eq!(bench.create(&squashed, b"f"), Err(13), "root is nobody, the root is 0755");
    let root = bench.mount("/a").unwrap();
    bench.create(&root, b"f").unwrap();
    let rename = bench.nfs(14, |w| {
        w.opaque(&root);
        w.opaque(b"f");
        w.opaque(&squashed);
        w.opaque(b"f");
    });
    assert_eq!(status(&rename), 18, "NFS3ERR_XDEV");
}

#[test]
fn handles_are_refused_when_forged_truncated_or_of_a_share_that_is_gone() {
    let mut bench = Bench::new();
    let root = bench.mount("/a").unwrap();
    let mut forged = root.clone();
    forged[12] ^= 1;
    for bad in [&forged[..], &root[..root.len() - 1], b"", &[0; 64]] {
        assert_eq!(status(&bench.nfs(1, |w| w.opaque(bad))), 10001, "{bad:?}");
    }
    bench.engine.set_exports(ExportTable::new(Vec::new()));
    assert_eq!(status(&bench.nfs(1, |w| w.opaque(&root))), 70);
}

#[test]
fn clients_outside_the_rules_can_neither_mount_nor_use_a_handle() {
    let mut bench = Bench::new();
    let root = bench.mount("/a").unwrap();
    bench.come_from(SocketAddr::new("10.0.0.1".parse().unwrap(), 700));
    assert_eq!(bench.mount("/a"), Err(13));
    assert_eq!(bench.mount("/nowhere"), Err(2));
    assert_eq!(status(&bench.nfs(1, |w| w.opaque(&root))), 13);
}

#[test]
fn a_listing_pages_without_losing_or_repeating_names() {
    let mut bench = Bench::new();
    let root = bench.mount("/a").unwrap();
    for number in 0..300 {
        bench.create(&root, format!("file-{number:04}").as_bytes()).unwrap();
    }
    for (procedure, budget) in [(16, 512_u32), (17, 1024)] {
        let mut names = Vec::new();
        let mut cookie = 0;
        loop {
            let listed = bench.nfs(procedure, |w| {
                w.opaque(&root);
                w.u64(cookie);
                w.u64(0);
                w.u32(budget);
                if procedure == 17 {
                    w.u32(budget);
                }
            });
            assert!(listed.len() <= 4 + budget as usize, "{} bytes", listed.len());
            let mut r = Reader::new(&listed);
            assert_eq!(r.u32().unwrap(), 0);
            assert!(r.bool().unwrap());
            r.fixed_opaque(84 + 8).unwrap();
            while r.bool().unwrap() {
                r.u64().unwrap();
                names.push(r.opaque(255).unwrap().to_vec());
                cookie = r.u64().unwrap();
                if procedure == 17 {
                    assert!(r.bool().unwrap());
                    r.fixed_opaque(84).unwrap();
                    assert!(r.bool().unwrap());
                    r.opaque(64).unwrap();
                }
            }
            if r.bool().unwrap() {
                assert!(r.is_empty());
                break;
            }
        }
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 302);
    }
    let too_small = bench.nfs(16, |w| {
        w.opaque(&root);
        w.u64(0);
        w.u64(0);
        w.u32(100);
    });
    assert_eq!(status(&too_small), 10005);
}

#[test]
fn rpc_errors_are_answered_as_rfc_5531_says() {
    let mut bench = Bench::new();
    let reply =
        |bench: &mut Bench, message: Vec<u8>| bench.exchange(&message).unwrap()[8..].to_vec();

    let unknown = bench.message(99, 1, 0, &[]);
    assert_eq!(reply(&mut bench, unknown), words(&[0, 0, 0, 1]));
    let version = bench.message(NFS, 4, 0, &[]);
    assert_eq!(reply(&mut bench, version), words(&[0, 0, 0, 2, 3, 3]));
    let procedure = bench.message(NFS, 3, 22, &[]);
    assert_eq!(reply(&mut bench, procedure), words(&[0, 0, 0, 3]));
    let garbage = bench.message(NFS, 3, 1, &[0, 0, 0, 200]);
    assert_eq!(reply(&mut bench, garbage), words(&[0, 0, 0, 4]));

    let mut rpc_version = bench.message(NFS, 3, 0, &[]);
    rpc_version[11] = 3;
    assert_eq!(reply(&mut bench, rpc_version), words(&[1, 0, 2, 2]));
    let mut flavour = bench.message(NFS, 3, 1, &[]);
    flavour[27] = 6;
    assert_eq!(reply(&mut bench, flavour), words(&[1, 1, 2]));
    let mut bad_credentials = bench.message(NFS, 3, 1, &[]);
    bad_credentials[39] = 255;
    assert_eq!(reply(&mut bench, bad_credentials), words(&[1, 1, 1]));

    for not_a_call in [&b""[..], &[0; 7], &[0, 0, 0, 1, 0, 0, 0, 1], &[0, 0, 0, 1, 0, 0, 0, 0]] {
        assert!(bench.exchange(not_a_call).is_none());
    }
}

#[test]
fn a_mount_is_told_with_its_share() {
    let mut bench = Bench::new();
    let mut share = |path: &str| {
        let message = bench.message(MOUNT, 3, 1, &xdr(|w| w.opaque(path.as_bytes())));
        let mut reply = ReplyBuffer::default();
        let _verdict = bench.engine.call(&mut Host, &bench.peer, 0, &message, &mut reply);
        reply.subject.share
    };
    let found = share("/a").expect("a share");
    assert_eq!((share("/a/none"), share("/none")), (Some(found), None));
}

#[test]
fn a_mount_that_is_refused_is_complained_of() {
    let mut bench = Bench::new();
    let mut complaint = |path: &str| {
        let message = bench.message(MOUNT, 3, 1, &xdr(|w| w.opaque(path.as_bytes())));
        let mut reply = ReplyBuffer::default();
        let verdict = bench.engine.call(&mut Host, &bench.peer, 0, &message, &mut reply);
        assert!(matches!(verdict, Verdict::Replied));
        reply.complaint
    };
    let refused = |path: &str, why| Some(Complaint::MountRefused { path: path.to_owned(), why });
    assert_eq!(complaint("/none"), refused("/none", MountRefusal::NoShare));
    let why = MountRefusal::NoDirectory(FsError::NotFound);
    assert_eq!(complaint("/a/none"), refused("/a/none", why));
    let long = format!("/{}", "x".repeat(1000));
    let Some(Complaint::MountRefused { path, .. }) = complaint(&long) else { panic!("refused") };
    assert_eq!(path.len(), 256, "a client does not fill the log");
    assert_eq!(complaint("/a"), None);
}

#[test]
fn garbage_is_complained_of_with_its_procedure() {
    let mut bench = Bench::new();
    let message = bench.message(NFS, 3, 7, &[1]);
    let mut reply = ReplyBuffer::default();
    let verdict = bench.engine.call(&mut Host, &bench.peer, 0, &message, &mut reply);
    assert!(matches!(verdict, Verdict::Replied));
    let expected = Complaint::GarbageArguments { program: NFS, operation: "WRITE" };
    assert_eq!(reply.complaint, Some(expected));
    // A garbled changing call is not remembered as one in progress.
    assert_eq!(bench.engine.statistics().reply_cache.in_progress, 0);
}

#[test]
fn names_that_cannot_be_are_refused_with_the_right_status() {
    let mut bench = Bench::new();
    let root = bench.mount("/a").unwrap();
    let long = [b'x'; 256];
    for (name, expected) in
        [(&b"a/b"[..], 13), (b"a\0b", 13), (b"", 13), (b".", 17), (b"..", 17), (&long, 63)]
    {
        assert_eq!(bench.create(&root, name), Err(expected), "{name:?}");
    }
    let rmdir = |bench: &mut Bench, name: &[u8]| {
        status(&bench.nfs(13, |w| {
            w.opaque(&root);
            w.opaque(name);
        }))
    };
    assert_eq!(rmdir(&mut bench, b"."), 22);
    assert_eq!(rmdir(&mut bench, b".."), 17);
}

#[test]
fn acls_are_kept_and_told_with_a_mask() {
    let mut bench = Bench::new();
    let root = bench.mount("/a").unwrap();
    let file = bench.create(&root, b"f").unwrap();
    let entries = [(1, 0, 6), (2, 1000, 4), (4, 0, 4), (0x10, 0, 4), (0x20, 0, 0)];
    let set = xdr(|w| {
        w.opaque(&file);
        w.u32(1);
        w.u32(5);
        w.u32(5);
        for (kind, id, permissions) in entries {
            w.u32(kind);
            w.u32(id);
            w.u32(permissions);
        }
        w.u32(0);
        w.u32(0);
    });
    assert_eq!(status(&bench.call(NFSACL, 3, 2, &set)), 0);
    let told = bench.call(
        NFSACL,
        3,
        1,
        &xdr(|w| {
            w.opaque(&file);
            w.u32(0xf);
        }),
    );
    let mut r = Reader::new(&told);
    assert_eq!(r.u32().unwrap(), 0);
    assert!(r.bool().unwrap());
    r.fixed_opaque(84).unwrap();
    assert_eq!((r.u32().unwrap(), r.u32().unwrap(), r.u32().unwrap()), (0xf, 5, 5));
    for entry in entries {
        assert_eq!((r.u32().unwrap(), r.u32().unwrap(), r.u32().unwrap()), entry);
    }
    assert_eq!((r.u32().unwrap(), r.u32().unwrap()), (0, 0));
    assert!(r.is_empty());
}

/// Asserts that a result is one of the type, and nothing else.
#[track_caller]
fn is_result<'a, T: Decode<'a> + Encode>(result: &'a [u8]) {
    let mut r = Reader::new(result);
    let decoded = T::decode(&mut r).unwrap();
    assert!(r.is_empty());
    assert_eq!(xdr(|w| decoded.encode(w)), result);
}

#[test]
fn results_of_nfsacl_are_as_the_wire_has_them() {
    let mut bench = Bench::new();
    let root = bench.mount("/a").unwrap();
    for (object, is_well) in [(root.as_slice(), true), (b"none".as_slice(), false)] {
        for mask in 0..=0x10 {
            let arguments = xdr(|w| {
                w.opaque(object);
                w.u32(mask);
            });
            let got = bench.call(NFSACL, 3, 1, &arguments);
            assert_eq!(status(&got) == 0, is_well && mask <= 0xf, "{mask:#x}");
            is_result::<Getacl3Res>(&got);
        }
        // No list, and an access list without entries, which none may be.
        for mask in [0, 1] {
            let arguments = xdr(|w| {
                w.opaque(object);
                w.u32(mask);
                w.fixed_opaque(&[0; 16]);
            });
            let set = bench.call(NFSACL, 3, 2, &arguments);
            assert!(is_well || status(&set) != 0);
            is_result::<Setacl3Res>(&set);
        }
    }
}

#[test]
fn rpcbind_tells_where_everything_is_and_registers_nobody() {
    let mut bench = Bench::new();
    let port = |bench: &mut Bench, program: u32, protocol: u32| {
        let mapping = words(&[program, 3, protocol, 0]);
        status(&bench.call(RPCBIND, 2, 3, &mapping))
    };
    assert_eq!(port(&mut bench, NFS, 6), 2049);
    assert_eq!(port(&mut bench, MOUNT, 17), 2049);
    assert_eq!(port(&mut bench, 12345, 6), 0);
    let getaddr = xdr(|w| {
        w.u32(NFS);
        w.u32(3);
        w.opaque(b"tcp");
        w.opaque(b"");
        w.opaque(b"");
    });
    let address = bench.call(RPCBIND, 4, 3, &getaddr);
    assert_eq!(Reader::new(&address).opaque(100).unwrap(), b"127.0.0.1.8.1");
    let set = xdr(|w| [12345, 3, 6, 999].iter().for_each(|word| w.u32(*word)));
    assert_eq!(status(&bench.call(RPCBIND, 2, 1, &set)), 0);
    assert_eq!(port(&mut bench, 12345, 6), 0);
}

#[test]
fn mounts_are_listed_until_they_are_taken_back() {
    let mut bench = Bench::new();
    bench.mount("/a").unwrap();
    bench.mount("/ro").unwrap();
    let mounted = |bench: &mut Bench| {
        let dump = bench.call(MOUNT, 3, 2, &[]);
        let mut r = Reader::new(&dump);
        let mut paths = Vec::new();
        while r.bool().unwrap() {
            assert_eq!(r.opaque(255).unwrap(), b"127.0.0.1");
            paths.push(String::from_utf8(r.opaque(1024).unwrap().to_vec()).unwrap());
        }
        paths
    };
    assert_eq!(mounted(&mut bench), ["/a", "/ro"]);
    bench.call(MOUNT, 3, 3, &xdr(|w| w.opaque(b"/a")));
    assert_eq!(mounted(&mut bench), ["/ro"]);
    bench.call(MOUNT, 3, 4, &[]);
    assert!(mounted(&mut bench).is_empty());
    assert_eq!(bench.mount("/a/../ro"), Err(22));
}
