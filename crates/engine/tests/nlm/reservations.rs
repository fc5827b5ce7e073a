//! SHARE and UNSHARE: what a host reserves, others are denied.

use super::*;

#[test]
fn reservations_are_taken_and_given_up() {
    let (server, one, two) = two();
    let share = |client: &Client, procedure, mode, access| {
        let (caller_name, fh) = (client.name.as_bytes(), &*client.handle);
        let args = v4::ShareArgs {
            cookie: b"cook",
            caller_name,
            fh,
            oh: b"owner",
            mode,
            access,
            reclaim: false,
        };
        let reply = server.call(&client.peer, (NLM, 4, procedure), &xdr(&args));
        let mut r = Reader::new(&reply);
        let res = v4::ShareRes::decode(&mut r).unwrap();
        assert!(r.is_empty() && res.cookie == b"cook");
        res.stat
    };
    let (none, write) = (ShareMode::DenyNone, ShareMode::DenyWrite);
    assert_eq!(share(&one, 20, write, ShareAccess::Read), NlmStat::Granted);
    assert_eq!(share(&two, 20, none, ShareAccess::Write), NlmStat::Denied);
    assert_eq!(share(&two, 20, none, ShareAccess::Read), NlmStat::Granted);
    assert_eq!(share(&one, 21, write, ShareAccess::Read), NlmStat::Granted);
    assert_eq!(share(&one, 21, write, ShareAccess::Read), NlmStat::Granted);
    assert_eq!(share(&two, 20, none, ShareAccess::Write), NlmStat::Granted);
}

/// `NFS3ERR_ACCES`.
const ACCESS: u32 = 13;

#[test]
fn what_is_reserved_is_denied_to_other_hosts_by_nfsv3() {
    let (server, one, two) = two();
    let share = |client: &Client, procedure, mode| {
        let (caller_name, fh) = (client.name.as_bytes(), &*client.handle);
        let args = v4::ShareArgs {
            cookie: b"cook",
            caller_name,
            fh,
            oh: b"owner",
            mode,
            access: ShareAccess::Both,
            reclaim: false,
        };
        let reply = server.call(&client.peer, (NLM, 4, procedure), &xdr(&args));
        v4::ShareRes::decode(&mut Reader::new(&reply)).unwrap().stat
    };
    // The status of a READ, and of a WRITE of one byte.
    let io = |client: &Client| {
        let mut handle = Vec::new();
        Writer::new(&mut handle).opaque(&client.handle);
        let status = |procedure, words: &[u32]| {
            let words = words.iter().copied().flat_map(u32::to_be_bytes);
            let arguments: Vec<u8> = handle.iter().copied().chain(words).collect();
            Reader::new(&server.call(&client.peer, (NFS, 3, procedure), &arguments)).u32().unwrap()
        };
        (status(6, &[0, 0, 1]), status(7, &[0, 0, 1, 2, 1, 0]))
    };
    assert_eq!((io(&one), io(&two)), ((0, 0), (0, 0)));
    assert_eq!(share(&one, 20, ShareMode::DenyWrite), NlmStat::Granted);
    assert_eq!((io(&one), io(&two)), ((0, 0), (0, ACCESS)));
    assert_eq!(share(&one, 20, ShareMode::DenyBoth), NlmStat::Granted);
    assert_eq!((io(&one), io(&two)), ((0, 0), (ACCESS, ACCESS)));
    assert_eq!(share(&one, 20, ShareMode::DenyNone), NlmStat::Granted);
    assert_eq!((io(&one), io(&two)), ((0, 0), (0, 0)));
    assert_eq!(share(&one, 20, ShareMode::DenyRead), NlmStat::Granted);
    assert_eq!((io(&one), io(&two)), ((0, 0), (ACCESS, 0)));
    server.call(&one.peer, (NLM, 4, 23), &xdr(&v1::Notify { name: b"one", state: 5 }));
    assert_eq!((io(&one), io(&two)), ((0, 0), (0, 0)), "it has restarted");
}
