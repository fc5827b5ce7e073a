//! Unit ring: what an earlier server wrote about changes is read as what was meant.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use smallvec::{SmallVec, smallvec};
use steadfast_recovery::{
    AFTER_MAX, Action, AskedAttributes, AttributesUnderWay, Before, BegunCall, BeingMade, Change,
    FileSystemIdentity, Made, MadeAcls, ObjectKey, Ownership, Place, Settled, Unlinked,
};
use steadfast_vfs::{Attr, CallName, DeviceNumber, FileKind, StorageHandle, Time};

/// A key of so many bytes.
fn key(number: u8, bytes: usize) -> ObjectKey {
    ObjectKey(StorageHandle::new(&vec![number; bytes]).unwrap())
}

fn time(seconds: i64) -> Time {
    Time { seconds, nanoseconds: 999_999_999 }
}

fn attr(kind: FileKind, number: u8) -> Attr {
    let number = u32::from(number);
    Attr {
        kind,
        mode: 0o4755,
        links: number + 1,
        uid: number + 1000,
        gid: number + 2000,
        size: u64::from(number) << 33,
        used: u64::from(number) << 34,
        device: DeviceNumber { major: number + 8, minor: number + 1_000_000 },
        fsid: 0x0123_4567_89ab_cdef,
        fileid: u64::from(number) + (1 << 40),
        atime: time(1_700_000_001),
        mtime: time(-5),
        ctime: time(1_700_000_003),
    }
}

/// Every action, and every form that a record of a change has.
fn changes() -> Vec<(&'static str, Change<'static>)> {
    let (file, dir, long) = (key(1, 8), key(2, 12), key(3, 44));
    let place = Place { dir, name: b"a name" };
    let unlinked = Unlinked { object: file, is_directory: false, is_left: true };
    let directory = Unlinked { object: long, is_directory: true, is_left: false };
    let after = |object, kind, number| -> SmallVec<[(ObjectKey, Attr); AFTER_MAX]> {
        smallvec![(object, attr(kind, number))]
    };
    let before = |ownership| Some(Before { ctime: time(1), mtime: time(2), ownership });
    let ownership = Some(Ownership { mode: 0o1777, uid: 7, gid: 8 });
    let new = Change::new;
    let data = Action::Write { object: file, offset: 1 << 40, data: b"some data", gap: None };
    let attributes = |size, gap| Action::Attributes { object: file, size, gap };
    let acls = |access, default| new(Action::Acls { object: dir, access, default });
    let make = |object, target| Action::Make { place, object, target };
    let made = |born, acls| Some(Box::new(Made { born, acls }));
    let lists = MadeAcls { access: b"access list".to_vec(), default: Vec::new() };
    let settled = |what| new(Action::Settled { what, up_to: 1 << 50 });
    vec![
        ("nothing", new(Action::Nothing)),
        ("write", Change { after: after(file, FileKind::Regular, 1), ..new(data) }),
        ("write-with-times", Change { before: before(None), ..new(data) }),
        ("write-with-ownership", Change { before: before(ownership), ..new(data) }),
        (
            "write-behind-gap",
            new(Action::Write { object: long, offset: 9, data: b"", gap: Some(3) }),
        ),
        ("attributes", new(attributes(None, None))),
        ("attributes-with-size", new(attributes(Some(1 << 33), None))),
        ("lengthen", Change { before: before(ownership), ..new(attributes(Some(20), Some(10))) }),
        ("acls", acls(Some(b"access"), Some(b"default"))),
        ("acls-access", acls(Some(b"access"), None)),
        ("acls-default-removed", acls(None, Some(b""))),
        ("make", Change { after: after(file, FileKind::Fifo, 2), ..new(make(file, b"")) }),
        ("make-symlink", new(make(long, b"../its target"))),
        ("make-known", Change { made: made(Some(time(3)), Some(lists)), ..new(make(file, b"")) }),
        ("make-unknown", Change { made: made(None, None), ..new(make(file, b"")) }),
        ("remove", new(Action::Remove { place, unlinked })),
        ("remove-directory", new(Action::Remove { place, unlinked: directory })),
        (
            "rename",
            new(Action::Rename {
                from: place,
                to: Place { dir: long, name: b"another" },
                object: file,
                is_directory: false,
                victim: None,
            }),
        ),
        (
            "rename-over",
            Change {
                after: [dir, long, file, key(4, 44)]
                    .into_iter()
                    .zip([
                        FileKind::Directory,
                        FileKind::BlockDevice,
                        FileKind::Socket,
                        FileKind::CharacterDevice,
                    ])
                    .map(|(object, kind)| (object, attr(kind, 3)))
                    .collect(),
                ..new(Action::Rename {
                    from: place,
                    to: Place { dir, name: &[0xff; 255] },
                    object: long,
                    is_directory: true,
                    victim: Some(directory),
                })
            },
        ),
        (
            "link",
            Change {
                after: after(file, FileKind::Symlink, 4),
                ..new(Action::Link { place, object: file })
            },
        ),
        ("settled-data", settled(Settled::Data(file))),
        ("settled-object", settled(Settled::Object(long))),
        ("settled-file-system", settled(Settled::FileSystem)),
        ("touched", new(Action::Touched { object: file, ctime: time(4), mtime: time(-1) })),
        ("moment", new(Action::Moment { before: time(5) })),
    ]
}

/// Every form of a begun mark.
fn begun_calls() -> Vec<(&'static str, BegunCall<'static>)> {
    let (object, dir) = (key(1, 8), key(2, 12));
    let place = Place { dir, name: b"a name" };
    let unlinked = Unlinked { object, is_directory: true, is_left: false };
    let begun = |made, action| BegunCall {
        call: CallName { key: &[7; 40], share: 0xfedc_ba98_7654_3210 },
        file_system: FileSystemIdentity { uuid: *b"sixteen bytes id", kind: 0xef53 },
        at: time(6),
        dir: dir.0,
        fsid: 77,
        made,
        action,
    };
    let asked = AskedAttributes {
        mode: Some(0o640),
        uid: Some(1),
        gid: Some(2),
        size: Some(3),
        atime: Some(time(7)),
        mtime: Some(time(8)),
    };
    let being_made = |kind, asked| Some(BeingMade { kind, uid: 9, asked });
    let nothing = AskedAttributes::default();
    let make = Action::Make { place, object: dir, target: b"target" };
    let touched = Action::Touched { object, ctime: time(9), mtime: time(10) };
    vec![
        ("begun-make", begun(being_made(FileKind::Symlink, asked), make)),
        ("begun-make-plain", begun(being_made(FileKind::Regular, nothing), make)),
        ("begun-attributes", begun(being_made(FileKind::Directory, asked), touched)),
        ("begun-remove", begun(None, Action::Remove { place, unlinked })),
        ("begun-link", begun(None, Action::Link { place, object })),
        (
            "begun-rename",
            begun(
                None,
                Action::Rename {
                    from: place,
                    to: Place { dir, name: b"another" },
                    object,
                    is_directory: true,
                    victim: Some(unlinked),
                },
            ),
        ),
    ]
}

/// Every form of a note of attributes that are about to be set.
fn under_way() -> Vec<(&'static str, AttributesUnderWay)> {
    let note = |size, is_permitted, was_cut| AttributesUnderWay {
        object: key(3, 44),
        before: attr(FileKind::Regular, 5),
        wanted: attr(FileKind::Regular, 6),
        size,
        is_permitted,
        was_cut,
    };
    vec![
        ("under-way", note(None, false, false)),
        ("under-way-cutting", note(Some(5), true, false)),
        ("under-way-cut", note(Some(5), false, true)),
    ]
}

fn golden() -> BTreeMap<&'static str, Vec<u8>> {
    let lines = include_str!("golden/records.txt").lines();
    let of_line = |line: &'static str| {
        let (name, hex) = line.split_once(' ').unwrap();
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (name, (0..hex.len()).step_by(2).map(byte).collect())
    };
    lines.filter(|line| !line.starts_with('#')).map(of_line).collect()
}

#[test]
fn what_an_earlier_server_wrote_is_read_as_it_was_meant() {
    let mut golden = golden();
    for (name, change) in changes() {
        let record = golden.remove(name).unwrap();
        assert_eq!(Change::decode(&record), Ok((change, &[][..])), "{name}");
    }
    for (name, call) in begun_calls() {
        assert_eq!(BegunCall::decode(&golden.remove(name).unwrap()), Some(call), "{name}");
    }
    for (name, note) in under_way() {
        assert_eq!(AttributesUnderWay::decode(&golden.remove(name).unwrap()), Some(note), "{name}");
    }
    assert_eq!(golden, BTreeMap::new(), "records that no test reads");
}
