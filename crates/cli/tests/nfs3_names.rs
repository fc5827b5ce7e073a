//! Process ring: everything that makes, finds, moves and removes names, against the real program.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;
mod nfs3_support;

use nfs3_support::{Fixture, assert_wcc, failure, is_root, status};
use steadfast_client::{
    CreateHow3, DeviceData3, FileHandle, FileType, Identity, MknodData3, NfsStat3, RpcTransport,
    Sattr3, Settings, SpecData3, Wcc, arguments, procedure,
};

fn set(mode: u32) -> Sattr3 {
    Settings::mode(mode).0
}

#[test]
fn lookup_finds_what_create_made() {
    let mut f = Fixture::new();
    let root = f.root.clone();
    let before = f.attributes(&root);
    let made = f.client.create(&root, b"a", &CreateHow3::Guarded(set(0o640))).unwrap();
    assert_wcc(&made.directory, &before);
    let handle = made.handle.unwrap();
    let attributes = made.attributes.unwrap();
    assert_eq!((attributes.file_type, attributes.mode & 0o7777), (FileType::Regular, 0o640));
    let found = f.client.lookup(&root, b"a").unwrap();
    assert_eq!(found.handle, handle);
    assert_eq!(found.attributes.unwrap(), attributes);
    assert_eq!(found.directory.unwrap().fileid, before.fileid);
    let missing = failure(f.client.lookup(&root, b"b"));
    assert_eq!(missing.status, NfsStat3::NoEnt);
    assert!(missing.attributes.is_some());
    assert_eq!(status(f.client.lookup(&handle, b"a")), NfsStat3::NotDir);
}

#[test]
fn dots_are_the_directory_and_its_parent_and_never_lead_out() {
    let mut f = Fixture::new();
    let root = f.root.clone();
    let directory = f.directory("d");
    let fileid = f.attributes(&root).fileid;
    for (from, name) in [(&root, &b"."[..]), (&root, b".."), (&directory, b"..")] {
        let found = f.client.lookup(from, name).unwrap();
        assert_eq!(found.attributes.unwrap().fileid, fileid, "{name:?}");
    }
}

#[test]
fn unchecked_guarded_and_exclusive_treat_what_exists_each_in_its_way() {
    let mut f = Fixture::new();
    let root = f.root.clone();
    let file = f.file("a");
    f.client.setattr(&file, &Settings::size(100), None).unwrap();
    let refused = failure(f.client.create(&root, b"a", &CreateHow3::Guarded(set(0o600))));
    assert_eq!(refused.status, NfsStat3::Exist);
    assert!(refused.wcc.after.is_some());
    assert_eq!(
        status(f.client.create(&root, b"a", &CreateHow3::Exclusive([1; 8]))),
        NfsStat3::Exist
    );
    let unchecked = CreateHow3::Unchecked(Settings::size(0).0);
    assert_eq!(f.client.create(&root, b"a", &unchecked).unwrap().handle.unwrap(), file);
    assert_eq!(f.attributes(&file).size, 0);
    f.directory("d");
    let got = status(f.client.create(&root, b"d", &unchecked));
    assert!(matches!(got, NfsStat3::Exist | NfsStat3::IsDir), "{got:?}");
}

#[test]
fn an_exclusive_create_may_be_repeated_with_its_verifier() {
    let mut f = Fixture::new();
    let root = f.root.clone();
    let mut create = |verifier: [u8; 8]| {
        // Every call has its own xid, so this is no matter for the duplicate request cache.
        f.client.create(&root, b"a", &CreateHow3::Exclusive(verifier))
    };
    let verifier = [0xff, 0xfe, 0xfd, 0xfc, 0x80, 1, 2, 3];
    let first = create(verifier).unwrap().handle.unwrap();
    assert_eq!(create(verifier).unwrap().handle.unwrap(), first);
    assert_eq!(status(create([7; 8])), NfsStat3::Exist);
    assert_eq!(create(verifier).unwrap().handle.unwrap(), first);
    // What the client does next (RFC 1813 §3.3.8): the attributes that it wanted.
    f.client.setattr(&first, &Settings::mode(0o640), None).unwrap();
    let attributes = f.attributes(&first);
    assert_eq!((attributes.mode & 0o7777, attributes.size), (0o640, 0));
}

#[test]
fn an_exclusive_create_survives_a_restart() {
    let mut f = Fixture::new();
    let root = f.root.clone();
    let how = CreateHow3::Exclusive(*b"restarts");
    let first = f.client.create(&root, b"a", &how).unwrap().handle.unwrap();
    let Fixture { place, running, .. } = f;
    drop(running);
    let share = common::utf8(&place.share).to_owned();
    let running = common::Running::start(&place, 0, &[&share, "--no-root-squash"]);
    let connection =
        steadfast_client::RpcConnection::connect(running.address, nfs3_support::PATIENCE).unwrap();
    let mut client = steadfast_client::Nfs3Client::new(connection, Identity::root());
    assert_eq!(client.create(&root, b"a", &how).unwrap().handle.unwrap(), first);
}

#[test]
fn directories_are_made_and_removed() {
    let mut f = Fixture::new();
    let root = f.root.clone();
    let before = f.attributes(&root);
    let made = f.client.mkdir(&root, b"d", &Settings::mode(0o750)).unwrap();
    assert_wcc(&made.directory, &before);
    let attributes = made.attributes.unwrap();
    assert_eq!((attributes.file_type, attributes.mode & 0o7777), (FileType::Directory, 0o750));
    assert_eq!(f.attributes(&root).nlink, before.nlink + 1);
    let directory = made.handle.unwrap();
    assert_eq!(status(f.client.mkdir(&root, b"d", &Settings::default())), NfsStat3::Exist);
    f.client.create(&directory, b"inside", &CreateHow3::Guarded(set(0o600))).unwrap();
    let refused = failure(f.client.rmdir(&root, b"d"));
    assert!(matches!(refused.status, NfsStat3::NotEmpty | NfsStat3::Exist));
    assert!(refused.wcc.after.is_some());
    f.client.remove(&directory, b"inside").unwrap();
    let before = f.attributes(&root);
    assert_wcc(&f.client.rmdir(&root, b"d").unwrap(), &before);
    assert_eq!(status(f.client.getattr(&directory)), NfsStat3::Stale);
    assert_eq!(status(f.client.rmdir(&root, b"d")), NfsStat3::NoEnt);
    f.file("a");
    assert_eq!(status(f.client.rmdir(&root, b"a")), NfsStat3::NotDir);
}

#[test]
fn removal_takes_the_name_and_at_last_the_file() {
    let mut f = Fixture::new();
    let root = f.root.clone();
    let file = f.file("a");
    f.client.link(&file, &root, b"b").unwrap();
    let before = f.attributes(&root);
    assert_wcc(&f.client.remove(&root, b"a").unwrap(), &before);
    assert_eq!(f.attributes(&file).nlink, 1);
    f.client.remove(&root, b"b").unwrap();
    assert_eq!(status(f.client.getattr(&file)), NfsStat3::Stale);
    let missing = failure(f.client.remove(&root, b"a"));
    assert_eq!(missing.status, NfsStat3::NoEnt);
    assert!(missing.wcc.after.is_some());
    f.directory("d");
    let got = status(f.client.remove(&root, b"d"));
    assert!(matches!(got, NfsStat3::IsDir | NfsStat3::Perm), "{got:?}");
}

#[test]
fn links_count_and_refuse_directories() {
    let mut f = Fixture::new();
    let root = f.root.clone();
    let file = f.file("a");
    let before = f.attributes(&root);
    let linked = f.client.link(&file, &root, b"b").unwrap();
    assert_wcc(&linked.directory, &before);
    assert_eq!(linked.attributes.unwrap().nlink, 2);
    assert_eq!(f.client.lookup(&root, b"b").unwrap().handle, file);
    let refused = failure(f.client.link(&file, &root, b"b"));
    assert_eq!(refused.status, NfsStat3::Exist);
    assert!(refused.wcc.after.is_some());
    assert!(refused.attributes.is_some());
    let directory = f.directory("d");
    let got = status(f.client.link(&directory, &root, b"e"));
    assert!(matches!(got, NfsStat3::Perm | NfsStat3::IsDir | NfsStat3::Inval), "{got:?}");
}

#[test]
fn symlinks_keep_any_target() {
    let mut f = Fixture::new();
    let root = f.root.clone();
    let long = vec![b'x'; 1000];
    for (name, target) in [
        (&b"a"[..], &b"../../etc/passwd"[..]),
        (b"b", b"/absolute"),
        (b"c", b"\xff\xfe"),
        (b"d", &long),
    ] {
        let made = f.client.symlink(&root, name, target, &Settings::default()).unwrap();
        let link = made.handle.unwrap();
        assert_eq!(made.attributes.unwrap().file_type, FileType::Symlink);
        let read = f.client.readlink(&link).unwrap();
        assert_eq!(read.target, target);
        assert_eq!(read.attributes.unwrap().size, target.len() as u64);
        assert_eq!(status(f.client.lookup(&link, b"x")), NfsStat3::NotDir);
    }
    let file = f.file("file");
    let refused = failure(f.client.readlink(&file));
    assert_eq!(refused.status, NfsStat3::Inval);
    let twice = f.client.symlink(&root, b"a", b"x", &Settings::default());
    assert_eq!(status(twice), NfsStat3::Exist);
}

#[test]
fn special_files_are_made_as_asked() {
    if !is_root() {
        return;
    }
    let mut f = Fixture::new();
    let root = f.root.clone();
    let device =
        DeviceData3 { dev_attributes: set(0o600), spec: SpecData3 { specdata1: 1, specdata2: 3 } };
    let cases = [
        (&b"fifo"[..], MknodData3::Fifo(set(0o600)), FileType::Fifo, None),
        (b"socket", MknodData3::Sock(set(0o600)), FileType::Socket, None),
        (b"chr", MknodData3::Chr(device), FileType::CharacterDevice, Some((1, 3))),
        (b"blk", MknodData3::Blk(device), FileType::BlockDevice, Some((1, 3))),
    ];
    for (name, what, file_type, rdev) in cases {
        let made = f.client.mknod(&root, name, &what).unwrap();
        let handle = made.handle.unwrap();
        let attributes = f.attributes(&handle);
        assert_eq!((attributes.file_type, attributes.mode & 0o7777), (file_type, 0o600));
        if let Some(rdev) = rdev {
            assert_eq!(attributes.rdev, rdev);
        }
        assert_eq!(status(f.client.mknod(&root, name, &what)), NfsStat3::Exist);
        // Never the device behind it.
        assert_eq!(status(f.client.read(&handle, 0, 1)), NfsStat3::Inval);
    }
    for what in [MknodData3::Reg, MknodData3::Dir, MknodData3::Lnk] {
        assert_eq!(status(f.client.mknod(&root, b"x", &what)), NfsStat3::BadType);
    }
    f.client.set_identity(Identity::user(1000, 1000));
    let refused = f.client.mknod(&root, b"y", &MknodData3::Chr(device));
    assert_eq!(status(refused), NfsStat3::Perm);
    f.client.mknod(&root, b"y", &MknodData3::Fifo(set(0o600))).unwrap();
}

#[test]
fn rename_moves_replaces_and_refuses() {
    let mut f = Fixture::new();
    let root = f.root.clone();
    let directory = f.directory("d");
    let (a, b) = (f.file("a"), f.file("b"));
    let (from, to) = (f.attributes(&root), f.attributes(&directory));
    let renamed = f.client.rename(&root, b"a", &directory, b"moved").unwrap();
    assert_wcc(&renamed.from, &from);
    assert_wcc(&renamed.to, &to);
    assert_eq!(f.client.lookup(&directory, b"moved").unwrap().handle, a);
    assert_eq!(status(f.client.lookup(&root, b"a")), NfsStat3::NoEnt);
    f.client.rename(&directory, b"moved", &root, b"b").unwrap();
    assert_eq!(f.client.lookup(&root, b"b").unwrap().handle, a);
    assert_eq!(status(f.client.getattr(&b)), NfsStat3::Stale);

    let refused = failure(f.client.rename(&root, b"none", &directory, b"x"));
    assert_eq!(refused.status, NfsStat3::NoEnt);
    assert!(refused.wcc.after.is_some() && refused.second_wcc.after.is_some());
    let inner = f.client.mkdir(&directory, b"inner", &Settings::mode(0o755)).unwrap();
    let inner = inner.handle.unwrap();
    assert_eq!(status(f.client.rename(&root, b"d", &inner, b"x")), NfsStat3::Inval);
    let got = status(f.client.rename(&root, b"b", &root, b"d"));
    assert!(matches!(got, NfsStat3::IsDir | NfsStat3::Exist), "{got:?}");
    let got = status(f.client.rename(&root, b"d", &root, b"b"));
    assert!(matches!(got, NfsStat3::NotDir | NfsStat3::Exist), "{got:?}");
    f.directory("e");
    let got = status(f.client.rename(&root, b"e", &root, b"d"));
    assert!(matches!(got, NfsStat3::NotEmpty | NfsStat3::Exist), "{got:?}");
    f.client.rename(&root, b"b", &root, b"b").unwrap();
    assert_eq!(f.client.lookup(&root, b"b").unwrap().handle, a);
}

#[test]
fn names_that_cannot_be_are_refused_by_every_procedure() {
    let mut f = Fixture::new();
    let root = f.root.clone();
    let file = f.file("file");
    let long = [b'n'; 256];
    let none = Wcc::default();
    for (name, allowed) in [
        (&b"a/b"[..], &[NfsStat3::Inval, NfsStat3::Acces][..]),
        (b"/", &[NfsStat3::Inval, NfsStat3::Acces]),
        (b"a\0b", &[NfsStat3::Inval, NfsStat3::Acces]),
        (b"\0", &[NfsStat3::Inval, NfsStat3::Acces]),
        (b"", &[NfsStat3::Inval, NfsStat3::Acces, NfsStat3::NoEnt]),
        (&long, &[NfsStat3::NameTooLong]),
    ] {
        let c = &mut f.client;
        let how = CreateHow3::Unchecked(set(0o600));
        let fifo = MknodData3::Fifo(set(0o600));
        let settings = Settings::default();
        let got = [
            status(c.lookup(&root, name)),
            status(c.create(&root, name, &how)),
            status(c.create(&root, name, &CreateHow3::Exclusive([1; 8]))),
            status(c.mkdir(&root, name, &settings)),
            status(c.symlink(&root, name, b"x", &settings)),
            status(c.mknod(&root, name, &fifo)),
            status(c.remove(&root, name)),
            status(c.rmdir(&root, name)),
            status(c.rename(&root, name, &root, b"x")),
            status(c.rename(&root, b"file", &root, name)),
            status(c.link(&file, &root, name)),
        ];
        for (index, status) in got.into_iter().enumerate() {
            assert!(allowed.contains(&status), "{name:?}, call {index}: {status:?}");
        }
    }
    // Dots: there already, not to be removed.
    for name in [&b"."[..], b".."] {
        let c = &mut f.client;
        let how = CreateHow3::Guarded(set(0o600));
        let made = [
            status(c.create(&root, name, &how)),
            status(c.mkdir(&root, name, &Settings::default())),
            status(c.symlink(&root, name, b"x", &Settings::default())),
            status(c.link(&file, &root, name)),
        ];
        for status in made {
            assert!(matches!(status, NfsStat3::Exist | NfsStat3::Inval), "{name:?}: {status:?}");
        }
        let removed = [
            status(c.remove(&root, name)),
            status(c.rmdir(&root, name)),
            status(c.rename(&root, name, &root, b"x")),
            status(c.rename(&root, b"file", &root, name)),
        ];
        for status in removed {
            let allowed = [
                NfsStat3::Inval,
                NfsStat3::IsDir,
                NfsStat3::Exist,
                NfsStat3::NotEmpty,
                NfsStat3::Perm,
                NfsStat3::Acces,
            ];
            assert!(allowed.contains(&status), "{name:?}: {status:?}");
        }
    }
    assert_eq!(none, Wcc::default());
    let left: Vec<_> = std::fs::read_dir(f.on_disk("")).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "nothing was made");
}

#[test]
fn names_of_255_bytes_and_of_any_bytes_are_names() {
    let mut f = Fixture::new();
    let root = f.root.clone();
    let long = [b'n'; 255];
    for name in [&long[..], b"\xff\xfe\x01", b" ", b"-", b"new\nline", b"..."] {
        let how = CreateHow3::Guarded(set(0o600));
        let made = f.client.create(&root, name, &how).unwrap().handle.unwrap();
        assert_eq!(f.client.lookup(&root, name).unwrap().handle, made);
        f.client.remove(&root, name).unwrap();
    }
}

#[test]
fn handles_that_are_not_ours_are_refused() {
    let mut f = Fixture::new();
    let root = f.root.clone();
    let file = f.file("a");
    let refused = |status| matches!(status, NfsStat3::BadHandle | NfsStat3::Stale);
    let mut wrong = vec![FileHandle(vec![]), FileHandle(vec![0; 64]), FileHandle(vec![0xff; 32])];
    for length in 0..file.as_bytes().len() {
        wrong.push(FileHandle(file.as_bytes().get(..length).unwrap().to_vec()));
    }
    for bit in 0..file.as_bytes().len() * 8 {
        let mut bytes = file.as_bytes().to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        wrong.push(FileHandle(bytes));
    }
    let mut longer = file.as_bytes().to_vec();
    longer.push(1);
    wrong.push(FileHandle(longer));
    for handle in &wrong {
        let got = f.client.getattr(handle);
        let got = got.map_err(|error| error.status());
        let is_refused = matches!(got, Err(Some(status)) if refused(status));
        assert!(is_refused, "{handle:?} beside {file:?}: {got:?}");
    }
    // Another server's, with another key.
    let mut other = Fixture::new();
    let foreign = other.root.clone();
    assert!(refused(status(f.client.getattr(&foreign))));
    assert!(refused(status(other.client.getattr(&root))));
    // Every procedure looks.
    let forged = wrong.last().unwrap();
    let c = &mut f.client;
    let how = CreateHow3::Unchecked(set(0o600));
    let stable = steadfast_client::StableHow::FileSync;
    let got = [
        status(c.setattr(forged, &Settings::mode(0), None)),
        status(c.lookup(forged, b"a")),
        status(c.access(forged, 1)),
        status(c.readlink(forged)),
        status(c.read(forged, 0, 1)),
        status(c.write(forged, 0, b"x", stable)),
        status(c.create(forged, b"x", &how)),
        status(c.mkdir(forged, b"x", &Settings::default())),
        status(c.symlink(forged, b"x", b"y", &Settings::default())),
        status(c.mknod(forged, b"x", &MknodData3::Fifo(set(0)))),
        status(c.remove(forged, b"a")),
        status(c.rmdir(forged, b"a")),
        status(c.rename(forged, b"a", &root, b"x")),
        status(c.rename(&root, b"a", forged, b"x")),
        status(c.link(forged, &root, b"x")),
        status(c.link(&file, forged, b"x")),
        status(c.readdir(forged, 0, [0; 8], 4096)),
        status(c.readdirplus(forged, 0, [0; 8], 4096, 4096)),
        status(c.fsstat(forged)),
        status(c.fsinfo(forged)),
        status(c.pathconf(forged)),
        status(c.commit(forged, 0, 0)),
        status(c.getacl(forged)),
    ];
    for (index, status) in got.into_iter().enumerate() {
        assert!(refused(status), "call {index}: {status:?}");
    }
    assert_eq!(f.attributes(&file).size, 0);
}

#[test]
fn a_handle_longer_than_64_bytes_is_garbage() {
    use steadfast_client::{AcceptedError, ClientError};
    let mut f = Fixture::new();
    let arguments = arguments::handle(&FileHandle(vec![1; 65]));
    let result = f.client.transport().call(procedure::GETATTR, &Identity::root(), &arguments);
    assert!(
        matches!(result, Err(ClientError::Accepted(AcceptedError::GarbageArguments))),
        "{result:?}"
    );
}

#[test]
fn a_removed_files_handle_is_stale_also_when_its_number_is_used_again() {
    let mut f = Fixture::new();
    let root = f.root.clone();
    let old = f.file("a");
    f.client.remove(&root, b"a").unwrap();
    for index in 0..20 {
        f.file(&format!("new{index}"));
    }
    assert_eq!(status(f.client.getattr(&old)), NfsStat3::Stale);
}

#[test]
fn handles_outlive_the_server_and_follow_renames() {
    let mut f = Fixture::new();
    let root = f.root.clone();
    let file = f.file("a");
    f.client.rename(&root, b"a", &root, b"b").unwrap();
    let fileid = f.attributes(&file).fileid;
    let Fixture { place, running, .. } = f;
    drop(running);
    let share = common::utf8(&place.share).to_owned();
    let running = common::Running::start(&place, 0, &[&share, "--no-root-squash"]);
    let connection =
        steadfast_client::RpcConnection::connect(running.address, nfs3_support::PATIENCE).unwrap();
    let mut client = steadfast_client::Nfs3Client::new(connection, Identity::root());
    assert_eq!(client.getattr(&file).unwrap().fileid, fileid);
    assert_eq!(client.lookup(&root, b"b").unwrap().handle, file);
}

#[test]
fn directories_obey_their_mode() {
    if !is_root() {
        return;
    }
    let mut f = Fixture::new();
    let directory = f.directory("d");
    f.client.create(&directory, b"a", &CreateHow3::Guarded(set(0o644))).unwrap();
    f.client.set_identity(Identity::user(1000, 1000));
    let how = CreateHow3::Guarded(set(0o600));
    assert_eq!(status(f.client.create(&directory, b"b", &how)), NfsStat3::Acces);
    assert_eq!(status(f.client.remove(&directory, b"a")), NfsStat3::Acces);
    f.client.lookup(&directory, b"a").unwrap();
    f.client.set_identity(Identity::root());
    f.client.setattr(&directory, &Settings::mode(0o700), None).unwrap();
    f.client.set_identity(Identity::user(1000, 1000));
    let refused = failure(f.client.lookup(&directory, b"a"));
    assert_eq!(refused.status, NfsStat3::Acces);
    // The root has the sticky bit: others' files stay.
    f.client.set_identity(Identity::root());
    f.file("root's");
    f.client.set_identity(Identity::user(1000, 1000));
    let root = f.root.clone();
    let got = status(f.client.remove(&root, b"root's"));
    assert!(matches!(got, NfsStat3::Perm | NfsStat3::Acces), "{got:?}");
}
