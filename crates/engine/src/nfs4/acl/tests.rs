//! Unit and property tests of access control lists.

use proptest::prelude::*;
use steadfast_shares::AccountKind;
use steadfast_vfs::{Acl, AclEntry, AclTag, Attr, Cred, DeviceNumber, FileKind, Time, permission};
use steadfast_wire::nfs4::{Ace4, NfsStat4};
use steadfast_xdr::{Encode, Reader, Writer};

use super::meant::Who;
use super::*;

const OWNER: u32 = 1;
const GROUP: u32 = 10;
/// Whoever may be named, or call.
const USERS: [u32; 4] = [OWNER, 2, 3, 4];
const GROUPS: [u32; 3] = [GROUP, 11, 12];

fn number(text: &[u8], _: AccountKind) -> Result<u32, NfsStat4> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(NfsStat4::BadOwner)
}

fn read_list(bytes: &[u8]) -> Result<Vec<Entry>, NfsStat4> {
    let mut r = Reader::new(bytes);
    let entries = entries(&mut r, number)?;
    if r.is_empty() { Ok(entries) } else { Err(NfsStat4::BadXdr) }
}

fn list(aces: &[Ace4<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    w.u32(aces.len() as u32);
    for ace in aces {
        ace.encode(&mut w);
    }
    bytes
}

fn lists(aces: &[Ace4<'_>], is_directory: bool) -> Result<Lists, NfsStat4> {
    meant(&read_list(&list(aces))?, OWNER, is_directory)
}

fn ace(kind: u32, flag: u32, access_mask: u32, who: &str) -> Ace4<'_> {
    Ace4 { kind, flag, access_mask, who: who.as_bytes() }
}

fn attr(mode: u32, kind: FileKind) -> Attr {
    let time = Time::default();
    Attr {
        kind,
        mode,
        links: 1,
        uid: OWNER,
        gid: GROUP,
        size: 0,
        used: 0,
        device: DeviceNumber::default(),
        fsid: 1,
        fileid: 1,
        atime: time,
        mtime: time,
        ctime: time,
    }
}

/// What a list of NFSv4 grants (RFC 8881 §6.2.1): each bit by the first entry that has it.
fn granted_by_list(entries: &[(u32, u32, Who)], uid: u32, gids: &[u32]) -> u32 {
    let (mut allowed, mut denied) = (0, 0);
    for (kind, mask, who) in entries {
        let is_meant = match who {
            Who::Owner => uid == OWNER,
            Who::Group => gids.contains(&GROUP),
            Who::Everyone => true,
            Who::User(user) => *user == uid,
            Who::NamedGroup(gid) => gids.contains(gid),
        };
        if is_meant && *kind == ALLOW {
            allowed |= mask & !denied;
        } else if is_meant {
            denied |= mask & !allowed;
        }
    }
    allowed
}

/// Every caller there can be.
fn callers() -> Vec<(u32, Vec<u32>)> {
    let mut callers = Vec::new();
    for uid in USERS {
        for picked in 0..1_u32 << GROUPS.len() {
            let has = |at: usize| picked >> at & 1 == 1;
            let gids = GROUPS.iter().enumerate().filter(|(at, _)| has(*at)).map(|(_, gid)| *gid);
            callers.push((uid, gids.collect()));
        }
    }
    callers
}

fn is_granted_by_acl(acl: &Acl, uid: u32, gids: &[u32], bit: u8) -> bool {
    let cred = Cred { uid, gid: 99, groups: gids.iter().copied().collect() };
    let of = |wanted| acl.entries.iter().find(|it| it.tag == wanted).map(|it| it.permissions);
    let group = of(AclTag::Mask).or(of(AclTag::GroupObject));
    let class = |permissions: Option<u8>| u32::from(permissions.unwrap_or(0));
    // As the kernel keeps the mode of a file with this list.
    let (owner, other) = (of(AclTag::UserObject), of(AclTag::Other));
    let mode = class(owner) << 6 | class(group) << 3 | class(other);
    // Nor does it ask the list if the mode has nothing for groups.
    let acl = (!acl.is_minimal() && mode & 0o070 != 0).then_some(acl);
    permission::is_allowed(&attr(mode, FileKind::Regular), acl, &cred, bit)
}

fn any_acl() -> impl Strategy<Value = Acl> {
    let named = prop::collection::btree_map(prop::sample::select(&USERS[..]), 0..8_u8, 0..3);
    let groups = prop::collection::btree_map(prop::sample::select(&GROUPS[..]), 0..8_u8, 0..3);
    (named, groups, [0..8_u8, 0..8, 0..8, 0..8]).prop_map(|(users, groups, [u, g, m, o])| {
        let entry = |tag, permissions| AclEntry { tag, permissions };
        let mut entries = vec![entry(AclTag::UserObject, u)];
        entries.extend(users.iter().map(|(uid, bits)| entry(AclTag::User(*uid), *bits)));
        entries.push(entry(AclTag::GroupObject, g));
        entries.extend(groups.iter().map(|(gid, bits)| entry(AclTag::Group(*gid), *bits)));
        if entries.len() > 2 {
            entries.push(entry(AclTag::Mask, m));
        }
        entries.push(entry(AclTag::Other, o));
        Acl { entries }
    })
}

/// Entries with permissions as a file has them.
fn any_entries() -> impl Strategy<Value = Vec<(u32, u32, Who)>> {
    let who = prop_oneof![
        Just(Who::Owner),
        Just(Who::Group),
        Just(Who::Everyone),
        prop::sample::select(&USERS[..]).prop_map(Who::User),
        prop::sample::select(&GROUPS[..]).prop_map(Who::NamedGroup),
    ];
    let rights = (0..8_u8).prop_map(|bits| {
        let of = |bit, mask| if bits & bit == 0 { 0 } else { mask };
        of(READ, READ_DATA) | of(WRITE, WRITE_DATA | APPEND_DATA) | of(SEARCH, EXECUTE)
    });
    prop::collection::vec((prop::sample::select(&[ALLOW, DENY][..]), rights, who), 0..8)
}

fn to_bytes(entries: &[(u32, u32, Who)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes);
    w.u32(entries.len() as u32);
    for (kind, access_mask, who) in entries {
        let (flag, who) = match who {
            Who::Owner => (0, "OWNER@".to_owned()),
            Who::Group => (IDENTIFIER_GROUP, "GROUP@".to_owned()),
            Who::Everyone => (0, "EVERYONE@".to_owned()),
            Who::User(uid) => (0, uid.to_string()),
            Who::NamedGroup(gid) => (IDENTIFIER_GROUP, gid.to_string()),
        };
        ace(*kind, flag, *access_mask, &who).encode(&mut w);
    }
    bytes
}

fn told_entries(acl: &Acl) -> Vec<(u32, u32, Who)> {
    let mut bytes = Vec::new();
    encode(&mut Writer::new(&mut bytes), acl, None, false, &mut |_, _| None);
    let mut r = Reader::new(&bytes);
    let count = r.u32().unwrap();
    let mut told = Vec::new();
    for _ in 0..count {
        let ace = <Ace4<'_> as steadfast_xdr::Decode<'_>>::decode(&mut r).unwrap();
        let is_group = ace.flag & IDENTIFIER_GROUP != 0;
        let who = match ace.who {
            OWNER_WHO => Who::Owner,
            GROUP_WHO => Who::Group,
            EVERYONE_WHO => Who::Everyone,
            who if is_group => Who::NamedGroup(number(who, AccountKind::Group).unwrap()),
            who => Who::User(number(who, AccountKind::User).unwrap()),
        };
        told.push((ace.kind, ace.access_mask, who));
    }
    assert!(r.is_empty());
    told
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_told_grants_what_the_acl_does(acl in any_acl()) {
        let told = told_entries(&acl);
        for (uid, gids) in callers() {
            let granted = granted_by_list(&told, uid, &gids);
            for (bit, mask) in [(READ, READ_DATA), (WRITE, WRITE_DATA | APPEND_DATA), (SEARCH, EXECUTE)] {
                let by_acl = is_granted_by_acl(&acl, uid, &gids, bit);
                prop_assert_eq!(granted & mask == mask, by_acl, "{} {:?} {}: {:?}", uid, gids, bit, told);
            }
        }
    }

    #[test]
    fn what_was_told_means_the_same_again(acl in any_acl(), is_directory: bool) {
        let mut bytes = Vec::new();
        let default = is_directory.then_some(&acl);
        encode(&mut Writer::new(&mut bytes), &acl, default, is_directory, &mut |_, _| None);
        let lists = meant(&read_list(&bytes).unwrap(), OWNER, is_directory).unwrap();
        let default = lists.default.clone();
        for meant in [Some(lists.access), default].into_iter().flatten() {
            for (uid, gids) in callers() {
                for bit in [READ, WRITE, SEARCH] {
                    prop_assert_eq!(
                        is_granted_by_acl(&meant, uid, &gids, bit),
                        is_granted_by_acl(&acl, uid, &gids, bit),
                        "{} {:?} {}: {:?}", uid, gids, bit, meant
                    );
                }
            }
        }
    }

    #[test]
    fn what_is_meant_grants_nothing_that_the_list_does_not(entries in any_entries()) {
        let lists = meant(&read_list(&to_bytes(&entries)).unwrap(), OWNER, false).unwrap();
        for (uid, gids) in callers() {
            let granted = granted_by_list(&entries, uid, &gids);
            for (bit, mask) in [(READ, READ_DATA), (WRITE, WRITE_DATA | APPEND_DATA), (SEARCH, EXECUTE)] {
                if is_granted_by_acl(&lists.access, uid, &gids, bit) {
                    prop_assert_eq!(granted & mask, mask, "{} {:?} {}: {:?}", uid, gids, bit, lists.access);
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), is_directory: bool) {
        if let Ok(entries) = read_list(&bytes) {
            let _ = meant(&entries, OWNER, is_directory);
        }
    }
}

#[test]
fn a_mode_is_told_in_three_entries() {
    let told = told_entries(&Acl::from_mode(0o640));
    let write = WRITE_DATA | APPEND_DATA;
    assert_eq!(
        told,
        [
            (ALLOW, READ_DATA | write | OF_ALL | OF_OWNER, Who::Owner),
            (ALLOW, READ_DATA | OF_ALL, Who::Group),
            (ALLOW, OF_ALL, Who::Everyone),
        ]
    );
    // Others may write, and the owner may not.
    let told = told_entries(&Acl::from_mode(0o466));
    assert_eq!(told[0], (DENY, write, Who::Owner));
}

#[test]
fn what_posix_cannot_say_is_refused() {
    use NfsStat4::{AttrNotSupp, BadOwner, Inval};
    let write = WRITE_DATA | APPEND_DATA;
    for (entry, is_directory, status) in [
        (ace(AUDIT, 0, READ_DATA, "OWNER@"), false, AttrNotSupp),
        (ace(ALARM, 0, READ_DATA, "OWNER@"), false, AttrNotSupp),
        (ace(4, 0, READ_DATA, "OWNER@"), false, Inval),
        (ace(ALLOW, 0x100, READ_DATA, "OWNER@"), false, Inval),
        (ace(ALLOW, 0, 0x20_0000, "OWNER@"), false, Inval),
        (ace(ALLOW, 0, READ_DATA, "DIALUP@"), false, AttrNotSupp),
        (ace(ALLOW, 0, READ_DATA, "nobody-at-all"), false, BadOwner),
        // A part of what is granted as a whole.
        (ace(ALLOW, 0, WRITE_DATA, "2"), false, AttrNotSupp),
        (ace(ALLOW, 0, APPEND_DATA, "2"), false, AttrNotSupp),
        (ace(ALLOW, 0, write, "2"), true, AttrNotSupp),
        (ace(ALLOW, 0, DELETE_CHILD, "2"), true, AttrNotSupp),
        // What cannot be denied.
        (ace(DENY, 0, READ_ATTRIBUTES, "EVERYONE@"), false, AttrNotSupp),
        (ace(DENY, 0, READ_ACL, "2"), false, AttrNotSupp),
        (ace(DENY, 0, DELETE, "2"), false, AttrNotSupp),
        (ace(DENY, 0, WRITE_ACL, "OWNER@"), false, AttrNotSupp),
        (ace(DENY, 0, WRITE_ATTRIBUTES, "1"), false, AttrNotSupp),
        (ace(DENY, 0, WRITE_NAMED_ATTRS, "2"), false, AttrNotSupp),
        (ace(DENY, 0, WRITE_ACL, "EVERYONE@"), false, AttrNotSupp),
        (ace(DENY, IDENTIFIER_GROUP, WRITE_ATTRIBUTES, "12"), false, AttrNotSupp),
        (ace(DENY, INHERIT, WRITE_ACL, "2"), true, AttrNotSupp),
        // Inheritance.
        (ace(ALLOW, INHERIT, READ_DATA, "2"), false, Inval),
        (ace(ALLOW, FILE_INHERIT, READ_DATA, "2"), false, Inval),
        (ace(ALLOW, INHERIT_ONLY, READ_DATA, "2"), true, Inval),
        (ace(ALLOW, FILE_INHERIT, READ_DATA, "2"), true, AttrNotSupp),
        (ace(ALLOW, DIRECTORY_INHERIT, READ_DATA, "2"), true, AttrNotSupp),
        (ace(ALLOW, INHERIT | NO_PROPAGATE_INHERIT, READ_DATA, "2"), true, AttrNotSupp),
    ] {
        assert_eq!(lists(&[entry], is_directory), Err(status), "{entry:?}");
    }
    // And what is close to it is not.
    for (entry, is_directory) in [
        (ace(ALLOW, 0, write, "2"), false),
        (ace(ALLOW, 0, write | DELETE_CHILD, "2"), true),
        (ace(ALLOW, 0, write | DELETE_CHILD | WRITE_ACL | WRITE_OWNER | DELETE, "2"), false),
        (ace(DENY, 0, WRITE_DATA, "2"), false),
        (ace(DENY, 0, WRITE_ACL | WRITE_OWNER | WRITE_ATTRIBUTES, "2"), false),
        (ace(ALLOW, INHERIT, READ_DATA, "2"), true),
    ] {
        assert!(lists(&[entry], is_directory).is_ok(), "{entry:?}");
    }
}

#[test]
fn lists_are_bounded() {
    let one = ace(ALLOW, 0, READ_DATA, "2");
    let most = vec![one; ENTRIES_MAX as usize];
    assert!(lists(&most, false).is_ok());
    let more = vec![one; ENTRIES_MAX as usize + 1];
    assert_eq!(lists(&more, false), Err(NfsStat4::FBig));
    let bytes = list(&most);
    for cut in (0..bytes.len()).step_by(4).take(100) {
        assert_eq!(read_list(&bytes[..cut]), Err(NfsStat4::BadXdr));
    }
}

#[test]
fn entries_of_a_directory_that_are_inherited_are_its_default_acl() {
    let all = write_mask(true) | READ_DATA | EXECUTE;
    let lists = lists(
        &[
            ace(ALLOW, INHERIT, all, "OWNER@"),
            ace(ALLOW, INHERIT | INHERIT_ONLY, READ_DATA, "2"),
            ace(ALLOW, 0, READ_DATA | EXECUTE, "EVERYONE@"),
        ],
        true,
    );
    let Lists { access, default } = lists.unwrap();
    assert_eq!(access, Acl::from_mode(0o755));
    let entry = |tag, permissions| AclEntry { tag, permissions };
    let expected = vec![
        entry(AclTag::UserObject, 7),
        entry(AclTag::User(2), 4),
        entry(AclTag::GroupObject, 0),
        entry(AclTag::Mask, 4),
        entry(AclTag::Other, 0),
    ];
    assert_eq!(default, Some(Acl { entries: expected }));
}

#[test]
fn what_the_owner_was_allowed_is_denied_to_others() {
    let aces = [ace(ALLOW, 0, OF_OWNER, "OWNER@"), ace(DENY, 0, OF_OWNER, "EVERYONE@")];
    assert!(lists(&aces, false).is_ok());
    let aces = [aces[1], aces[0]];
    assert_eq!(lists(&aces, false), Err(NfsStat4::AttrNotSupp));
}

#[test]
fn lists_are_bounded_as_posix_acls_are() {
    let users: Vec<String> = (0..1021).map(|uid| uid.to_string()).collect();
    let aces: Vec<_> = users.iter().map(|uid| ace(ALLOW, 0, READ_DATA, uid)).collect();
    // With the owner, the group, the mask and all others.
    assert_eq!(lists(&aces, false), Err(NfsStat4::FBig));
    assert!(lists(&aces[1..], false).is_ok());
}

#[test]
fn a_user_who_owns_the_file_is_denied_as_its_owner() {
    let write = WRITE_DATA | APPEND_DATA;
    let aces = [ace(DENY, 0, write, "1"), ace(ALLOW, 0, READ_DATA | write, "OWNER@")];
    let access = lists(&aces, false).unwrap().access;
    assert_eq!(access.entries[0].permissions, READ);
    let aces = [ace(DENY, 0, write, "2"), ace(ALLOW, 0, READ_DATA | write, "OWNER@")];
    let access = lists(&aces, false).unwrap().access;
    assert_eq!(access.entries[0].permissions, READ | WRITE);
}
