//! Handles, names and attributes, between the pseudo file system and shares.

use steadfast_engine::{Complaint, MountRefusal};
use steadfast_wire::nfs4::{NfsStat4, Op4};

use crate::bench::{Bench, Client, done, failed};

#[test]
fn names_lead_into_shares_and_back() {
    let bench = Bench::new();
    let mut client = Client::new(&bench, "names");
    let root = client.handle(&[]);
    let up = client.next(false).plain(Op4::PutRootFh).lookup("srv").lookup("a");
    let up = up.plain(Op4::LookupP).plain(Op4::LookupP).plain(Op4::GetFh);
    let result = client.send(&up);
    assert_eq!(result.ended(), done(7));
    assert!(result.bytes.ends_with(&{
        let mut end = root.clone();
        end.resize(root.len().next_multiple_of(4), 0);
        end
    }));
    let above = client.next(false).plain(Op4::PutRootFh).plain(Op4::LookupP);
    assert_eq!(client.send(&above).ended(), failed(NfsStat4::NoEnt, 3));
    for (name, status) in [
        ("missing", NfsStat4::NoEnt),
        ("other", NfsStat4::NoEnt),
        ("", NfsStat4::Inval),
        (".", NfsStat4::BadName),
        ("..", NfsStat4::BadName),
        ("a/b", NfsStat4::BadChar),
    ] {
        let ops = client.next(false).plain(Op4::PutRootFh).lookup(name);
        assert_eq!(client.send(&ops).ended(), failed(status, 3), "{name:?}");
    }
}

#[test]
fn a_mount_that_is_refused_is_complained_of() {
    let bench = Bench::new();
    let mut client = Client::new(&bench, "refused");
    let mut complaint = |path: &[&str]| {
        let ops = client.next(false).plain(Op4::PutRootFh);
        let ops = path.iter().fold(ops, |ops, name| ops.lookup(name));
        client.complaint(&ops)
    };
    let refused = |path: &str, why| Some(Complaint::MountRefused { path: path.to_owned(), why });
    assert_eq!(complaint(&["none"]), refused("/none", MountRefusal::NoShare));
    assert_eq!(complaint(&["srv", "none"]), refused("/srv/none", MountRefusal::NoShare));
    assert_eq!(complaint(&["srv", "a"]), None);
    // A file that is not there is nobody's mount.
    assert_eq!(complaint(&["srv", "a", "none"]), None);
    let long = "x".repeat(255);
    let Some(Complaint::MountRefused { path, .. }) = complaint(&["srv", &long]) else {
        panic!("refused")
    };
    assert_eq!(path.len(), 256, "a client does not fill the log");
}

#[test]
fn operations_need_what_they_work_on() {
    let bench = Bench::new();
    let mut client = Client::new(&bench, "needs");
    for op in [Op4::GetFh, Op4::SaveFh, Op4::LookupP, Op4::ReadLink] {
        let ops = client.next(false).plain(op);
        assert_eq!(client.send(&ops).ended(), failed(NfsStat4::NoFileHandle, 2), "{op:?}");
    }
    let ops = client.next(false).plain(Op4::PutRootFh).plain(Op4::RestoreFh);
    assert_eq!(client.send(&ops).ended(), failed(NfsStat4::RestoreFh, 3));
    let ops = client.next(false).put(&[1; 32]);
    assert_eq!(client.send(&ops).ended(), failed(NfsStat4::BadHandle, 2));
    let node = client.handle(&["srv"]);
    let ops = client.next(false).put(&node).plain(Op4::GetFh);
    assert_eq!(client.send(&ops).ended(), done(3));
}

#[test]
fn a_read_only_share_is_not_changed() {
    let bench = Bench::new();
    let mut client = Client::new(&bench, "read only");
    let dir = client.handle(&["srv", "ro"]);
    let ops = client.next(false).put(&dir).open(b"o", "new");
    assert_eq!(client.send(&ops).ended(), failed(NfsStat4::RoFs, 3));
    let ops = client.next(false).put(&dir).op(Op4::Remove, |w| w.opaque(b"x"));
    assert_eq!(client.send(&ops).ended(), failed(NfsStat4::RoFs, 3));
    let node = client.handle(&["srv"]);
    let ops = client.next(false).put(&node).op(Op4::Remove, |w| w.opaque(b"a"));
    assert_eq!(client.send(&ops).ended(), failed(NfsStat4::RoFs, 3));
}
