//! The client's readers of results by program, version and procedure, over a server that answers anything
//! with the bytes it is given.

use steadfast_client::rpcbind::{Binding, Mapping};
use steadfast_client::{
    ClientError, CreateHow3, FileHandle, Identity, Listing, MknodData3, NFS3, Nfs3Client,
    Procedure, Reply, ReplyBody, RpcTransport, Settings, StableHow, mount, nfsacl, recovery,
    rpcbind,
};

/// Answers every call with these results.
pub(crate) struct Canned<'a>(pub(crate) &'a [u8]);

impl RpcTransport for Canned<'_> {
    fn exchange(
        &mut self,
        _procedure: Procedure,
        _identity: &Identity,
        _arguments: &[u8],
    ) -> Result<Reply, ClientError> {
        let body = ReplyBody::Success { results_at: 0 };
        Ok(Reply { xid: 0, body, message: self.0.to_vec() })
    }
}

/// Memory that lists in a result take, beside what their elements point to: room for this many
/// elements, each of which takes at least so many bytes on the wire.
pub(crate) type Room = Vec<(usize, usize)>;

fn listing(listing: &Listing, entry_bytes: usize) -> Room {
    vec![(listing.entries.capacity(), entry_bytes)]
}

/// A procedure: its program, the program's version, its number.
pub(crate) type Key = (u32, u32, u32);

/// Lets the client read results of a procedure; `None` for one that is not known.
pub(crate) fn read_results(key: Key, results: &[u8]) -> Option<Result<Room, ClientError>> {
    let identity = Identity::None;
    let (program, version, procedure) = key;
    match (program, version) {
        (NFS3, 3) => nfs3(procedure, results),
        (nfsacl::NFSACL, 3) => {
            let mut client = Nfs3Client::new(Canned(results), identity);
            let object = FileHandle(vec![1]);
            match procedure {
                0 => Some(client.null().map(|()| Room::new())),
                1 => {
                    Some(client.getacl(&object).map(|acls| {
                        vec![(acls.access.capacity(), 12), (acls.default.capacity(), 12)]
                    }))
                }
                2 => Some(client.setacl(&object, 1, &[], &[]).map(|_| Room::new())),
                _ => None,
            }
        }
        (recovery::RECOVERY, 1) => {
            let mut client = Nfs3Client::new(Canned(results), identity);
            let object = FileHandle(vec![1]);
            match procedure {
                0 => Some(client.null().map(|()| Room::new())),
                1 => Some(client.recovery_status(&object).map(|_| Room::new())),
                2 => Some(client.recovery_sync(&object).map(|_| Room::new())),
                3 => Some(client.recovery_attach(&object, [7; 16], b"name").map(|_| Room::new())),
                4 => Some(client.recovery_done(&object, [7; 16]).map(|_| Room::new())),
                5 => Some(client.recovery_detach(&object, [7; 16]).map(|_| Room::new())),
                6 => Some(
                    client
                        .recovery_writez(&object, 0, (b"frame", 5), StableHow::Unstable)
                        .map(|_| Room::new()),
                ),
                7 => Some(client.recovery_readz(&object, 0, 1 << 20).map(|_| Room::new())),
                _ => None,
            }
        }
        (mount::MOUNT, 3) => {
            let mut server = Canned(results);
            match procedure {
                1 => Some(
                    mount::mnt(&mut server, &identity, b"/")
                        .map(|mounted| vec![(mounted.flavours.capacity(), 4)]),
                ),
                2 => Some(
                    mount::dump(&mut server, &identity).map(|mounts| vec![(mounts.capacity(), 12)]),
                ),
                3 => Some(mount::umnt(&mut server, &identity, b"/").map(|()| Room::new())),
                4 => Some(mount::umntall(&mut server, &identity).map(|()| Room::new())),
                5 => Some(mount::export(&mut server, &identity).map(|exports| {
                    let mut room = vec![(exports.capacity(), 12)];
                    room.extend(exports.iter().map(|export| (export.groups.capacity(), 8)));
                    room
                })),
                _ => None,
            }
        }
        (rpcbind::RPCBIND, version) => rpcbind(version, procedure, results),
        _ => None,
    }
}

fn rpcbind(version: u32, procedure: u32, results: &[u8]) -> Option<Result<Room, ClientError>> {
    let mut server = Canned(results);
    let mapping = Mapping { prog: NFS3, vers: 3, prot: rpcbind::PROTOCOL_TCP, port: 2049 };
    let binding = Binding { prog: NFS3, vers: 3, netid: b"tcp", addr: b"::.8.1", owner: b"" };
    let none = Room::new();
    Some(match (version, procedure) {
        (2, 0) => rpcbind::null(&mut server).map(|()| none),
        (2, 1) => rpcbind::set2(&mut server, &mapping).map(|_| none),
        (2, 2) => rpcbind::unset2(&mut server, &mapping).map(|_| none),
        (2, 3) => rpcbind::port(&mut server, NFS3, 3, false).map(|_| none),
        (2, 4) => rpcbind::dump2(&mut server).map(|known| vec![(known.capacity(), 20)]),
        (3, 3) => rpcbind::port_by_address(&mut server, &binding).map(|_| none),
        (4, 1) => rpcbind::set(&mut server, &binding).map(|_| none),
        (4, 2) => rpcbind::unset(&mut server, &binding).map(|_| none),
        (4, 4) => rpcbind::dump(&mut server).map(|known| vec![(known.capacity(), 24)]),
        _ => return None,
    })
}

fn nfs3(procedure: u32, results: &[u8]) -> Option<Result<Room, ClientError>> {
    let mut client = Nfs3Client::new(Canned(results), Identity::None);
    let object = FileHandle(vec![1]);
    let settings = Settings::default();
    let none = Room::new();
    Some(match procedure {
        0 => client.null().map(|()| none),
        1 => client.getattr(&object).map(|_| none),
        2 => client.setattr(&object, &settings, None).map(|_| none),
        3 => client.lookup(&object, b"n").map(|_| none),
        4 => client.access(&object, 63).map(|_| none),
        5 => client.readlink(&object).map(|link| vec![(link.target.capacity(), 1)]),
        6 => client.read(&object, 0, u32::MAX).map(|read| vec![(read.data.capacity(), 1)]),
        7 => client.write(&object, 0, &[0; 8], StableHow::Unstable).map(|_| none),
        8 => client.create(&object, b"n", &CreateHow3::Exclusive([0; 8])).map(|_| none),
        9 => client.mkdir(&object, b"n", &settings).map(|_| none),
        10 => client.symlink(&object, b"n", b"t", &settings).map(|_| none),
        11 => client.mknod(&object, b"n", &MknodData3::Reg).map(|_| none),
        12 => client.remove(&object, b"n").map(|_| none),
        13 => client.rmdir(&object, b"n").map(|_| none),
        14 => client.rename(&object, b"n", &object, b"m").map(|_| none),
        15 => client.link(&object, &object, b"n").map(|_| none),
        16 => client.readdir(&object, 0, [0; 8], 4096).map(|list| listing(&list, 24)),
        17 => client.readdirplus(&object, 0, [0; 8], 4096, 4096).map(|list| listing(&list, 32)),
        18 => client.fsstat(&object).map(|_| none),
        19 => client.fsinfo(&object).map(|_| none),
        20 => client.pathconf(&object).map(|_| none),
        21 => client.commit(&object, 0, 0).map(|_| none),
        _ => return None,
    })
}
