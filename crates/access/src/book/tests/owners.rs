//! Unit tests of names and numbers of owners.

use steadfast_shares::{AccountKind, AccountName, Known, NameOf, NumberOf};

use super::{Rig, rig, rig_with, rules};
use crate::facts::Subject;
use crate::settings::Bounds;
use crate::testing::Manner;

fn name(text: &str) -> AccountName {
    AccountName::new(text).expect("a name")
}

impl Rig {
    fn uid(&self, user: &str) -> NumberOf {
        let number = self.book.at_present().number_of(AccountKind::User, &name(user));
        self.book.turn();
        number
    }

    fn user(&self, uid: u32) -> NameOf {
        let name = self.book.at_present().name_of(AccountKind::User, uid);
        self.book.turn();
        name
    }
}

#[test]
fn users_and_groups_are_known_apart_and_asked_about_once() {
    let rig = rig();
    rig.service.set_account(AccountKind::User, "jane", 1000);
    rig.service.set_account(AccountKind::Group, "jane", 2000);
    assert_eq!(rig.uid("jane"), NumberOf::NotYet);
    for _ in 0..3 {
        assert_eq!(rig.uid("jane"), NumberOf::Is(1000));
    }
    assert_eq!(rig.asked(), 1);
    let gid = || rig.book.at_present().number_of(AccountKind::Group, &name("jane"));
    assert_eq!(gid(), NumberOf::NotYet);
    rig.book.turn();
    assert_eq!(gid(), NumberOf::Is(2000));
    assert_eq!(rig.user(1000), NameOf::NotYet);
    assert_eq!(rig.user(1000), NameOf::Is(name("jane")));
    assert_eq!(rig.user(1001), NameOf::NotYet);
    assert_eq!(rig.user(1001), NameOf::None);
}

#[test]
fn a_number_is_waited_for_again_after_its_life_and_a_name_is_not() {
    let rig = rig();
    rig.service.set_account(AccountKind::User, "jane", 1000);
    rig.uid("jane");
    rig.user(1000);
    rig.user(1001);
    rig.service.set_account(AccountKind::User, "jane", 1001);
    // Nobody uses them: they are not looked after.
    rig.pass(3_600_000);
    assert_eq!(rig.uid("jane"), NumberOf::NotYet, "somebody else may have the name by now");
    assert_eq!(rig.uid("jane"), NumberOf::Is(1001));
    assert_eq!(rig.user(1000), NameOf::Is(name("jane")), "it is asked for meanwhile");
    // A number without a name is told as it is, and asked about meanwhile.
    rig.service.set_manner(Manner::Keeps);
    rig.user(4000);
    rig.service.answer_all();
    rig.book.turn();
    assert_eq!(rig.user(4000), NameOf::None);
    rig.clock.advance(61_000);
    assert_eq!(rig.user(4000), NameOf::None);
}

#[test]
fn nobody_is_nobody_for_a_minute() {
    let rig = rig();
    assert_eq!(rig.uid("jane"), NumberOf::NotYet);
    assert_eq!(rig.uid("jane"), NumberOf::Nobody);
    rig.service.set_account(AccountKind::User, "jane", 1000);
    assert_eq!(rig.uid("jane"), NumberOf::Nobody);
    rig.pass(60_100);
    let known = rig.uid("jane");
    assert!(matches!(known, NumberOf::NotYet | NumberOf::Is(1000)), "{known:?}");
    assert_eq!(rig.uid("jane"), NumberOf::Is(1000));
    // The kernel's word for nobody is nobody's number.
    rig.service.set_account(AccountKind::User, "minus", u32::MAX);
    rig.uid("minus");
    assert_eq!(rig.uid("minus"), NumberOf::Nobody);
}

#[test]
fn a_service_that_fails_makes_nobody_of_no_name_and_a_number_is_told() {
    let rig = rig();
    rig.service.set_account(AccountKind::User, "jane", 1000);
    rig.uid("jane");
    rig.user(1000);
    rig.service.set_manner(Manner::Fails);
    for _ in 0..50 {
        rig.pass(10_000);
        assert_eq!(rig.uid("joe"), NumberOf::NotYet);
    }
    assert_eq!(rig.user(1007), NameOf::NotYet);
    rig.pass(10_000);
    assert_eq!(rig.user(1007), NameOf::None);
    // What was known counts.
    rig.pass(3_600_000);
    rig.uid("jane");
    assert_eq!(rig.uid("jane"), NumberOf::Is(1000));
    assert_eq!(rig.user(1000), NameOf::Is(name("jane")));
}

#[test]
fn whatever_names_clients_choose_decisions_stand_and_their_names_stay() {
    let rig = rig_with(Bounds { entries_max: 100, ..Bounds::default() });
    rig.service.set_host("a.example", &["10.0.0.1"], 3600);
    rig.watch(vec![rules(&["a.example"])]);
    rig.book.turn();
    assert_eq!(rig.host("a.example", "10.0.0.1"), Known::Yes);
    let epoch = rig.book.epoch();
    rig.book.kept();
    let flood = || {
        for n in 0..1000 {
            rig.uid(&format!("user{n}"));
        }
    };
    flood();
    rig.service.set_account(AccountKind::User, "user999", 999);
    rig.pass(61_000);
    rig.uid("user999");
    rig.uid("user999");
    assert_eq!(rig.book.epoch(), epoch, "no decision is made by owners");
    let statistics = rig.book.statistics();
    assert!(statistics.owner_numbers.names <= 200, "{statistics:?}");
    assert!(statistics.owner_numbers.sent >= 1000, "{statistics:?}");
    rig.host("loose.example", "10.0.0.1");
    flood();
    assert!(rig.book.look_up(&crate::testing::host_named("loose.example")).is_some());
    // Nothing of them is kept.
    let kept = String::from_utf8(rig.book.kept().to_bytes()).expect("text");
    assert!(!kept.contains("user9"), "{kept}");
    let shown = rig.book.look_up(&Subject::NumberOf(AccountKind::User, name("user999")));
    assert_eq!(shown.expect("it is known").answers, ["999"]);
}

/// Clients name owners faster than the name service answers.
#[test]
fn what_is_asked_of_a_slow_service_is_bounded_and_leaves_nothing() {
    let rig = rig();
    rig.service.set_manner(Manner::Keeps);
    let names = |rig: &Rig| rig.book.statistics().owner_numbers.names;
    for round in 0..8_u64 {
        for n in 0..5_000 {
            rig.book.at_present().number_of(AccountKind::User, &name(&format!("r{round}n{n}")));
        }
        // Patience ends, and what nobody uses is let go.
        rig.pass(10_000);
        rig.book.turn();
    }
    assert!(names(&rig) <= 10_100, "{}", names(&rig));
    // Of a name that is not asked for nobody waits.
    for uid in 0..10_100 {
        rig.book.at_present().name_of(AccountKind::User, uid);
    }
    assert_eq!(rig.book.at_present().name_of(AccountKind::User, 1 << 20), NameOf::None);
    rig.service.set_manner(Manner::Answers);
    rig.service.set_account(AccountKind::User, "jane", 1000);
    rig.service.answer_all();
    for _ in 0..200 {
        rig.book.turn();
    }
    rig.uid("jane");
    assert_eq!(rig.uid("jane"), NumberOf::Is(1000));
}
