//! LOOKUP, LOOKUPP, handles, junctions, and by which flavour what may be used.

use steadfast_engine::ExportTable;
use steadfast_shares::{Flavor, Flavors, Rights};
use steadfast_wire::nfs4::{
    Bitmap4, GetAttr4Args, NfsStat4, Op4, SecInfo4Args, SecInfoNoName4Args,
};

use crate::compounds::{HEADER_BYTES, Ops, words, xdr};
use crate::harness::{Client, Server, everything, export, rule, sender, share};

/// Shares: `/a`, `/a/in` in it, `/b/deep/c`, one refused, one for `AUTH_NONE`, one draining, and one
/// in `/a` for `AUTH_NONE`.
fn shares() -> Vec<steadfast_engine::Export> {
    let all = || vec![rule("127.0.0.0", everything())];
    let nobody = || vec![rule("10.0.0.0", everything())];
    let none = || {
        let rights = Rights { flavors: Flavors::NONE, ..everything() };
        vec![rule("127.0.0.0", rights)]
    };
    let mut draining = share(6, "/draining", all());
    draining.is_draining = true;
    vec![
        export(share(1, "/a", all())),
        export(share(2, "/a/in", all())),
        export(share(3, "/b/deep/c", all())),
        export(share(4, "/refused", nobody())),
        export(share(5, "/none", none())),
        export(draining),
        export(share(7, "/a/none", none())),
        export(share(8, "/hidden/by/rules", nobody())),
    ]
}

fn server() -> Server {
    let server = Server::of(shares());
    let client = Client::new(&server, b"setup", sender(9));
    let root = client.handle(&[b"a"]);
    for name in [&b"in"[..], b"none", b"d"] {
        server.make_directory(&root, name);
    }
    let inner = client.handle(&[b"a", b"in"]);
    server.make_file(&inner, b"inside", 0o644);
    server.make_file(&root, b"f", 0o644);
    server.make_symlink(&root, b"l");
    server
}

#[test]
fn what_is_no_name_is_refused() {
    let server = server();
    let client = Client::new(&server, b"c", sender(1));
    let long = [b'n'; 256];
    let cases: [(&[u8], &[NfsStat4]); 7] = [
        (b"", &[NfsStat4::Inval]),
        (b".", &[NfsStat4::BadName]),
        (b"..", &[NfsStat4::BadName]),
        (b"a/b", &[NfsStat4::BadChar, NfsStat4::BadName]),
        (b"a\0b", &[NfsStat4::BadChar, NfsStat4::Inval]),
        (&long, &[NfsStat4::NameTooLong]),
        (b"nothing", &[NfsStat4::NoEnt]),
    ];
    for dir in [&[][..], &[&b"b"[..]], &[&b"a"[..]], &[&b"a"[..], b"d"]] {
        for (name, statuses) in cases {
            let (op, status) = client.run(&Ops::at(dir).look_up(name)).failure();
            assert_eq!(op, Op4::Lookup as u32);
            assert!(statuses.iter().any(|it| *it as u32 == status), "{name:?} {status}");
            let ops = Ops::at(dir).op(Op4::SecInfo, &SecInfo4Args { name });
            assert_eq!(client.run(&ops).failure(), (Op4::SecInfo as u32, status));
        }
    }
    for (file, status) in [(&b"f"[..], NfsStat4::NotDir), (b"l", NfsStat4::SymLink)] {
        for name in [&b"x"[..], b".."] {
            client.run(&Ops::at(&[b"a", file, name])).fails(Op4::Lookup, status);
        }
        client.run(&Ops::at(&[b"a", file]).bare(Op4::LookupP)).fails(Op4::LookupP, status);
        // These two have no status for symbolic links.
        let ops = Ops::at(&[b"a", file]).op(Op4::SecInfo, &SecInfo4Args { name: b"x" });
        client.run(&ops).fails(Op4::SecInfo, NfsStat4::NotDir);
        let parent = SecInfoNoName4Args { style: 1 };
        let ops = Ops::at(&[b"a", file]).op(Op4::SecInfoNoName, &parent);
        client.run(&ops).fails(Op4::SecInfoNoName, NfsStat4::NotDir);
    }
}

#[test]
fn the_way_up_is_the_way_down() {
    let server = server();
    let client = Client::new(&server, b"c", sender(1));
    let paths: [&[&[u8]]; 6] =
        [&[b"a"], &[b"a", b"d"], &[b"a", b"in"], &[b"b"], &[b"b", b"deep"], &[b"b", b"deep", b"c"]];
    for path in paths {
        let up = Ops::at(path).bare(Op4::LookupP).bare(Op4::GetFh);
        let above = client.handle(&path[..path.len() - 1]);
        assert_eq!(client.run(&up).succeeds().handle(), above, "{path:?}");
    }
    client.run(&Ops::at(&[]).bare(Op4::LookupP)).fails(Op4::LookupP, NfsStat4::NoEnt);
    client.run(&Ops::at(&[b"a", b"in", b"inside"])).succeeds();
}

#[test]
fn shares_are_entered_by_whom_they_are_for() {
    let server = server();
    let sys = Client::new(&server, b"c", sender(1));
    let mut from = sender(2);
    from.flavor = Flavor::None;
    let none = Client::new(&server, b"n", from);
    let (_, status) = sys.run(&Ops::at(&[b"refused"])).failure();
    assert!([NfsStat4::Access as u32, NfsStat4::NoEnt as u32].contains(&status));
    sys.run(&Ops::at(&[b"hidden"])).fails(Op4::Lookup, NfsStat4::NoEnt);
    sys.run(&Ops::at(&[b"draining"])).fails(Op4::Lookup, NfsStat4::Access);
    sys.run(&Ops::at(&[b"none"])).fails(Op4::Lookup, NfsStat4::WrongSec);
    sys.run(&Ops::at(&[b"a", b"none"])).fails(Op4::Lookup, NfsStat4::WrongSec);
    none.run(&Ops::at(&[b"none"])).succeeds();
    none.run(&Ops::at(&[b"a"])).fails(Op4::Lookup, NfsStat4::WrongSec);
}

#[test]
fn flavours_are_told_to_whoever_came_by_a_wrong_one() {
    let server = server();
    let sys = Client::new(&server, b"c", sender(1));
    let flavors = |dir: &[&[u8]], name: &[u8]| {
        let ops = Ops::at(dir).op(Op4::SecInfo, &SecInfo4Args { name });
        let reply = sys.run(&ops).succeeds();
        let at = reply.body.windows(8).rposition(|it| it == words(&[Op4::SecInfo as u32, 0]));
        reply.body[at.unwrap() + 8..].to_vec()
    };
    assert_eq!(flavors(&[], b"none"), words(&[1, 0]));
    assert_eq!(flavors(&[], b"a"), words(&[1, 1]));
    assert_eq!(flavors(&[b"a"], b"in"), words(&[1, 1]));
    assert_eq!(flavors(&[b"a"], b"none"), words(&[1, 0]), "a share in a share");
    for style in [0, 1] {
        let ops = Ops::at(&[b"a", b"d"]).op(Op4::SecInfoNoName, &SecInfoNoName4Args { style });
        sys.run(&ops.clone().bare(Op4::GetFh)).fails(Op4::GetFh, NfsStat4::NoFileHandle);
        sys.run(&ops).succeeds();
    }
    let ops = Ops::at(&[]).op(Op4::SecInfoNoName, &SecInfoNoName4Args { style: 1 });
    sys.run(&ops).fails(Op4::SecInfoNoName, NfsStat4::NoEnt);
    let ops = Ops::at(&[b"a", b"f"]).op(Op4::SecInfo, &SecInfo4Args { name: b"x" });
    sys.run(&ops).fails(Op4::SecInfo, NfsStat4::NotDir);
}

#[test]
fn what_needs_a_handle_says_so() {
    let server = server();
    let client = Client::new(&server, b"c", sender(1));
    let needing = [Op4::GetFh, Op4::SaveFh, Op4::LookupP, Op4::ReadLink];
    for op in needing {
        client.run(&Ops::new().bare(op)).fails(op, NfsStat4::NoFileHandle);
    }
    let needing = [
        Op4::Access,
        Op4::GetAttr,
        Op4::Lookup,
        Op4::Verify,
        Op4::NVerify,
        Op4::Open,
        Op4::Read,
        Op4::ReadDir,
        Op4::SecInfo,
        Op4::SecInfoNoName,
        Op4::Close,
        Op4::OpenDowngrade,
    ];
    for (op, arguments) in crate::positions::with_arguments() {
        if needing.contains(&op) {
            let ops = Ops::new().raw(op as u32, &arguments);
            client.run(&ops).fails(op, NfsStat4::NoFileHandle);
        }
    }
    client.run(&Ops::at(&[]).bare(Op4::RestoreFh)).fails(Op4::RestoreFh, NfsStat4::RestoreFh);
}

#[test]
fn handles_are_those_of_nfsv3_but_for_the_pseudo_file_system() {
    let server = server();
    let client = Client::new(&server, b"c", sender(1));
    let get_attributes = |handle: &[u8]| {
        let message = server.message(&client.from, 3, 1, &xdr(|w| w.opaque(handle)));
        let reply = server.send(&client.from, &message).unwrap();
        reply[HEADER_BYTES..HEADER_BYTES + 4].to_vec()
    };
    let file = client.handle(&[b"a", b"f"]);
    assert_eq!(get_attributes(&file), words(&[0]));
    let node = client.handle(&[b"b"]);
    assert_eq!(get_attributes(&node), words(&[10_001]), "NFS3ERR_BADHANDLE");
    let root = client.handle(&[b"a"]);
    let made = server.make_file(&root, b"made", 0o644);
    assert_eq!(client.handle(&[b"a", b"made"]), made);
    for handle in [&file, &node] {
        for at in 0..handle.len() {
            let mut bad = handle.clone();
            bad[at] ^= 1;
            client.run(&Ops::put(&bad)).fails(Op4::PutFh, NfsStat4::BadHandle);
        }
        client.run(&Ops::put(&handle[..handle.len() - 1])).fails(Op4::PutFh, NfsStat4::BadHandle);
    }
    client.run(&Ops::put(b"")).fails(Op4::PutFh, NfsStat4::BadHandle);
    client.run(&Ops::put(&[0; 129])).fails(Op4::PutFh, NfsStat4::BadXdr);
}

#[test]
fn handles_of_shares_that_are_gone_are_stale() {
    let server = server();
    let client = Client::new(&server, b"c", sender(1));
    let file = client.handle(&[b"a", b"f"]);
    let node = client.handle(&[b"b", b"deep"]);
    let kept = server.engine.exports().sorted().into_iter().cloned().collect::<Vec<_>>();
    server.engine.set_exports(ExportTable::default());
    for handle in [&file, &node] {
        client.run(&Ops::put(handle)).fails(Op4::PutFh, NfsStat4::Stale);
    }
    client.run(&Ops::at(&[])).succeeds();
    client.run(&Ops::at(&[b"a"])).fails(Op4::Lookup, NfsStat4::NoEnt);
    server.engine.set_exports(ExportTable::new(kept));
    for handle in [&file, &node] {
        client.run(&Ops::put(handle)).succeeds();
    }
}

#[test]
fn a_share_may_be_the_root() {
    let all = vec![rule("127.0.0.0", everything())];
    let server = Server::of(vec![export(share(1, "/", all.clone())), export(share(2, "/a", all))]);
    let client = Client::new(&server, b"c", sender(1));
    let root = client.handle(&[]);
    server.make_directory(&root, b"a");
    server.make_file(&root, b"f", 0o644);
    client.run(&Ops::at(&[b"f"])).succeeds();
    let up = client.run(&Ops::at(&[b"a"]).bare(Op4::LookupP).bare(Op4::GetFh)).succeeds();
    assert_eq!(up.handle(), root);
    client.run(&Ops::at(&[]).bare(Op4::LookupP)).fails(Op4::LookupP, NfsStat4::NoEnt);
    let attributes = GetAttr4Args { attr_request: Bitmap4::EMPTY };
    client.run(&Ops::at(&[]).op(Op4::GetAttr, &attributes)).succeeds();
}
