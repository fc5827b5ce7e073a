//! READDIR and attributes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use steadfast_engine::Export;
use steadfast_vfs::{FileSystem, FlushDomain, FsError, StorageSource};
use steadfast_wire::nfs4::{
    Attribute4, Bitmap4, Fattr4, GetAttr4Args, NfsStat4, Op4, ReadDir4Args, Verify4Args,
};
use steadfast_xdr::{Decode, Reader};

use crate::compounds::{HEADER_BYTES, Ops, xdr};
use crate::harness::{Client, Server, everything, export, rule, sender, share};

/// Names, cookies and attribute values of a listing, and whether it was the end.
struct Page {
    entries: Vec<(u64, Vec<u8>, Bitmap4, Vec<u8>)>,
    is_end: bool,
}

fn list(
    client: &Client<'_>,
    dir: &[u8],
    cookie: u64,
    maxcount: u32,
    attr_request: Bitmap4,
) -> Result<Page, u32> {
    let arguments =
        ReadDir4Args { cookie, cookieverf: [0; 8], dircount: 0, maxcount, attr_request };
    let mut reply = client.run(&Ops::put(dir).op(Op4::ReadDir, &arguments));
    if reply.status != 0 {
        assert_eq!(reply.failure().0, Op4::ReadDir as u32);
        return Err(reply.failure().1);
    }
    reply.ok(Op4::PutFh);
    reply.ok(Op4::ReadDir);
    reply.take(|r| {
        let start = r.position();
        r.fixed_opaque(8).unwrap();
        let mut entries = Vec::new();
        while r.bool().unwrap() {
            let (cookie, name) = (r.u64().unwrap(), r.opaque(255).unwrap().to_vec());
            let bitmap = Bitmap4::decode(r).unwrap();
            entries.push((cookie, name, bitmap, r.opaque(1 << 16).unwrap().to_vec()));
        }
        let is_end = r.bool().unwrap();
        assert!(r.position() - start <= maxcount as usize, "{maxcount}");
        Ok(Page { entries, is_end })
    })
}

/// All names by pages of a size; `None` if a page is too small for an entry.
fn names(client: &Client<'_>, dir: &[u8], maxcount: u32, wanted: Bitmap4) -> Option<Vec<Vec<u8>>> {
    let (mut names, mut cookie) = (Vec::new(), 0);
    loop {
        let page = match list(client, dir, cookie, maxcount, wanted) {
            Ok(page) => page,
            Err(status) => {
                assert_eq!(status, NfsStat4::TooSmall as u32);
                return None;
            }
        };
        assert!(page.is_end || !page.entries.is_empty());
        for (next, name, ..) in page.entries {
            assert!(next > 2);
            cookie = next;
            names.push(name);
        }
        if page.is_end {
            return Some(names);
        }
    }
}

fn check_paging(client: &Client<'_>, dir: &[u8], expected: &[Vec<u8>], wanted: Bitmap4) {
    let mut was_told = false;
    for maxcount in (0..600).chain([4096, u32::MAX]) {
        match names(client, dir, maxcount, wanted) {
            None => assert!(!was_told || maxcount < 100, "{maxcount}"),
            Some(mut names) => {
                was_told = true;
                names.sort();
                assert_eq!(names, expected, "{maxcount}");
            }
        }
    }
    assert!(was_told);
}

#[test]
fn every_page_size_tells_every_name_once() {
    let server = Server::new();
    let client = Client::new(&server, b"c", sender(1));
    let root = client.handle(&[b"a"]);
    let mut expected = Vec::new();
    for number in 0..12_usize {
        let name = vec![b'a' + number as u8; number + 1];
        server.make_file(&root, &name, 0o644);
        expected.push(name);
    }
    check_paging(&client, &root, &expected, Bitmap4::EMPTY);
    check_paging(&client, &root, &expected, Bitmap4::of(&[Attribute4::Mode, Attribute4::FileId]));
    for cookie in [1, 2] {
        let refused = list(&client, &root, cookie, 1000, Bitmap4::EMPTY).err();
        assert_eq!(refused, Some(NfsStat4::BadCookie as u32));
    }
    let set = Bitmap4::of(&[Attribute4::TimeModifySet]);
    assert_eq!(list(&client, &root, 0, 1000, set).err(), Some(NfsStat4::Inval as u32));
    let file = client.handle(&[b"a", b"a"]);
    let refused = list(&client, &file, 0, 1000, Bitmap4::EMPTY).err();
    assert_eq!(refused, Some(NfsStat4::NotDir as u32));
}

/// Storage that counts how often it is opened.
struct Closed(Export, Arc<AtomicUsize>);

impl StorageSource for Closed {
    fn opened(&self) -> Option<&dyn FileSystem> {
        None
    }

    fn open(&self) -> Result<&dyn FileSystem, FsError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        self.0.storage.open()
    }

    fn expected_domain(&self) -> Option<FlushDomain> {
        self.0.storage.expected_domain()
    }
}

#[test]
fn a_thousand_shares_are_listed_without_their_storage() {
    let opened = Arc::new(AtomicUsize::new(0));
    let shares = (1..=1000_u64).map(|id| {
        let all = vec![rule("127.0.0.0", everything())];
        let export = export(share(id, &format!("/s/{id:04}"), all));
        let storage = Arc::new(Closed(export.clone(), Arc::clone(&opened)));
        Export { storage, ..export }
    });
    let server = Server::of(shares.collect());
    let client = Client::new(&server, b"c", sender(1));
    let dir = client.handle(&[b"s"]);
    let expected: Vec<_> = (1..=1000).map(|id| format!("{id:04}").into_bytes()).collect();
    for wanted in [
        Bitmap4::EMPTY,
        Bitmap4::of(&[Attribute4::MountedOnFileId]),
        Bitmap4::of(&[Attribute4::RdattrError, Attribute4::FileId, Attribute4::Mode]),
    ] {
        for maxcount in [200, 1000, 1 << 20] {
            let mut told = names(&client, &dir, maxcount, wanted).unwrap();
            told.sort();
            assert_eq!(told, expected);
        }
        let refused = list(&client, &dir, 1, 1000, wanted).err();
        assert_eq!(refused, Some(NfsStat4::BadCookie as u32));
    }
    assert_eq!(opened.load(Ordering::Relaxed), 0);
    let mut told = names(&client, &dir, 1 << 20, Bitmap4::of(&[Attribute4::Mode])).unwrap();
    told.sort();
    assert_eq!(told, expected, "whose attributes must be told, are opened bit by bit");
}

/// What GETATTR tells of an object.
fn attributes(client: &Client<'_>, handle: &[u8], attr_request: Bitmap4) -> (Bitmap4, Vec<u8>) {
    let ops = Ops::put(handle).op(Op4::GetAttr, &GetAttr4Args { attr_request });
    let mut reply = client.run(&ops).succeeds();
    reply.ok(Op4::PutFh);
    reply.ok(Op4::GetAttr);
    reply.take(|r| (Bitmap4::decode(r).unwrap(), r.opaque(1 << 16).unwrap().to_vec()))
}

const ONLY_SET: [Attribute4; 2] = [Attribute4::TimeAccessSet, Attribute4::TimeModifySet];

#[test]
fn attributes_alone_are_what_they_are_together() {
    let server = Server::new();
    let client = Client::new(&server, b"c", sender(1));
    let root = client.handle(&[b"a"]);
    let objects = [
        server.make_file(&root, b"f", 0o640),
        server.make_symlink(&root, b"l"),
        server.make_fifo(&root, b"p"),
        client.handle(&[]),
        root,
    ];
    for object in &objects {
        let (_, told) = attributes(&client, object, Bitmap4::of(&[Attribute4::SupportedAttrs]));
        let supported = Bitmap4::decode(&mut Reader::new(&told)).unwrap();
        let (mut together, mut told) = (Vec::new(), Vec::new());
        for attribute in Attribute4::ALL {
            let only = Bitmap4::of(&[*attribute]);
            if ONLY_SET.contains(attribute) {
                let ops = Ops::put(object).op(Op4::GetAttr, &GetAttr4Args { attr_request: only });
                client.run(&ops).fails(Op4::GetAttr, NfsStat4::Inval);
                continue;
            }
            let (bitmap, values) = attributes(&client, object, only);
            if supported.has(*attribute) {
                assert_eq!(bitmap, only, "{attribute:?}");
                assert!(!values.is_empty() && values.len() % 4 == 0);
                told.push(*attribute);
                together.extend_from_slice(&values);
                check_verify(&client, object, *attribute, &values);
            } else {
                assert!(bitmap.is_empty() && values.is_empty(), "{attribute:?}");
            }
        }
        let all = Bitmap4::of(&told);
        assert_eq!(attributes(&client, object, all), (all, together));
    }
}

fn check_verify(client: &Client<'_>, object: &[u8], attribute: Attribute4, values: &[u8]) {
    let mut other = values.to_vec();
    *other.last_mut().unwrap() ^= 1;
    let given = |attr_vals| {
        let obj_attributes = Fattr4 { attrmask: Bitmap4::of(&[attribute]), attr_vals };
        let arguments = Verify4Args { obj_attributes };
        [Op4::Verify, Op4::NVerify].map(|op| {
            let reply = client.run(&Ops::put(object).op(op, &arguments));
            if reply.status == 0 { 0 } else { reply.failure().1 }
        })
    };
    if attribute == Attribute4::RdattrError {
        assert_eq!(given(values), [NfsStat4::Inval as u32; 2]);
        return;
    }
    assert_eq!(given(values), [0, NfsStat4::Same as u32], "{attribute:?}");
    assert_eq!(given(&other), [NfsStat4::NotSame as u32, 0], "{attribute:?}");
}

#[test]
fn attributes_are_what_nfsv3_tells() {
    let server = Server::new();
    let client = Client::new(&server, b"c", sender(1));
    let root = client.handle(&[b"a"]);
    let file = server.make_file(&root, b"f", 0o640);
    let message = server.message(&client.from, 3, 1, &xdr(|w| w.opaque(&file)));
    let reply = server.send(&client.from, &message).unwrap();
    let old = &reply[HEADER_BYTES + 4..];
    let values = |attribute| attributes(&client, &file, Bitmap4::of(&[attribute])).1;
    assert_eq!(values(Attribute4::Type), old[..4]);
    assert_eq!(values(Attribute4::Mode), old[4..8]);
    assert_eq!(values(Attribute4::NumLinks), old[8..12]);
    assert_eq!(values(Attribute4::Owner), xdr(|w| w.opaque(b"0")));
    assert_eq!(values(Attribute4::Size), old[20..28]);
    assert_eq!(values(Attribute4::FileId), old[52..60]);
    let seconds = xdr(|w| w.u32(0));
    assert_eq!(values(Attribute4::TimeModify), [&seconds, &old[68..76]].concat());
    assert_eq!(values(Attribute4::TimeMetadata), [&seconds, &old[76..84]].concat());
    assert_eq!(values(Attribute4::FileHandle), xdr(|w| w.opaque(&file)));
    assert_eq!(values(Attribute4::RdattrError), [0; 4]);
}

#[test]
fn a_junction_has_the_number_that_its_parents_listing_tells() {
    let all = || vec![rule("127.0.0.0", everything())];
    let server = Server::of(vec![export(share(1, "/a", all())), export(share(2, "/b/in", all()))]);
    let client = Client::new(&server, b"c", sender(1));
    let mounted_on = Bitmap4::of(&[Attribute4::MountedOnFileId]);
    for (path, dir) in
        [(&[&b"a"[..]][..], client.handle(&[])), (&[b"b", b"in"], client.handle(&[b"b"]))]
    {
        for wanted in [mounted_on, Bitmap4::of(&[Attribute4::MountedOnFileId, Attribute4::Mode])] {
            let page = list(&client, &dir, 0, 4096, wanted).unwrap();
            let told = page.entries[0].3[page.entries[0].3.len() - 8..].to_vec();
            let (_, own) = attributes(&client, &client.handle(path), mounted_on);
            assert_eq!(told, own, "{path:?}");
        }
    }
}
