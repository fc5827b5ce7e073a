//! Unit and property tests: a change is read as it was written, and any bytes are refused without
//! harm.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use steadfast_vfs::{DeviceNumber, FileKind};

use super::bytes::KINDS;
use super::*;

fn key() -> impl Strategy<Value = ObjectKey> {
    vec(any::<u8>(), 0..=HANDLE_BYTES_MAX)
        .prop_map(|bytes| ObjectKey(StorageHandle::new(&bytes).unwrap()))
}

fn time() -> impl Strategy<Value = Time> {
    (any::<i64>(), 0..1_000_000_000_u32)
        .prop_map(|(seconds, nanoseconds)| Time { seconds, nanoseconds })
}

fn attr() -> impl Strategy<Value = Attr> {
    let words = any::<[u32; 6]>();
    let numbers = any::<[u64; 4]>();
    (0..KINDS.len(), words, numbers, time(), time(), time()).prop_map(
        |(kind, words, numbers, atime, mtime, ctime)| Attr {
            kind: KINDS[kind],
            mode: words[0],
            links: words[1],
            uid: words[2],
            gid: words[3],
            device: DeviceNumber { major: words[4], minor: words[5] },
            size: numbers[0],
            used: numbers[1],
            fsid: numbers[2],
            fileid: numbers[3],
            atime,
            mtime,
            ctime,
        },
    )
}

/// What a change is made of.
#[derive(Debug)]
struct Parts {
    which: usize,
    keys: [ObjectKey; 5],
    names: [Vec<u8>; 2],
    data: Vec<u8>,
    number: Option<u64>,
    flags: [bool; 4],
    after: Vec<(ObjectKey, Attr)>,
    made: Option<Made>,
    before: Option<Before>,
}

fn parts() -> impl Strategy<Value = Parts> {
    let keys = [key(), key(), key(), key(), key()];
    let names = [vec(any::<u8>(), 0..=NAME_BYTES_MAX), vec(any::<u8>(), 0..=NAME_BYTES_MAX)];
    let after = vec((key(), attr()), 0..=AFTER_MAX);
    let data = vec(any::<u8>(), 0..300);
    let numbers = option::of(any::<u64>());
    let ownership =
        option::of(any::<[u32; 3]>().prop_map(|[mode, uid, gid]| Ownership { mode, uid, gid }));
    let before =
        option::of((time(), time(), ownership).prop_map(|(ctime, mtime, ownership)| Before {
            ctime,
            mtime,
            ownership,
        }));
    (0..13_usize, keys, names, data, numbers, any::<[bool; 4]>(), (after, before), made()).prop_map(
        |(which, keys, names, data, number, flags, (after, before), made)| Parts {
            which,
            keys,
            names,
            data,
            number,
            flags,
            after,
            made,
            before,
        },
    )
}

fn made() -> impl Strategy<Value = Option<Made>> {
    let acls = (vec(any::<u8>(), 0..900), vec(any::<u8>(), 0..900))
        .prop_map(|(access, default)| MadeAcls { access, default });
    option::of((option::of(time()), option::of(acls)).prop_map(|(born, acls)| Made { born, acls }))
}

fn action(parts: &Parts) -> Action<'_> {
    let Parts { which, keys, names, data, number, flags, .. } = parts;
    let [object, dir, other_dir, victim, _] = *keys;
    let place = Place { dir, name: &names[0] };
    let to = Place { dir: other_dir, name: &names[1] };
    let unlinked = Unlinked { object: victim, is_directory: flags[0], is_left: flags[1] };
    let up_to = number.unwrap_or(7);
    match which {
        0 => Action::Nothing,
        1 => Action::Write { object, offset: up_to, data, gap: flags[0].then_some(up_to / 2) },
        2 => Action::Attributes { object, size: *number, gap: flags[0].then_some(up_to / 2) },
        3 => Action::Acls {
            object,
            access: flags[0].then_some(data),
            default: flags[1].then_some(&data[..data.len() / 2]),
        },
        4 => Action::Make { place, object, target: data },
        5 => Action::Remove { place, unlinked },
        6 => Action::Rename {
            from: place,
            to,
            object,
            is_directory: flags[2],
            victim: flags[3].then_some(unlinked),
        },
        7 => Action::Link { place, object },
        8 => Action::Settled { what: Settled::Data(object), up_to },
        9 => Action::Settled { what: Settled::Object(object), up_to },
        10 => Action::Settled { what: Settled::FileSystem, up_to },
        11 => {
            let [ctime, mtime] = [up_to, 5]
                .map(|at| Time { seconds: at as i64, nanoseconds: names[0].len() as u32 });
            Action::Touched { object, ctime, mtime }
        }
        _ => Action::Moment { before: Time { seconds: up_to as i64, nanoseconds: 7 } },
    }
}

proptest! {
    #[test]
    fn a_change_is_read_as_it_was_written(parts in parts(), behind in vec(any::<u8>(), 0..9)) {
        let action = action(&parts);
        let made = parts.made.clone().filter(|_| matches!(action, Action::Make { .. })).map(Box::new);
        let change = Change { action, after: parts.after.iter().copied().collect(), before: parts.before, made };
        let mut record = Vec::new();
        change.encode(&mut record);
        prop_assert!(record.len() <= change.encoded_bytes_max());
        let length = record.len();
        record.extend_from_slice(&behind);
        let (read, rest) = Change::decode(&record).unwrap();
        prop_assert_eq!(&read, &change);
        prop_assert_eq!(rest, &behind[..]);
        // A part of it is not taken for the whole.
        for end in 0..length {
            prop_assert!(Change::decode(&record[..end]).is_err());
        }
    }

    #[test]
    fn any_bytes_are_read_without_harm(
        bytes in vec(any::<u8>(), 0..200),
        format in CHANGE_FORMAT..=FORMAT_WITH_OWNERSHIP,
    ) {
        let _ = Change::decode(&bytes);
        let mut likely = vec![format];
        likely.extend_from_slice(&bytes);
        if let Ok((change, rest)) = Change::decode(&likely) {
            let mut again = Vec::new();
            change.encode(&mut again);
            prop_assert_eq!(&again[..], &likely[..likely.len() - rest.len()]);
        }
    }
}

/// The change is these bytes, and they are the change.
fn check_golden(change: &Change<'_>, expected: &[&str]) {
    let mut bytes = Vec::new();
    change.encode(&mut bytes);
    let hex = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
    assert_eq!(hex, expected.concat());
    assert_eq!(Change::decode(&bytes), Ok((change.clone(), &[][..])));
}

/// Each action in the newest format, byte by byte as earlier builds wrote it: what one build has logged,
/// any other one reads.
#[test]
fn changes_are_the_bytes_that_logs_have() {
    // No attributes, then what was before: times and ownership.
    const BEFORE: &str = concat!(
        "00",
        "ffffffffffffffff04030201121100000000000004030201",
        "a40100002221000032310000"
    );
    let key = |bytes: &[u8]| ObjectKey(StorageHandle::new(bytes).unwrap());
    let time = |seconds| Time { seconds, nanoseconds: 0x0102_0304 };
    let (object, dir, other) = (key(b"obj"), key(b"dir"), key(b""));
    let (place, to) = (Place { dir, name: b"from" }, Place { dir: other, name: b"to" });
    let before = Some(Before {
        ctime: time(-1),
        mtime: time(0x1112),
        ownership: Some(Ownership { mode: 0o644, uid: 0x2122, gid: 0x3132 }),
    });
    let check = |action, expected: &[&str]| {
        check_golden(&Change { before, ..Change::new(action) }, expected);
    };
    let unlinked = Unlinked { object: other, is_directory: false, is_left: true };
    check(Action::Nothing, &["0300", BEFORE]);
    let (offset, data) = (0x4142, &b"data"[..]);
    check(
        Action::Write { object, offset, data, gap: None },
        &["0301036f626a", "42410000000000000400000064617461", BEFORE],
    );
    check(
        Action::Write { object, offset, data, gap: Some(7) },
        &["0309036f626a", "070000000000000042410000000000000400000064617461", BEFORE],
    );
    check(
        Action::Attributes { object, size: None, gap: None },
        &["0302036f626a", "000000000000000000", BEFORE],
    );
    check(
        Action::Attributes { object, size: Some(0x5152), gap: Some(7) },
        &["030a036f626a", "0700000000000000015251000000000000", BEFORE],
    );
    check(
        Action::Acls { object, access: Some(b"acl"), default: None },
        &["0303036f626a", "010300000061636c0000000000", BEFORE],
    );
    check(
        Action::Make { place, object, target: b"target" },
        &["0304036469720400000066726f6d", "036f626a06000000746172676574", BEFORE],
    );
    check(Action::Remove { place, unlinked }, &["0305036469720400000066726f6d", "000001", BEFORE]);
    let rename = |victim| Action::Rename { from: place, to, object, is_directory: true, victim };
    check(rename(None), &["0306036469720400000066726f6d0002000000746f", "036f626a0100", BEFORE]);
    check(
        rename(Some(unlinked)),
        &["0306036469720400000066726f6d0002000000746f", "036f626a0101000001", BEFORE],
    );
    check(Action::Link { place, object }, &["0307036469720400000066726f6d", "036f626a", BEFORE]);
    check(
        Action::Settled { what: Settled::Data(object), up_to: 9 },
        &["0308", "00036f626a0900000000000000", BEFORE],
    );
    check(
        Action::Settled { what: Settled::Object(object), up_to: 9 },
        &["0308", "01036f626a0900000000000000", BEFORE],
    );
    check(
        Action::Settled { what: Settled::FileSystem, up_to: 9 },
        &["0308", "020900000000000000", BEFORE],
    );
    check(
        Action::Touched { object, ctime: time(5), mtime: time(6) },
        &["0316036f626a", "050000000000000004030201060000000000000004030201", BEFORE],
    );
    check(Action::Moment { before: time(5) }, &["0315", "050000000000000004030201", BEFORE]);
}

/// What follows an action: attributes, and what is known of an object that was made.
#[test]
fn what_follows_an_action_is_the_bytes_that_logs_have() {
    let time = |seconds| Time { seconds, nanoseconds: seconds as u32 + 1 };
    let object = ObjectKey(StorageHandle::new(b"obj").unwrap());
    let attr = Attr {
        kind: FileKind::Symlink,
        mode: 1,
        links: 2,
        uid: 3,
        gid: 4,
        device: DeviceNumber { major: 5, minor: 6 },
        size: 7,
        used: 8,
        fsid: 9,
        fileid: 10,
        atime: time(11),
        mtime: time(13),
        ctime: time(15),
    };
    let place = Place { dir: object, name: b"n" };
    let acls = MadeAcls { access: b"access".to_vec(), default: b"default".to_vec() };
    let made = |born, acls| Some(Box::new(Made { born, acls }));
    let change = Change {
        after: SmallVec::from_iter([(object, attr)]),
        made: made(Some(time(17)), Some(acls)),
        ..Change::new(Action::Make { place, object, target: b"" })
    };
    check_golden(
        &change,
        &[
            "0114036f626a010000006e036f626a00000000",
            "01036f626a040100000002000000030000000400000005000000060000000700000000000000080000000000000009000000000000000a00000000000000",
            "0b000000000000000c0000000d000000000000000e0000000f0000000000000010000000",
            "0111000000000000001200000001060000006163636573730700000064656661756c74",
        ],
    );
    let change = Change { made: made(None, None), ..change };
    check_golden(
        &change,
        &[
            "0114036f626a010000006e036f626a00000000",
            "01036f626a040100000002000000030000000400000005000000060000000700000000000000080000000000000009000000000000000a00000000000000",
            "0b000000000000000c0000000d000000000000000e0000000f0000000000000010000000",
            "0000",
        ],
    );
}
