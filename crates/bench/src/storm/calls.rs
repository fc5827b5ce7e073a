//! A valid call of every procedure of every program.

use steadfast_client::{
    CreateHow3, DeviceData3, FileHandle, Identity, MknodData3, Procedure, Settings, SpecData3,
    StableHow, Time, append_call, arguments, mount, nfsacl, procedure, rpcbind,
};

use steadfast_client::rpcbind::{Binding, Mapping, PROTOCOL_TCP};
use steadfast_xdr::{Encode, Writer};

use super::Storm;
use crate::error::BenchError;
use crate::pattern;

/// Messages without record marks, all xids 0. `turn` makes new names.
pub(super) fn build(storm: &Storm, turn: usize) -> Result<Vec<Vec<u8>>, BenchError> {
    let (mut client, root) = super::mount(storm)?;
    let building = || BenchError::client("making what the calls are about");
    let create = CreateHow3::Unchecked(Settings::mode(0o666).0);
    let file_name = format!("file{}", turn % 7).into_bytes();
    let made = client.create(&root, &file_name, &create).map_err(building())?;
    let file = match made.handle {
        Some(handle) => handle,
        None => client.lookup(&root, &file_name).map_err(building())?.handle,
    };
    let link_name = format!("symlink{turn}").into_bytes();
    let symlink = client
        .symlink(&root, &link_name, b"target", &Settings::default())
        .ok()
        .and_then(|made| made.handle)
        .unwrap_or_else(|| file.clone());
    let mut calls = Vec::new();
    for identity in [Identity::root(), user(), Identity::None] {
        let mut add = |procedure: Procedure, arguments: &[u8]| {
            let mut message = Vec::with_capacity(arguments.len() + 100);
            append_call(&mut message, 0, procedure, &identity, arguments);
            calls.push(message);
        };
        nfs(&mut add, &root, &file, &symlink, &file_name, turn);
        acl(&mut add, &root, &file);
        around(&mut add, storm.path.as_bytes());
    }
    Ok(calls)
}

fn user() -> Identity {
    Identity::Sys { uid: 1000, gid: 1000, gids: (1..=16).collect() }
}

fn nfs(
    add: &mut impl FnMut(Procedure, &[u8]),
    root: &FileHandle,
    file: &FileHandle,
    symlink: &FileHandle,
    file_name: &[u8],
    turn: usize,
) {
    let name = |what: &str| format!("{what}{turn}").into_bytes();
    let set = Settings::mode(0o640);
    let time = Time { seconds: 1_000_000_000, nanoseconds: 999_999_999 };
    let device =
        DeviceData3 { dev_attributes: set.0, spec: SpecData3 { specdata1: 1, specdata2: 3 } };
    let everything = Settings::times(time, time).with(|set| {
        set.mode = Some(0o600);
        set.uid = Some(1000);
        set.gid = Some(1000);
        set.size = Some(12_345);
    });
    add(procedure::NULL, &[]);
    add(procedure::GETATTR, &arguments::handle(file));
    add(procedure::SETATTR, &arguments::setattr(file, &everything, Some(time)));
    add(procedure::SETATTR, &arguments::setattr(file, &everything, None));
    add(procedure::LOOKUP, &arguments::place(root, file_name));
    add(procedure::ACCESS, &arguments::access(root, arguments::access::ALL));
    add(procedure::READLINK, &arguments::handle(symlink));
    add(procedure::READ, &arguments::read(file, 0, 4096));
    add(procedure::READ, &arguments::read(file, 0, 1 << 20));
    for (bytes, stable) in
        [(100, StableHow::Unstable), (4096, StableHow::DataSync), (9000, StableHow::FileSync)]
    {
        let data = pattern::slice(turn, 0, bytes);
        add(procedure::WRITE, &arguments::write(file, 0, data, stable));
    }
    for how in [
        CreateHow3::Unchecked(set.0),
        CreateHow3::Guarded(everything.0),
        CreateHow3::Exclusive(*b"verifier"),
    ] {
        add(procedure::CREATE, &arguments::create(root, &name("created"), &how));
    }
    add(procedure::MKDIR, &arguments::mkdir(root, &name("directory"), &set));
    add(procedure::SYMLINK, &arguments::symlink(root, &name("link"), b"../to", &set));
    for what in [
        MknodData3::Fifo(set.0),
        MknodData3::Sock(set.0),
        MknodData3::Chr(device),
        MknodData3::Blk(device),
    ] {
        add(procedure::MKNOD, &arguments::mknod(root, &name("node"), &what));
    }
    add(procedure::REMOVE, &arguments::place(root, &name("created")));
    add(procedure::RMDIR, &arguments::place(root, &name("directory")));
    add(procedure::RENAME, &arguments::rename(root, &name("node"), root, &name("renamed")));
    add(procedure::LINK, &arguments::link(file, root, &name("hard")));
    add(procedure::READDIR, &arguments::readdir(root, 0, [0; 8], 4096));
    add(procedure::READDIRPLUS, &arguments::readdirplus(root, 0, [0; 8], 4096, 32_768));
    add(procedure::FSSTAT, &arguments::handle(root));
    add(procedure::FSINFO, &arguments::handle(root));
    add(procedure::PATHCONF, &arguments::handle(root));
    add(procedure::COMMIT, &arguments::commit(file, 0, 0));
}

fn acl(add: &mut impl FnMut(Procedure, &[u8]), root: &FileHandle, file: &FileHandle) {
    let entry = |tag, id, permissions| nfsacl::AclEntry { tag, id, permissions };
    let access = [
        entry(1, 0, 7),
        entry(2, 1000, 5),
        entry(4, 0, 5),
        entry(8, 1000, 4),
        entry(0x10, 0, 5),
        entry(0x20, 0, 0),
    ];
    let default = access.map(|entry| nfsacl::AclEntry { tag: entry.tag | 0x1000, ..entry });
    add(Procedure { number: 0, name: "NULL", ..nfsacl::GETACL }, &[]);
    add(nfsacl::GETACL, &nfsacl::getacl_arguments(file, nfsacl::MASK_ALL));
    add(nfsacl::SETACL, &nfsacl::setacl_arguments(file, 1, &access, &[]));
    add(nfsacl::SETACL, &nfsacl::setacl_arguments(root, nfsacl::MASK_ALL, &access, &default));
}

/// MOUNT and rpcbind, all versions.
fn around(add: &mut impl FnMut(Procedure, &[u8]), path: &[u8]) {
    let path = arguments::place(&FileHandle(path.to_vec()), &[]);
    // A path alone is an opaque without the empty name behind it.
    let path = path.get(..path.len() - 4).unwrap_or(&[]);
    for version in 1..=3 {
        for number in 0..=6 {
            let arguments = if matches!(number, 1 | 3) { path } else { &[] };
            add(Procedure { version, number, ..mount::MNT }, arguments);
        }
    }
    let (prog, vers) = (100_003, 3);
    let (mut mapping, mut binding) = (Vec::new(), Vec::new());
    Mapping { prog, vers, prot: PROTOCOL_TCP, port: 2049 }.encode(&mut Writer::new(&mut mapping));
    Binding { prog, vers, netid: b"tcp", addr: b"127.0.0.1.8.1", owner: b"owner" }
        .encode(&mut Writer::new(&mut binding));
    for version in 2..=4 {
        for number in 0..=12 {
            let arguments = if version == 2 { &mapping } else { &binding };
            add(Procedure { version, number, ..rpcbind::GETPORT }, arguments);
        }
    }
}
