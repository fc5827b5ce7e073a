//! What opens of NFSv4 deny, NFSv3 and special stateids do not get.

use steadfast_wire::nfs3::StableHow;
use steadfast_wire::nfs4::{
    Attribute4, Bitmap4, Fattr4, NfsStat4, Op4, Read4Args, SetAttr4Args, StateId4, Write4Args,
};
use steadfast_xdr::Reader;

use crate::compounds::{HEADER_BYTES, Ops, stateid, words, xdr};
use crate::harness::{Client, Server, sender};
use crate::opens::open;

const ANONYMOUS: StateId4 = StateId4 { seqid: 0, other: [0; 12] };
const BYPASS: StateId4 = StateId4 { seqid: u32::MAX, other: [0xff; 12] };
const ACCESS: u32 = 13;

/// The status of an NFSv3 call about a file, or about a name in a directory.
pub(crate) fn nfs3(
    server: &Server,
    procedure: u32,
    handle: &[u8],
    name: &[u8],
    how: &[u32],
) -> u32 {
    let mut body = xdr(|w| {
        w.opaque(handle);
        if !name.is_empty() {
            w.opaque(name);
        }
    });
    body.extend_from_slice(&words(how));
    let from = sender(2);
    let reply = server.send(&from, &server.message(&from, 3, procedure, &body)).unwrap();
    Reader::new(&reply[HEADER_BYTES..]).u32().unwrap()
}

/// The statuses of READ, WRITE, SETATTR of the size, SETATTR of the mode, and of CREATE that cuts the
/// file and one that does not.
fn by_nfs3(server: &Server, root: &[u8], file: &[u8]) -> [u32; 6] {
    let none = |size: &[u32]| [&[0, 0, 0], size, &[0, 0, 0]].concat();
    let create = |size: &[u32]| [&[0, 0, 0, 0], size, &[0, 0]].concat();
    [
        nfs3(server, 6, file, b"", &[0, 0, 1]),
        nfs3(server, 7, file, b"", &[0, 0, 1, 2, 1, 0]),
        nfs3(server, 2, file, b"", &none(&[1, 0, 0])),
        nfs3(server, 2, file, b"", &[1, 0o644, 0, 0, 0, 0, 0, 0]),
        nfs3(server, 8, root, b"f", &create(&[1, 0, 0])),
        nfs3(server, 8, root, b"f", &create(&[0])),
    ]
}

/// The statuses of READ, WRITE, SETATTR of the size by a special stateid.
pub(crate) fn by_stateid(client: &Client<'_>, file: &[u8], id: StateId4) -> [u32; 3] {
    let read = Read4Args { stateid: id, offset: 0, count: 1 };
    let write = Write4Args { stateid: id, offset: 0, stable: StableHow::FileSync, data: b"x" };
    let size = Fattr4 { attrmask: Bitmap4::of(&[Attribute4::Size]), attr_vals: &[0; 8] };
    let set = SetAttr4Args { stateid: id, obj_attributes: size };
    let put = || Ops::put(file);
    [put().op(Op4::Read, &read), put().op(Op4::Write, &write), put().op(Op4::SetAttr, &set)]
        .map(|ops| client.run(&ops).status)
}

#[test]
fn what_an_open_denies_is_denied_to_all_others() {
    const LOCKED: u32 = NfsStat4::Locked as u32;
    let server = Server::new();
    let one = Client::new(&server, b"c", sender(1));
    let two = Client::new(&server, b"d", sender(2));
    let root = one.handle(&[b"a"]);
    let file = server.make_file(&root, b"f", 0o666);
    let other = server.make_file(&root, b"g", 0o666);
    assert_eq!(by_nfs3(&server, &root, &file), [0; 6]);
    for deny in 0..4 {
        let mut opened = one.run(&Ops::put(&root).then(&open(b"f", b"x", 3, deny)));
        opened.ok(Op4::PutFh);
        opened.ok(Op4::Open);
        let open_stateid = opened.take(stateid);
        let is_denied = |bit: u32, status| if deny & bit == 0 { 0 } else { status };
        let (read, write) = (is_denied(1, ACCESS), is_denied(2, ACCESS));
        assert_eq!(by_nfs3(&server, &root, &file), [read, write, write, 0, write, 0], "{deny}");
        assert_eq!(nfs3(&server, 7, &other, b"", &[0, 0, 1, 2, 1, 0]), 0, "another file");
        let (read, write) = (is_denied(1, LOCKED), is_denied(2, LOCKED));
        assert_eq!(by_stateid(&two, &file, ANONYMOUS), [read, write, write], "{deny}");
        assert_eq!(by_stateid(&two, &file, BYPASS), [0, write, write], "{deny}");
        // Its owner is denied nothing.
        assert_eq!(by_stateid(&one, &file, open_stateid), [0; 3], "{deny}");
        let close = steadfast_wire::nfs4::Close4Args { seqid: 0, open_stateid };
        one.run(&Ops::put(&file).op(Op4::Close, &close)).succeeds();
        assert_eq!(by_nfs3(&server, &root, &file), [0; 6], "{deny}");
    }
}
