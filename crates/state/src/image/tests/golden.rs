//! Events byte by byte, as earlier builds of this version wrote them: what a server has kept, one of
//! any other build reads. A changed line here is a new format, and needs a new number of the event.

use std::borrow::Cow;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use steadfast_vfs::StorageHandle;

use crate::channel::{BackChannelImage, CallbackTarget};
use crate::ids::{DelegationNumber, LockNumber, OpenNumber};
use crate::image::Event;
use crate::image::event::ClientEvent;
use crate::owner_sequence::OwnerImage;
use crate::ranges::{LockKind, Span};
use crate::set_client::SetClientRecord;
use crate::share::Share;
use crate::{
    Callback, Channel, ClientId, CreatedSession, DelegationKind, FileKey, OwnerReply, OwnerRequest,
    SessionId, ShareAccess, ShareDeny,
};

const CLIENT: ClientId = ClientId(0x0102_0304_0506_0708);
const SESSION: SessionId = SessionId(*b"session-of-16-by");
const OPEN: OpenNumber = OpenNumber(0x1112_1314_1516_1718);
const LOCK: LockNumber = LockNumber(0x2122_2324_2526_2728);
const DELEGATION: DelegationNumber = DelegationNumber(0x3132_3334_3536_3738);
const SPAN: Span = Span { start: 0x41, end: 0x4243 };
const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
const V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9));

fn file() -> FileKey {
    FileKey { file_system: 0x5152, object: StorageHandle::new(b"file").expect("short") }
}

fn channel(first: u32) -> Channel {
    Channel {
        request_bytes_max: first,
        response_bytes_max: first + 1,
        response_bytes_cached_max: first + 2,
        operations_max: first + 3,
        requests_max: first + 4,
    }
}

fn callback(program: u32) -> Callback {
    Callback {
        program,
        netid: b"tcp".as_slice().into(),
        address: b"192.0.2.7.8.1".as_slice().into(),
        ident: program + 1,
    }
}

/// The event is these bytes, and they are the event.
fn check(event: &Event<'_>, expected: &[&str]) {
    let mut bytes = Vec::new();
    event.append(&mut bytes);
    let hex = bytes.iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    });
    assert_eq!(hex, expected.concat());
    let mut rest = &bytes[..];
    assert_eq!(Event::take(&mut rest).as_ref(), Ok(event));
    assert!(rest.is_empty());
}

#[test]
fn clients() {
    let bare = ClientEvent {
        id: CLIENT,
        owner: b"owner",
        verifier: *b"verifier",
        principal: b"who",
        implementation: b"",
        address: V4,
        is_confirmed: true,
        sequence: 0x61,
        created: None,
        set: None,
    };
    check(
        &Event::Client(bare.clone()),
        &[
            "010807060504030201050000006f776e657276657269666965720300000077686f",
            "000000000100000000000000000000ffffc00002070161000000",
            "0000",
        ],
    );
    let created = CreatedSession {
        session: SESSION,
        sequence: 7,
        flags: 2,
        fore: channel(16),
        back: channel(32),
    };
    let set = SetClientRecord { confirm: *b"confirm1", callback: callback(5), update: None };
    let full = ClientEvent {
        implementation: b"impl",
        address: V6,
        is_confirmed: false,
        created: Some(created),
        set: Some(Cow::Borrowed(&set)),
        ..bare.clone()
    };
    check(
        &Event::Client(full),
        &[
            "010807060504030201050000006f776e657276657269666965720300000077686f",
            "04000000696d706c0020010db80000000000000000000000090061000000",
            "0173657373696f6e2d6f662d31362d62790700000002000000",
            "10000000110000001200000013000000140000002000000021000000220000002300000024000000",
            "01636f6e6669726d3105000000030000007463700d0000003139322e302e322e372e382e310600000000",
        ],
    );
    let set = SetClientRecord { update: Some((*b"confirm2", callback(9))), ..set };
    let updated = ClientEvent { set: Some(Cow::Owned(set)), ..bare };
    check(
        &Event::Client(updated),
        &[
            "010807060504030201050000006f776e657276657269666965720300000077686f",
            "000000000100000000000000000000ffffc0000207016100000000",
            "01636f6e6669726d3105000000030000007463700d0000003139322e302e322e372e382e310600000001",
            "636f6e6669726d3209000000030000007463700d0000003139322e302e322e372e382e310a000000",
        ],
    );
    check(&Event::ClientGone(CLIENT), &["020807060504030201"]);
    check(&Event::ReclaimComplete(CLIENT), &["030807060504030201"]);
    check(&Event::OpensAnew(CLIENT), &["070807060504030201"]);
    check(
        &Event::Host { id: CLIENT, name: b"host", address: V4, state: 3 },
        &["10080706050403020104000000686f73740100000000000000000000ffffc000020703000000"],
    );
    check(
        &Event::Serials { state: 1, session: 0x203, record: 0x40506 },
        &["0e010000000000000003020000000000000605040000000000"],
    );
}

#[test]
fn sessions() {
    let (fore, back) = (channel(16), channel(32));
    check(
        &Event::Session { id: SESSION, client: CLIENT, fore, back },
        &[
            "0473657373696f6e2d6f662d31362d62790807060504030201",
            "10000000110000001200000013000000140000002000000021000000220000002300000024000000",
        ],
    );
    check(&Event::SessionGone(SESSION), &["0573657373696f6e2d6f662d31362d6279"]);
    let slot = |reply| Event::Slot { session: SESSION, slot: 1, sequence: 2, digest: 3, reply };
    check(
        &slot(Some(b"reply")),
        &["0673657373696f6e2d6f662d31362d6279010000000200000003000000", "01050000007265706c79"],
    );
    check(
        &slot(None),
        &["0673657373696f6e2d6f662d31362d6279010000000200000003000000", "0000000000"],
    );
    let channel = |target, sequences| BackChannelImage { target, is_wanted: true, sequences };
    let target =
        CallbackTarget { minor_version: 1, program: 2, credential: b"cred".as_slice().into() };
    let channel_of = |channel| Event::BackChannel { session: SESSION, channel };
    check(
        &channel_of(channel(Some(target), vec![3, 4])),
        &[
            "1873657373696f6e2d6f662d31362d6279",
            "0101000000020000000400000063726564",
            "01020300000004000000",
        ],
    );
    check(
        &channel_of(channel(None, Vec::new())),
        &["1873657373696f6e2d6f662d31362d6279", "000100"],
    );
    let under_way = Event::UnderWay {
        session: SESSION,
        slot: 1,
        sequence: 2,
        digest: 3,
        is_unstable: true,
        done: b"done",
    };
    check(
        &under_way,
        &["4073657373696f6e2d6f662d31362d6279010000000200000003000000", "0104000000646f6e65"],
    );
}

#[test]
fn opens_and_locks() {
    let share = Share { access: ShareAccess::READ, deny: ShareDeny::WRITE };
    let open = Event::Open {
        client: CLIENT,
        number: OPEN,
        owner: b"owner",
        file: file(),
        seqid: 3,
        share,
        asked: 0x0405,
    };
    check(
        &open,
        &[
            "0808070605040302011817161514131211050000006f776e6572",
            "52510000000000000400000066696c650300000001020504",
        ],
    );
    check(
        &Event::OpenGone { client: CLIENT, number: OPEN },
        &["0908070605040302011817161514131211"],
    );
    let lock = Event::Lock { client: CLIENT, number: LOCK, open: OPEN, owner: b"owner", seqid: 3 };
    check(
        &lock,
        &["0a080706050403020128272625242322211817161514131211", "050000006f776e657203000000"],
    );
    check(
        &Event::LockGone { client: CLIENT, number: LOCK },
        &["0b08070605040302012827262524232221"],
    );
    let range =
        |kind| Event::Range { client: CLIENT, open: OPEN, owner: b"owner", span: SPAN, kind };
    check(
        &range(LockKind::Write),
        &[
            "0c08070605040302011817161514131211050000006f776e6572",
            "4100000000000000434200000000000001",
        ],
    );
    check(
        &range(LockKind::Read),
        &[
            "0c08070605040302011817161514131211050000006f776e6572",
            "4100000000000000434200000000000000",
        ],
    );
    let gone = Event::RangeGone { client: CLIENT, owner: b"owner", file: file(), span: SPAN };
    check(
        &gone,
        &[
            "0d0807060504030201050000006f776e6572",
            "52510000000000000400000066696c6541000000000000004342000000000000",
        ],
    );
}

#[test]
fn delegations() {
    let delegation = |kind, is_recalled| Event::Delegation {
        client: CLIENT,
        number: DELEGATION,
        file: file(),
        kind,
        handle: b"handle",
        is_recalled,
        is_revoked: !is_recalled,
    };
    check(
        &delegation(DelegationKind::Write, true),
        &[
            "200807060504030201383736353433323152510000000000000400000066696c65",
            "010600000068616e646c650100",
        ],
    );
    check(
        &delegation(DelegationKind::Read, false),
        &[
            "200807060504030201383736353433323152510000000000000400000066696c65",
            "000600000068616e646c650001",
        ],
    );
    check(
        &Event::DelegationRecalled { client: CLIENT, number: DELEGATION },
        &["2108070605040302013837363534333231"],
    );
    check(
        &Event::DelegationRevoked { client: CLIENT, number: DELEGATION },
        &["2208070605040302013837363534333231"],
    );
    check(
        &Event::DelegationGone { client: CLIENT, number: DELEGATION },
        &["2308070605040302013837363534333231"],
    );
}

#[test]
fn owners() {
    let request = OwnerRequest { seqid: 5, operation: 18, digest: 0x6162, earlier_digest: None };
    let reply = |object| OwnerReply { status: 7, result: b"result".as_slice().into(), object };
    let bare = OwnerImage {
        is_lock: true,
        seqid: 4,
        last: None,
        is_confirmed: false,
        unconfirmed: None,
        closed: None,
    };
    let object = Some((8, StorageHandle::new(b"object").expect("short")));
    let full = OwnerImage {
        is_lock: false,
        is_confirmed: true,
        last: Some((request, reply(object))),
        unconfirmed: Some(OPEN),
        closed: Some(OpenNumber(9)),
        ..bare.clone()
    };
    let without = OwnerImage { last: Some((request, reply(None))), ..bare.clone() };
    let owner = |owner| Event::Owner { client: CLIENT, name: b"name", owner };
    check(
        &owner(Cow::Borrowed(&bare)),
        &["0f0807060504030201040000006e616d65", "0104000000000000000000000000000000000000000000"],
    );
    check(
        &owner(Cow::Borrowed(&full)),
        &[
            "0f0807060504030201040000006e616d65",
            "0004000000",
            "01050000001200000062610000000000000700000006000000726573756c74010800000000000000060000006f626a656374",
            "0118171615141312110900000000000000",
        ],
    );
    check(
        &owner(Cow::Owned(without)),
        &[
            "0f0807060504030201040000006e616d65",
            "0104000000",
            "01050000001200000062610000000000000700000006000000726573756c7400",
            "0000000000000000000000000000000000",
        ],
    );
}
