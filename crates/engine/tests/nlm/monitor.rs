//! NSM, and who says that a host has restarted.

use super::*;

#[test]
fn hosts_that_restart_lose_their_locks() {
    let (server, one, two) = two();
    let notify = |client: &Client, name: &[u8], state| {
        let change = nsm::StateChange { mon_name: name, state };
        assert!(server.call(&client.peer, (NSM, 1, 6), &xdr(&change)).is_empty());
        server.engine.hosts_with_locks().len()
    };
    assert_eq!(server.lock(&one, 1, true, false), NlmStat::Granted);
    assert_eq!(server.lock(&two, 1, true, true), NlmStat::Blocked);
    assert_eq!(notify(&two, b"one", 5), 2, "somebody else says so");
    assert_eq!(notify(&one, b"one", 3), 2, "an old number");
    assert_eq!(notify(&one, b"one", 5), 1);
    assert_eq!(server.sent().len(), 1);
    // FREE_ALL says so without a monitor, which NM_LOCK is for.
    assert_eq!(server.unlock(&two, 1), NlmStat::Granted);
    let recorded = server.sent.recorded.lock().unwrap().len();
    let three = Client::new(3, "three", &one.handle);
    let lock = xdr(&three.lock_args(1, true, false));
    assert_eq!(server.stat(&three, 4, 22, &lock), NlmStat::Granted);
    assert_eq!(server.sent.recorded.lock().unwrap().len(), recorded);
    let free = xdr(&v4::Notify { name: b"three", state: 0 });
    assert!(server.call(&two.peer, (NLM, 4, 23), &free).is_empty());
    assert_eq!(server.engine.hosts_with_locks().len(), 1);
    assert!(server.call(&three.peer, (NLM, 3, 23), &free).is_empty());
    assert!(server.engine.hosts_with_locks().is_empty());
}

#[test]
fn not_any_user_of_a_host_can_say_that_it_has_restarted() {
    let (server, one, _) = two();
    let user = Peer::new("10.0.0.1:4000".parse().unwrap(), one.peer.local, Transport::Udp);
    assert_eq!(server.lock(&one, 1, true, false), NlmStat::Granted);
    let change = xdr(&nsm::StateChange { mon_name: b"one", state: 0x7fff_ffff });
    server.call(&user, (NSM, 1, 6), &change);
    let free = xdr(&v4::Notify { name: b"one", state: 0 });
    server.call(&user, (NLM, 4, 23), &free);
    assert_eq!(server.engine.hosts_with_locks().len(), 1);
    // A duplicate that comes late frees nothing of what came after it.
    let message = server.message_of(0, (NLM, 4, 23), &free);
    server.send(&one.peer, &message).unwrap();
    assert_eq!(server.engine.hosts_with_locks().len(), 0);
    assert_eq!(server.lock(&one, 1, true, false), NlmStat::Granted);
    server.send(&one.peer, &message).unwrap();
    assert_eq!(server.engine.hosts_with_locks().len(), 1);
}

#[test]
fn the_monitor_watches_nobody_for_others() {
    let server = Server::new();
    let peer = peer("10.0.0.1", Transport::Udp);
    let name = xdr(&nsm::Name { mon_name: b"x" });
    let failed = xdr(&nsm::StatRes { res_stat: nsm::SmRes::Failed, state: 5 });
    assert_eq!(server.call(&peer, (NSM, 1, 1), &name), failed);
    let my_id = nsm::MyId { my_name: b"m", my_prog: 1, my_vers: 1, my_proc: 1 };
    let mon_id = nsm::MonId { mon_name: b"x", my_id };
    let mon = xdr(&nsm::Mon { mon_id, private: [0; 16] });
    assert_eq!(server.call(&peer, (NSM, 1, 2), &mon), failed);
    let state = xdr(&nsm::Stat { state: 5 });
    assert_eq!(server.call(&peer, (NSM, 1, 3), &xdr(&mon_id)), state);
    assert_eq!(server.call(&peer, (NSM, 1, 4), &xdr(&my_id)), state);
    assert!(server.call(&peer, (NSM, 1, 5), b"").is_empty());
    assert!(server.call(&peer, (NSM, 1, 0), b"").is_empty());
}
