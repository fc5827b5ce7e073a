//! The session at work, with a server in this process that loses what it is told to.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use steadfast_client::nfs4::{ACCESS_READ, ACCESS_WRITE, ANONYMOUS, StateId4};
use steadfast_client::nlm::NlmStat;
use steadfast_client::{ClientError, FileHandle, Identity};
use steadfast_wire::nfs4::{Op4, Remove4Args};

use super::fake::{Fake, USER, until};
use super::held_locks::{Holder4, Holding};
use super::keeper::walk;
use super::locks::LockAsker;
use super::session::{Manner, Outcome, Requests};
use crate::transport::Patience;

fn requests(fake: &Fake, patience: Patience) -> Requests {
    let client = Arc::clone(&fake.client);
    let caller = client.caller(patience);
    Requests { client, caller, identity: USER, is_keeper: false }
}

/// Removes a name; whether the answer may be that to a repetition.
fn remove(fake: &Fake, name: &str, patience: Patience) -> Outcome<bool> {
    let mut requests = requests(fake, patience);
    remove_by(&mut requests, name)?;
    Ok(requests.caller.repeats.is_noted())
}

fn remove_by(requests: &mut Requests, name: &str) -> Outcome<()> {
    let arguments = Remove4Args { target: name.as_bytes() };
    requests.request(
        Manner::changing("REMOVE"),
        |compound| compound.put_root().op(Op4::Remove, &arguments),
        |reply| {
            reply.done(Op4::PutRootFh)?;
            reply.change(Op4::Remove).map(drop)
        },
    )?;
    Ok(())
}

fn removed(fake: &Fake) -> Vec<String> {
    let removed = fake.state.lock().removed.clone();
    removed.into_iter().map(|name| String::from_utf8(name).unwrap()).collect()
}

#[test]
fn what_is_sent_again_is_executed_once() {
    let fake = Fake::start();
    fake.state.lock().loses_replies = 2;
    // A server that was restarted may have kept the session and no replies: nobody can tell.
    assert!(remove(&fake, "a", Patience::default()).unwrap());
    assert!(!remove(&fake, "b", Patience::default()).unwrap());
    assert_eq!(removed(&fake), ["a", "b"]);
    assert_eq!(fake.state.lock().sessions, 1);
}

#[test]
fn the_slot_of_a_change_that_was_executed_and_then_refused_is_no_other_changes() {
    let fake = Fake::start();
    {
        let mut state = fake.state.lock();
        (state.loses_replies, state.denies) = (1, 1);
    }
    let mut requests = requests(&fake, Patience::default());
    let error = remove_by(&mut requests, "a").unwrap_err();
    assert!(matches!(error, ClientError::Denied(_)), "{error}");
    assert!(requests.caller.repeats.is_noted());
    assert!(!remove(&fake, "b", Patience::default()).unwrap());
    assert_eq!(removed(&fake), ["a", "b"]);
}

#[test]
fn a_change_whose_session_is_lost_is_made_again_and_known_as_that() {
    let fake = Fake::start();
    {
        let mut state = fake.state.lock();
        (state.loses_replies, state.loses_session) = (1, true);
    }
    assert!(remove(&fake, "a", Patience::default()).unwrap());
    assert_eq!(removed(&fake), ["a", "a"]);
    // Sent once, by a session that was lost before, it was not executed.
    fake.lose_session();
    assert!(!remove(&fake, "b", Patience::default()).unwrap());
    assert_eq!(removed(&fake), ["a", "a", "b"]);
    assert_eq!(fake.state.lock().sessions, 3);
}

#[test]
fn what_was_given_up_is_executed_no_more_and_costs_no_slot() {
    let fake = Fake::start();
    fake.state.lock().is_deaf = true;
    let begun = Instant::now();
    thread::scope(|scope| {
        for number in 0..100 {
            let fake = &fake;
            scope.spawn(move || {
                let until = Some(Instant::now() + Duration::from_millis(300));
                let patience = Patience { pid: 0, until };
                let error = remove(fake, &format!("n{number}"), patience).unwrap_err();
                assert!(matches!(error, ClientError::TimedOut { .. }), "{error}");
            });
        }
    });
    assert!(begun.elapsed() < Duration::from_secs(10));
    fake.state.lock().is_deaf = false;
    // More than there are slots at one time.
    thread::scope(|scope| {
        for _ in 0..100 {
            scope.spawn(|| remove(&fake, "after", Patience::default()).unwrap());
        }
    });
    assert_eq!(removed(&fake), vec!["after"; 100]);
    assert_eq!(fake.state.lock().sessions, 1);
}

fn stateid_of(fake: &Fake, file: &FileHandle, access: u32) -> [u8; 12] {
    let mut requests = requests(fake, Patience::default());
    requests.by_stateid(file, access, |_, stateid| Ok(stateid.other)).unwrap()
}

#[test]
fn a_file_is_open_once_for_a_user_and_closed_with_the_last() {
    let fake = Fake::start();
    fake.take_told();
    let file = FileHandle(b"file".to_vec());
    let open = |access| requests(&fake, Patience::default()).open(&file, access).unwrap();
    assert_eq!(stateid_of(&fake, &file, ACCESS_READ), ANONYMOUS.other);
    open(ACCESS_READ);
    open(ACCESS_READ);
    let first = stateid_of(&fake, &file, ACCESS_READ);
    assert!(first != ANONYMOUS.other && stateid_of(&fake, &file, ACCESS_WRITE) == ANONYMOUS.other);
    open(ACCESS_WRITE);
    assert_ne!(stateid_of(&fake, &file, ACCESS_WRITE), ANONYMOUS.other);
    assert_eq!(fake.take_told(), ["open 1", "open 3"]);
    // Of another user nothing is open.
    let mut other = requests(&fake, Patience::default());
    other.identity = Identity::user(7, 7);
    let foreign = other.by_stateid(&file, ACCESS_READ, |_, stateid| Ok(stateid)).unwrap();
    assert_eq!(foreign.other, ANONYMOUS.other);
    let (reads, writes) = ((true, false), (false, true));
    assert!(!fake.client.close(&file, &USER, reads) && !fake.client.close(&file, &USER, reads));
    assert!(fake.client.close(&file, &USER, writes));
    fake.client.close_unused(&file, &USER);
    until("it is closed", || fake.state.lock().told == ["close"]);
    until("it is forgotten", || fake.client.opens.all().is_empty());
}

#[test]
fn a_file_that_is_open_again_is_not_forgotten_for_its_open_of_before() {
    let fake = Fake::start();
    fake.take_told();
    let file = FileHandle(b"file".to_vec());
    let mut requests = requests(&fake, Patience::default());
    let close = || {
        assert!(fake.client.close(&file, &USER, (false, true)));
        fake.client.close_unused(&file, &USER);
        until("it is forgotten", || fake.client.opens.all().is_empty());
    };
    // An open of before is about to be closed once more, as the one of a maker that has closed.
    requests.open(&file, ACCESS_WRITE).unwrap();
    let before = fake.client.opens.find(&file, &USER).unwrap();
    close();
    requests.open(&file, ACCESS_WRITE).unwrap();
    fake.client.close_now(&before, Patience::default());
    assert_eq!(fake.client.opens.all().len(), 1);
    assert_ne!(stateid_of(&fake, &file, ACCESS_WRITE), ANONYMOUS.other);
    close();
    assert_eq!(fake.take_told(), ["open 2", "close", "open 2", "close"]);
    // What its maker has opened and closed is not closed as what nobody has opened: its data may be on the way.
    let stateid = StateId4 { seqid: 1, other: [0; 12] };
    requests.made_open(&file, stateid, fake.client.epoch());
    requests.open(&file, ACCESS_WRITE).unwrap();
    assert!(fake.client.close(&file, &USER, (false, true)));
    fake.client.opens.age_unclaimed();
    fake.client.close_unclaimed();
    thread::sleep(Duration::from_millis(100));
    assert_eq!(fake.take_told(), Vec::<String>::new());
    assert_eq!(fake.client.opens.all().len(), 1);
    fake.client.close_unused(&file, &USER);
    until("it is closed", || fake.state.lock().told == ["close"]);
}

#[test]
fn what_is_open_is_reclaimed_before_anything_else() {
    let fake = Fake::start();
    fake.take_told();
    let file = FileHandle(b"file".to_vec());
    requests(&fake, Patience::default()).open(&file, ACCESS_WRITE).unwrap();
    let before = stateid_of(&fake, &file, ACCESS_WRITE);
    fake.restart();
    assert!(!remove(&fake, "a", Patience::default()).unwrap());
    assert_eq!(fake.take_told(), ["open 2", "reclaim 2", "complete"]);
    assert_ne!(stateid_of(&fake, &file, ACCESS_WRITE), before);
    assert_eq!(fake.take_told(), Vec::<String>::new());
    // What is not given back is opened when it is used.
    fake.state.lock().gives_no_grace = true;
    fake.restart();
    remove(&fake, "b", Patience::default()).unwrap();
    assert_eq!(fake.take_told(), ["complete"]);
    assert_ne!(stateid_of(&fake, &file, ACCESS_WRITE), ANONYMOUS.other);
    assert_eq!(fake.take_told(), ["open 2"]);
    // A session that is lost alone loses nothing else.
    let before = stateid_of(&fake, &file, ACCESS_WRITE);
    fake.lose_session();
    remove(&fake, "c", Patience::default()).unwrap();
    assert_eq!(fake.take_told(), ["complete"]);
    assert_eq!(stateid_of(&fake, &file, ACCESS_WRITE), before);
}

#[test]
fn what_is_opened_anew_is_no_more_than_is_open_here() {
    let fake = Fake::start();
    fake.take_told();
    let file = FileHandle(b"file".to_vec());
    let mut requests = requests(&fake, Patience::default());
    // Whoever makes a file may read it, but has opened it for writing alone.
    let stateid = StateId4 { seqid: 1, other: [0; 12] };
    requests.made_open(&file, stateid, fake.client.epoch());
    assert_eq!(stateid_of(&fake, &file, ACCESS_READ), stateid.other);
    requests.open(&file, ACCESS_WRITE).unwrap();
    fake.state.lock().gives_no_grace = true;
    fake.restart();
    remove(&fake, "a", Patience::default()).unwrap();
    assert_ne!(stateid_of(&fake, &file, ACCESS_WRITE), ANONYMOUS.other);
    assert_eq!(fake.take_told(), ["complete", "open 2"]);
    // Nor than is open yet.
    requests.open(&file, ACCESS_READ).unwrap();
    assert!(!fake.client.close(&file, &USER, (false, true)));
    fake.restart();
    remove(&fake, "b", Patience::default()).unwrap();
    assert_ne!(stateid_of(&fake, &file, ACCESS_READ), ANONYMOUS.other);
    assert_eq!(fake.take_told(), ["open 3", "complete", "open 1"]);
    // If its mode does not allow that any more, its owner may still do it.
    fake.state.lock().refuses_opens = true;
    fake.restart();
    remove(&fake, "c", Patience::default()).unwrap();
    assert_eq!(stateid_of(&fake, &file, ACCESS_READ), ANONYMOUS.other);
}

#[test]
fn a_close_that_is_to_come_later_does() {
    let fake = Fake::start();
    fake.take_told();
    let file = FileHandle(b"file".to_vec());
    requests(&fake, Patience::default()).open(&file, ACCESS_WRITE).unwrap();
    fake.state.lock().delays = 2;
    assert!(fake.client.close(&file, &USER, (false, true)));
    fake.client.close_unused(&file, &USER);
    until("it is closed", || fake.state.lock().told == ["open 2", "close"]);
    until("it is forgotten", || fake.client.opens.all().is_empty());
}

#[test]
fn a_share_is_looked_for_until_the_server_has_time() {
    let fake = Fake::start();
    {
        let mut state = fake.state.lock();
        state.names = vec![b"a".to_vec(), b"share".to_vec()];
        state.delays = 2;
    }
    let found = walk(&fake.client, b"/a/share", Patience::default()).unwrap();
    assert_eq!(found, FileHandle(b"share".to_vec()));
    fake.state.lock().delays = 1_000;
    let until = Some(Instant::now() + Duration::from_millis(200));
    walk(&fake.client, b"/a/share", Patience { pid: 0, until }).unwrap_err();
}

#[test]
fn a_session_that_is_not_used_any_more_is_destroyed() {
    let fake = Fake::start();
    let number = fake.client.state.lock().number;
    fake.client.lose(number, &"test");
    remove(&fake, "a", Patience::default()).unwrap();
    let state = fake.state.lock();
    assert_eq!((state.sessions, state.destroyed), (2, 1));
}

#[test]
fn the_lease_is_that_of_the_servers_last_start() {
    let fake = Fake::start();
    assert_eq!(fake.client.state.lock().lease, Duration::from_secs(90));
    fake.state.lock().lease = 30;
    fake.restart();
    remove(&fake, "a", Patience::default()).unwrap();
    assert_eq!(fake.client.state.lock().lease, Duration::from_secs(30));
}

#[test]
fn a_server_that_has_kept_its_clients_alone_is_told_what_is_open() {
    let fake = Fake::start();
    fake.take_told();
    let file = FileHandle(b"file".to_vec());
    requests(&fake, Patience::default()).open(&file, ACCESS_WRITE).unwrap();
    let before = fake.client.opens.find(&file, &USER).unwrap();
    let stateid = before.stateid().unwrap().0;
    fake.restart_with_clients();
    remove(&fake, "a", Patience::default()).unwrap();
    assert_eq!(fake.take_told(), ["open 2", "reclaim 2", "complete"]);
    // Whoever hears late of the stateid of before takes nothing away.
    let now = before.stateid().unwrap();
    fake.client.lose_open(&before, stateid);
    assert_eq!(before.stateid(), Some(now));
    fake.client.epoch.fetch_add(1, Ordering::AcqRel);
    fake.client.lose_open(&before, now.0);
    assert_eq!(before.stateid(), Some(now));
}

#[test]
fn a_slot_that_is_free_is_told_to_who_waits_for_one() {
    let fake = Fake::start();
    let client = &fake.client;
    let mut taken: Vec<_> =
        (0..64).map(|_| client.take(Patience::default(), false, Instant::now()).unwrap()).collect();
    // The one who waits looks again by itself after a while.
    let mut soonest = Duration::MAX;
    for _ in 0..5 {
        let given = taken.pop().unwrap();
        let (again, waited) = thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let again = client.take(Patience::default(), false, Instant::now()).unwrap();
                (again, Instant::now())
            });
            thread::sleep(Duration::from_millis(20));
            let since = Instant::now();
            client.give_back(given, None, false);
            let (again, at) = waits.join().unwrap();
            (again, at.saturating_duration_since(since))
        });
        taken.push(again);
        soonest = soonest.min(waited);
    }
    for one in taken {
        client.give_back(one, None, false);
    }
    assert!(soonest < Duration::from_millis(90), "{soonest:?}");
}

/// An owner that has two ranges, as a program has got them.
#[derive(Debug)]
struct Owner {
    holding: Holding,
    lost: Mutex<Vec<u32>>,
}

impl Holder4 for Owner {
    fn held(&self) -> Vec<Holding> {
        vec![self.holding.clone()]
    }

    fn lost(&self, number: u32) {
        self.lost.lock().push(number);
    }
}

#[test]
fn locks_are_reclaimed_with_their_opens_or_lost() {
    let fake = Fake::start();
    fake.take_told();
    let handle = FileHandle(b"file".to_vec());
    let ranges = vec![(0, 5, true), (10, u64::MAX, false)];
    let holding = Holding { identity: USER, handle: handle.clone(), number: 9, ranges };
    let owner = Arc::new(Owner { holding: holding.clone(), lost: Mutex::default() });
    fake.client.hold_locks_of(Arc::clone(&owner) as Arc<dyn Holder4>);
    let patience = Patience::default();
    requests(&fake, patience).open(&handle, ACCESS_READ | ACCESS_WRITE).unwrap();
    let asker = LockAsker { identity: &USER, handle: &handle, number: 9 };
    for range in &holding.ranges {
        assert_eq!(fake.client.lock(asker, *range, patience).unwrap().0, NlmStat::Granted);
    }
    assert_eq!(fake.take_told(), ["open 3", "lock 0", "lock 10"]);
    fake.restart();
    remove(&fake, "a", patience).unwrap();
    assert_eq!(fake.take_told(), ["reclaim 3", "relock 0", "relock 10", "complete"]);
    assert!(owner.lost.lock().is_empty());
    assert_eq!(fake.client.unlock(asker, (0, 5), patience).unwrap(), NlmStat::Granted);
    assert_eq!(fake.take_told(), ["unlock 0"]);
    assert_eq!(fake.client.lock(asker, (0, 5, true), patience).unwrap().0, NlmStat::Granted);
    // Somebody else may have had it meanwhile.
    fake.state.lock().gives_no_grace = true;
    fake.restart();
    remove(&fake, "b", patience).unwrap();
    assert_eq!(*owner.lost.lock(), [9]);
    // Nothing is unlocked that is not there.
    fake.take_told();
    assert_eq!(fake.client.unlock(asker, (0, u64::MAX), patience).unwrap(), NlmStat::Granted);
    assert_eq!(fake.take_told(), Vec::<String>::new());
}
