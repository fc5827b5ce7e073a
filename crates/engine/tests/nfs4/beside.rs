//! What NFSv3 tells of a file beside what it is asked for, while the file is delegated to write: nothing, so that its
//! client asks, and waits for the holder. NFSv2 has to tell something, and waits each time.

use steadfast_wire::nfs4::OpenClaim4;
use steadfast_xdr::Reader;

use crate::compounds::{HEADER_BYTES, words, xdr};
use crate::delegations::{BOTH, Bench, READ, SECOND, delegated, open, returns};
use crate::harness::sender;
use crate::holders::{Waiting, held, question, told};

const NFS_ACL: u32 = 100_227;
const MOUNT: u32 = 100_005;
const FATTR3_BYTES: usize = 84;
const PRE_OP_BYTES: usize = 24;
const NOT_A_DIRECTORY: u32 = 20;
/// Made by an exclusive CREATE with this verifier.
const NAME: &[u8] = b"x";
const VERIFIER: u64 = 7;

/// A call of another program.
fn message(bench: &Bench, program: u32, (version, procedure): (u32, u32), body: &[u8]) -> Vec<u8> {
    let mut message = bench.server.message(&sender(2), version, procedure, body);
    message[12..16].copy_from_slice(&program.to_be_bytes());
    message
}

/// The result of a call that succeeds.
fn call(bench: &Bench, program: u32, procedure: (u32, u32), body: &[u8]) -> Vec<u8> {
    let message = message(bench, program, procedure, body);
    let reply = bench.server.send(&sender(2), &message).unwrap();
    assert_eq!(Reader::new(&reply[HEADER_BYTES..]).u32(), Ok(0), "{procedure:?}");
    reply[HEADER_BYTES + 4..].to_vec()
}

fn follows(r: &mut Reader<'_>, bytes: usize) -> bool {
    let follows = r.bool().unwrap();
    if follows {
        r.fixed_opaque(bytes).unwrap();
    }
    follows
}

/// Makes the file exclusively, or finds that it was made so: its handle, and whether attributes follow.
fn create(bench: &Bench) -> (Vec<u8>, bool) {
    let body = xdr(|w| {
        w.opaque(&bench.root);
        w.opaque(NAME);
        w.u32(2);
        w.u64(VERIFIER);
    });
    let made = call(bench, 100_003, (3, 8), &body);
    let mut r = Reader::new(&made);
    assert!(r.bool().unwrap());
    (r.opaque(64).unwrap().to_vec(), follows(&mut r, FATTR3_BYTES))
}

fn is_told_by_readdirplus(bench: &Bench) -> bool {
    let body = xdr(|w| {
        w.opaque(&bench.root);
        w.u64(0);
        w.u64(0);
        w.u32(4096);
        w.u32(4096);
    });
    let list = call(bench, 100_003, (3, 17), &body);
    let mut r = Reader::new(&list);
    assert!(follows(&mut r, FATTR3_BYTES), "of the directory");
    r.u64().unwrap();
    let mut told = None;
    while r.bool().unwrap() {
        r.u64().unwrap();
        let is_it = r.opaque(255).unwrap() == NAME;
        r.u64().unwrap();
        let is_told = follows(&mut r, FATTR3_BYTES);
        assert!(is_it || is_told, "of another file");
        told = told.or(is_it.then_some(is_told));
        assert!(r.bool().unwrap(), "the handle is told in any case");
        r.opaque(64).unwrap();
    }
    told.unwrap()
}

/// Whether attributes of the file follow: LOOKUP, ACCESS, READDIRPLUS, CREATE, FSSTAT, FSINFO, PATHCONF, GETACL, COMMIT.
fn told_beside(bench: &Bench, file: &[u8]) -> [bool; 9] {
    let of_file = |program, number, more: &[u32]| {
        let body = [xdr(|w| w.opaque(file)), words(more)].concat();
        let reply = call(bench, program, (3, number), &body);
        follows(&mut Reader::new(&reply), FATTR3_BYTES)
    };
    let name = xdr(|w| {
        w.opaque(&bench.root);
        w.opaque(NAME);
    });
    let found = call(bench, 100_003, (3, 3), &name);
    let mut r = Reader::new(&found);
    assert_eq!(r.opaque(64), Ok(file));
    let lookup = follows(&mut r, FATTR3_BYTES);
    assert!(follows(&mut r, FATTR3_BYTES), "of the directory");
    let commit = [xdr(|w| w.opaque(file)), words(&[0, 0, 0])].concat();
    let commit = call(bench, 100_003, (3, 21), &commit);
    let mut r = Reader::new(&commit);
    let has_before = follows(&mut r, PRE_OP_BYTES);
    let has_after = follows(&mut r, FATTR3_BYTES);
    assert!(has_after || !has_before);
    [
        lookup,
        of_file(100_003, 4, &[1]),
        is_told_by_readdirplus(bench),
        create(bench).1,
        of_file(100_003, 18, &[]),
        of_file(100_003, 19, &[]),
        of_file(100_003, 20, &[]),
        of_file(NFS_ACL, 1, &[0]),
        has_after,
    ]
}

/// Taken for all that there is, they would have a client read what it has kept of the file.
#[test]
fn of_a_file_that_may_be_written_unseen_nothing_is_told_beside() {
    let bench = Bench::new();
    let (one, two) = (bench.client(b"one", 1), bench.client(b"two", 2));
    let (file, is_told) = create(&bench);
    assert!(is_told);
    let of_nobody = told_beside(&bench, &file);
    assert_eq!(of_nobody, [true; 9]);
    let to_read = delegated(&one, &file, READ);
    assert_eq!(told_beside(&bench, &file), of_nobody, "nobody writes it");
    assert_eq!(returns(&one, &file, to_read), 0);
    let delegation = delegated(&one, &file, BOTH);
    assert_eq!(told_beside(&bench, &file), [false; 9]);
    // Nor of what is no directory.
    let within = message(
        &bench,
        100_003,
        (3, 3),
        &xdr(|w| {
            w.opaque(&file);
            w.opaque(NAME);
        }),
    );
    let reply = bench.server.send(&sender(2), &within).unwrap();
    assert_eq!(reply[HEADER_BYTES..], words(&[NOT_A_DIRECTORY, 0]));
    bench.tick(SECOND);
    assert!(bench.wires.sent.lock().unwrap().is_empty(), "nobody is asked");
    // Also while it is recalled.
    assert!(open(&two, &file, READ, OpenClaim4::Fh).is_err());
    assert_eq!(told_beside(&bench, &file), [false; 9]);
    assert_eq!(returns(&one, &file, delegation), 0);
    assert_eq!(told_beside(&bench, &file), of_nobody);
}

/// The handles of the directory and of what it finds.
const HANDLE2_BYTES: usize = 32;

/// Handle and size that LOOKUP of NFSv2 tells.
fn found2(reply: &[u8]) -> (Vec<u8>, u32) {
    let mut r = Reader::new(&reply[HEADER_BYTES..]);
    assert_eq!(r.u32(), Ok(0));
    let handle = r.fixed_opaque(HANDLE2_BYTES).unwrap().to_vec();
    r.fixed_opaque(5 * 4).unwrap();
    (handle, r.u32().unwrap())
}

#[test]
fn by_nfs2_a_lookup_is_a_look() {
    let bench = Bench::new();
    let (one, two, delegation, stored) = held(&bench);
    let root = call(&bench, MOUNT, (1, 1), &xdr(|w| w.opaque(b"/a")));
    let name = xdr(|w| {
        w.fixed_opaque(&root[..HANDLE2_BYTES]);
        w.opaque(b"f");
    });
    let by_nfs2 = |procedure, body: &[u8]| {
        let message = bench.server.message(&sender(2), 2, procedure, body);
        Waiting::new(&bench, &sender(2), message)
    };
    let mut looks = by_nfs2(4, &name);
    assert!(looks.waits());
    bench.answers(&one.from, &question(&bench).tells(stored.change, stored.size));
    let (file, size) = found2(&looks.replied());
    assert_eq!(u64::from(size), stored.size);
    let mut looks = by_nfs2(1, &file);
    assert!(looks.waits());
    bench.answers(&one.from, &question(&bench).tells(stored.change, stored.size));
    assert_eq!(Reader::new(&looks.replied()[HEADER_BYTES..]).u32(), Ok(0));
    // Refused, it gets no reply; its client sends it again.
    let mut looks = by_nfs2(4, &name);
    question(&bench);
    let call = looks.host.suspended.take().unwrap();
    let mut reply = Vec::new();
    bench.server.engine.refuse(call, &mut reply);
    assert_eq!((reply.len(), bench.recalls()[0].stateid), (0, delegation));
    let mut looks = by_nfs2(4, &name);
    assert!(looks.waits());
    assert_eq!(returns(&one, &bench.file, delegation), 0);
    assert_eq!(found2(&looks.replied()).0, file);
    assert_eq!(told(&two, &bench.file), Ok(stored));
    let counts = bench.server.engine.statistics().delegations;
    assert_eq!((counts.asked, counts.unasked, counts.recalled), (3, 1, 1));
}
