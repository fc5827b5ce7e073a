//! What is in doubt, comes late, or is refused.

use super::*;

#[test]
fn an_unlock_that_was_given_up_does_not_free_what_is_locked_later() {
    let rig = Rig::new();
    assert_eq!(told(&rig.lock(10, false, 0)), Ok(()));
    rig.manager.known.lock().unlocks_too_early = 1;
    assert_eq!(told(&rig.unlock(10, DEAD)), Err(Errno::EINTR));
    assert_eq!(told(&rig.unlock(10, 0)), Ok(()));
    assert_eq!(told(&rig.lock(10, false, 0)), Ok(()));
    // Longer than it takes until an unlock is sent again.
    thread::sleep(Duration::from_secs(2));
    assert_eq!((rig.locks.told().held, rig.manager.count()), (1, 1));
    assert_eq!(told(&rig.unlock(10, 0)), Ok(()));
    rig.await_that("nobody is known any more", Rig::is_nobody_known);
    rig.locks.close();
}

/// Each LOCK takes a second from now on. How many were asked for, and granted, so far.
fn slow(rig: &Rig) -> (u64, u64) {
    let mut known = rig.manager.known.lock();
    known.slowness = Duration::from_secs(1);
    (known.asked, known.granted)
}

#[test]
fn a_lock_that_is_asked_for_again_is_the_same_owners() {
    let rig = Rig::new();
    rig.lock_ten(11, 100);
    let (asked, _) = slow(&rig);
    let what = What::Lock { kind: Kind::Write, waits: false, granted: Arc::new(|| {}) };
    let receiver = rig.ask_there(10, what, 0, Span { first: 0, last: 9 });
    rig.await_that("the server works", |rig| rig.manager.known.lock().asked > asked);
    rig.locks.lockd.lose_link();
    rig.await_that("it is granted, and nobody is told", |rig| rig.manager.count() == 2);
    assert_eq!(told(&receiver), Ok(()));
    assert_eq!(rig.manager.count(), 2);
    for owner in [10, 11] {
        assert_eq!(told(&rig.unlock(owner, 0)), Ok(()));
    }
    rig.await_that("nobody is known any more", Rig::is_nobody_known);
    assert_eq!(rig.manager.count(), 0);
    rig.locks.close();
}

#[test]
fn a_lock_in_doubt_is_given_up_though_nobody_asks_again() {
    let rig = Rig::new();
    rig.manager.known.lock().slowness = Duration::from_secs(1);
    let receiver = rig.lock(10, true, DEAD);
    rig.await_that("the server works", |rig| rig.manager.known.lock().asked == 1);
    assert_eq!(told(&receiver), Err(Errno::EINTR));
    rig.locks.lockd.lose_link();
    rig.await_that("it is granted", |rig| rig.manager.known.lock().granted > 0);
    rig.await_that("it is freed", |rig| rig.manager.count() == 0);
    rig.await_that("nobody is known any more", Rig::is_nobody_known);
    rig.locks.close();
}

#[test]
fn what_the_server_executes_late_is_freed() {
    let rig = Rig::new();
    rig.manager.known.lock().is_next_late = Some(Duration::from_secs(1));
    assert_eq!(told(&rig.lock(10, false, 0)), Ok(()));
    assert_eq!(told(&rig.unlock(10, 0)), Ok(()));
    assert_eq!(rig.manager.count(), 0);
    rig.await_that("it is executed once more", |rig| rig.manager.known.lock().granted >= 3);
    rig.await_that("it is freed", |rig| rig.manager.count() == 0);
    rig.await_that("nobody is known any more", Rig::is_nobody_known);
    rig.locks.close();
}

#[test]
fn what_is_in_doubt_of_a_lock_is_mended_after_it_was_unsure() {
    let rig = Rig::new();
    rig.manager.known.lock().is_next_late = Some(Duration::from_secs(1));
    rig.lock_ten(10, 0);
    let what = What::Lock { kind: Kind::Read, waits: false, granted: Arc::new(|| {}) };
    let span = Span { first: 0, last: 9 };
    assert_eq!(told(&rig.ask_there(10, what, 0, span)), Ok(()));
    let is_held_to = |kind| {
        move |rig: &Rig| {
            let held = rig.manager.known.lock().table.conflict(Owner(1), span, Kind::Write);
            held.is_some_and(|held| held.kind == kind)
        }
    };
    rig.await_that("the lock to write is granted late", is_held_to(Kind::Write));
    // When it is mended, nobody knows yet whether the server has restarted.
    rig.manager.known.lock().commit_slowness = Duration::from_secs(4);
    rig.manager.cut();
    rig.await_that("the server has what the table has", is_held_to(Kind::Read));
    rig.locks.close();
}

#[test]
fn what_was_asked_for_in_a_reclaim_and_is_executed_late_is_freed() {
    let rig = Rig::new();
    rig.lock_ten(10, 0);
    rig.manager.known.lock().is_next_late = Some(Duration::from_secs(2));
    rig.manager.restart(true);
    rig.await_that("it is reclaimed", |rig| rig.manager.count() == 1);
    rig.manager.known.lock().is_in_grace = false;
    assert_eq!(told(&rig.unlock(10, 0)), Ok(()));
    // The first time, twice after the restart, and the one that is late.
    rig.await_that("the late one is executed", |rig| rig.manager.known.lock().asked >= 4);
    rig.await_that("it is freed", |rig| rig.manager.count() == 0);
    rig.await_that("nobody is known any more", Rig::is_nobody_known);
    rig.locks.close();
}

#[test]
fn a_call_that_rpc_refuses_leaves_nothing_to_be_done() {
    let rig = Rig::new();
    assert_eq!(told(&rig.lock(11, false, 0)), Ok(()));
    assert_eq!(told(&rig.unlock(11, 0)), Ok(()));
    rig.manager.known.lock().refused = u64::from(rig.locks.state.lock().next_number);
    assert_eq!(told(&rig.lock(10, true, 0)), Err(Errno::EACCES));
    rig.await_that("nobody is known any more", Rig::is_nobody_known);
    rig.locks.close();
}

#[test]
fn an_unlock_that_rpc_refuses_stays_noted() {
    let rig = Rig::new();
    let ledger = rig.locks.ledger().unwrap();
    let number = rig.locks.state.lock().next_number;
    assert_eq!(told(&rig.lock(10, true, 0)), Ok(()));
    rig.manager.known.lock().refused = u64::from(number);
    assert_eq!(told(&rig.unlock(10, 0)), Err(Errno::EACCES));
    rig.await_that("nobody is known any more", Rig::is_nobody_known);
    rig.locks.close();
    assert_eq!(rig.manager.count(), 1);
    rig.manager.known.lock().refused = 0;
    assert_eq!(ledger::free(&ledger, false).unwrap(), 1);
    assert_eq!(rig.manager.count(), 0);
}

#[test]
fn a_lock_on_its_way_stays_noted_when_the_mount_ends() {
    let rig = Rig::new();
    let ledger = rig.locks.ledger().unwrap();
    rig.lock_ten(11, 100);
    let (asked, granted) = slow(&rig);
    let receiver = rig.lock(11, false, 0);
    rig.await_that("the server works", |rig| rig.manager.known.lock().asked > asked);
    rig.locks.close();
    assert_eq!(told(&receiver), Err(Errno::EIO));
    rig.await_that("it is granted", |rig| rig.manager.known.lock().granted > granted);
    assert_eq!(ledger::free(&ledger, false).unwrap(), 1, "the owner is noted");
    assert_eq!(rig.manager.count(), 0);
}

#[test]
fn what_is_locked_after_a_restart_is_not_lost() {
    let rig = Rig::new();
    rig.lock_ten(10, 0);
    let commits = {
        let mut known = rig.manager.known.lock();
        known.commit_slowness = Duration::from_secs(2);
        known.commits
    };
    rig.manager.restart(false);
    rig.await_that("it is asked for its verifier", |rig| {
        rig.manager.known.lock().commits > commits
    });
    rig.lock_ten(10, 20);
    assert_eq!(rig.locks.told().lost, 0, "the verifier is not told so soon");
    rig.await_that("the first lock is lost", |rig| rig.locks.told().lost > 0);
    thread::sleep(Duration::from_millis(1500));
    let told = rig.locks.told();
    assert_eq!((told.lost, told.held, rig.manager.count()), (1, 1, 1));
    rig.locks.close();
}

#[test]
fn what_was_reclaimed_is_not_reclaimed_again() {
    let rig = Rig::new();
    rig.lock_ten(10, 0);
    rig.lock_ten(10, 20);
    rig.manager.known.lock().reclaims_left = Some(1);
    rig.manager.restart(true);
    rig.await_that("one is reclaimed", |rig| rig.manager.count() == 1);
    rig.manager.known.lock().is_in_grace = false;
    rig.await_that("the other one is lost", |rig| rig.locks.told().lost > 0);
    thread::sleep(Duration::from_millis(1500));
    let told = rig.locks.told();
    assert_eq!((told.lost, told.held, rig.manager.count()), (1, 1, 1));
    rig.locks.close();
}

#[test]
fn locks_are_not_lost_by_a_verifier_that_has_changed() {
    let rig = Rig::new();
    rig.lock_ten(10, 0);
    rig.lock_ten(10, 20);
    let commits = {
        let mut known = rig.manager.known.lock();
        known.verifier += 1;
        known.commits
    };
    rig.manager.cut();
    rig.await_that("it is asked for its verifier", |rig| {
        rig.manager.known.lock().commits > commits
    });
    rig.await_that("all is known", |rig| {
        let state = rig.locks.state.lock();
        !state.is_unjudged && state.files.values().all(|file| file.unsure.count() == 0)
    });
    let told = rig.locks.told();
    assert_eq!((told.lost, told.held, rig.manager.count()), (0, 2, 2));
    rig.locks.close();
}

#[test]
fn an_owner_who_cannot_be_freed_keeps_no_other_one() {
    let rig = Rig::new();
    let number = rig.locks.state.lock().next_number;
    for (owner, first) in [(10, 0), (11, 20), (12, 40)] {
        rig.lock_ten(owner, first);
    }
    let ledger = rig.locks.ledger().unwrap();
    rig.manager.known.lock().refused = u64::from(number);
    assert!(ledger::free(&ledger, false).is_err());
    assert_eq!(rig.manager.count(), 1);
    {
        let mut known = rig.manager.known.lock();
        known.refused = 0;
        known.unlocks_too_early = 3;
    }
    assert!(ledger::free(&ledger, false).is_err(), "the server is in its grace period");
    assert_eq!(ledger::free(&ledger, false).unwrap(), 3);
    assert_eq!(rig.manager.count(), 0);
    rig.locks.close();
}

/// Numbers that look random.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Whether nothing is to be done, and the server has what the table has.
fn is_settled(rig: &Rig) -> bool {
    let state = rig.locks.state.lock();
    let mut expected = Table::default();
    for file in state.files.values() {
        let is_idle = |of: &OwnerOfFile| {
            !of.is_busy && of.queue.is_empty() && of.doubt.is_none() && of.reclaim.is_none()
        };
        if !file.owners.values().all(is_idle) {
            return false;
        }
        for (owner, of) in &file.owners {
            for held in file.table.of(*owner) {
                let number = Owner(u64::from(of.remote.number));
                expected.set(number, held.span, Some(held.kind));
            }
        }
    }
    expected == rig.manager.known.lock().table
}

/// Owners lock and unlock, some are killed meanwhile, and the server loses connections, executes calls late, and refuses
/// some for a while.
#[test]
fn the_server_has_in_the_end_what_the_table_has() {
    let rig = Rig::new();
    thread::scope(|scope| {
        for owner in 10_u64..14 {
            let rig = &rig;
            scope.spawn(move || {
                let mut dice = Dice(owner.wrapping_mul(0x9e37_79b9_7f4a_7c15));
                for _ in 0..20 {
                    match dice.below(8) {
                        0 => rig.manager.cut(),
                        1 => {
                            let late = Duration::from_millis(dice.below(1000));
                            rig.manager.known.lock().is_next_late = Some(late);
                        }
                        2 => rig.manager.known.lock().unlocks_too_early = 1,
                        _ => {}
                    }
                    let what = match dice.below(3) {
                        0 => What::Unlock { is_safe: None },
                        _ => What::Lock {
                            kind: if dice.below(2) == 0 { Kind::Read } else { Kind::Write },
                            waits: false,
                            granted: Arc::new(|| {}),
                        },
                    };
                    let pid = if dice.below(3) == 0 { DEAD } else { 0 };
                    let first = dice.below(6) * 5;
                    let span = Span { first, last: first + dice.below(10) };
                    let outcome = told(&rig.ask_there(owner, what, pid, span));
                    let expected = [Ok(()), Err(Errno::EAGAIN), Err(Errno::EINTR)];
                    assert!(expected.contains(&outcome), "{outcome:?}");
                }
            });
        }
    });
    rig.await_that("the server has what the table has", is_settled);
    for owner in 10_u64..14 {
        assert_eq!(told(&rig.unlock(owner, 0)), Ok(()));
    }
    rig.await_that("nobody is known any more", Rig::is_nobody_known);
    assert_eq!((rig.manager.count(), rig.locks.told().lost), (0, 0));
    rig.locks.close();
}
