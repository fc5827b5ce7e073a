//! A server that is killed and started again: no client notices.

use steadfast_wire::nfs4::{NfsStat4, Op4};

use crate::bench::{Bench, Client, Ops, done, failed};

fn open_and_lock(ops: Ops, dir: &[u8], owner: &[u8]) -> Ops {
    ops.put(dir).open(owner, "file").lock_by_open(owner).plain(Op4::GetFh)
}

#[test]
fn a_lock_is_held_and_its_reply_is_said_again() {
    let bench = Bench::new();
    let mut holder = Client::new(&bench, "holder");
    let other = Client::new(&bench, "other");
    let dir = holder.handle(&["srv", "a"]);
    let lock = open_and_lock(holder.next(false), &dir, b"h");
    let locked = holder.send(&lock);
    assert_eq!(locked.ended(), done(5));

    for _ in 0..2 {
        let bench = bench.restarted();
        let (mut holder, other) = (holder.at(&bench), other.at(&bench));
        assert_eq!(holder.send(&lock), locked, "it is not executed again");
        let refused = other.send(&open_and_lock(other.sequence_of(1, 1, false), &dir, b"o"));
        assert_eq!(refused.ended(), failed(NfsStat4::Denied, 4));
        let look = holder.next(false).put(&dir).plain(Op4::GetFh);
        assert_eq!(holder.send(&look).ended(), done(3), "the session goes on");
    }

    // Who is gone when the server is killed is gone.
    let destroy = Ops::default().op(Op4::DestroySession, |w| w.fixed_opaque(&other.session));
    assert_eq!(other.send(&destroy).ended(), done(1));
    let bench = bench.restarted();
    let mut other = other.at(&bench);
    let look = other.next(false).plain(Op4::PutRootFh);
    assert_eq!(other.send(&look).ended(), failed(NfsStat4::BadSession, 1));
}

#[test]
fn a_change_is_not_made_again() {
    let bench = Bench::new();
    let mut client = Client::new(&bench, "changes");
    let dir = client.handle(&["srv", "a"]);
    let ops = client.next(false).put(&dir).open(b"o", "made");
    assert_eq!(client.send(&ops).ended(), done(3));
    let remove = client.next(false).put(&dir).op(Op4::Remove, |w| w.opaque(b"made"));
    let removed = client.send(&remove);
    assert_eq!(removed.ended(), done(3));
    let bench = bench.restarted();
    let client = client.at(&bench);
    assert_eq!(client.send(&remove), removed);
}

#[test]
fn what_was_only_looked_at_is_executed_again() {
    let bench = Bench::new();
    let mut client = Client::new(&bench, "looks");
    let look = client.next(false).plain(Op4::PutRootFh).plain(Op4::GetFh);
    let seen = client.send(&look);
    assert_eq!(seen.ended(), done(3));
    let bench = bench.restarted();
    let client = client.at(&bench);
    assert_eq!(client.send(&look), seen);
}
