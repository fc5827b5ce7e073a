//! The same of NLM and NSM.

use proptest::prelude::*;
use steadfast_wire::{nlm, nsm};
use steadfast_xdr::{Decode, Encode, Reader};

use crate::strategies::{Make, Parts, one_of};

macro_rules! enumerations {
    ($($type:ty)*) => {$(
        impl<'p> Make<'p> for $type {
            fn make(parts: &'p Parts, at: &mut usize) -> Self {
                one_of(Self::ALL, parts, at)
            }
        }
    )*};
}

enumerations! { nlm::NlmStat nlm::ShareMode nlm::ShareAccess nsm::SmRes }

macro_rules! structures {
    ($($name:ty { $($field:ident)* })*) => {$(
        impl<'p> Make<'p> for $name {
            fn make(parts: &'p Parts, at: &mut usize) -> Self {
                Self { $($field: Make::make(parts, at)),* }
            }
        }
    )*};
}

structures! {
    nsm::Name<'p> { mon_name }
    nsm::MyId<'p> { my_name my_prog my_vers my_proc }
    nsm::MonId<'p> { mon_name my_id }
    nsm::Mon<'p> { mon_id private }
    nsm::StatRes { res_stat state }
    nsm::Stat { state }
    nsm::StateChange<'p> { mon_name state }
}

macro_rules! version {
    ($version:ident) => {
        pub(crate) mod $version {
            use super::*;

            structures! {
                nlm::$version::Lock<'p> { caller_name fh oh svid offset length }
                nlm::$version::Holder<'p> { exclusive svid oh offset length }
                nlm::$version::TestArgs<'p> { cookie exclusive lock }
                nlm::$version::LockArgs<'p> { cookie block exclusive lock reclaim state }
                nlm::$version::CancelArgs<'p> { cookie block exclusive lock }
                nlm::$version::UnlockArgs<'p> { cookie lock }
                nlm::$version::Res<'p> { cookie stat }
                nlm::$version::ShareArgs<'p> { cookie caller_name fh oh mode access reclaim }
                nlm::$version::ShareRes<'p> { cookie stat sequence }
                nlm::$version::Notify<'p> { name state }
            }

            impl<'p> Make<'p> for nlm::$version::TestRes<'p> {
                fn make(parts: &'p Parts, at: &mut usize) -> Self {
                    let res = nlm::$version::Res::make(parts, at);
                    match res.stat {
                        nlm::NlmStat::Denied => {
                            Self::Denied { cookie: res.cookie, holder: Make::make(parts, at) }
                        }
                        _ => Self::Other(res),
                    }
                }
            }

            types! {
                ALL;
                test_args: nlm::$version::TestArgs<'_>;
                lock_args: nlm::$version::LockArgs<'_>;
                cancel_args: nlm::$version::CancelArgs<'_>;
                unlock_args: nlm::$version::UnlockArgs<'_>;
                test_res: nlm::$version::TestRes<'_>;
                share_args: nlm::$version::ShareArgs<'_>;
                share_res: nlm::$version::ShareRes<'_>;
                notify: nlm::$version::Notify<'_>;
            }
        }
    };
}

version!(v1);
version!(v4);

types! {
    ALL;
    name: nsm::Name<'_>;
    my_id: nsm::MyId<'_>;
    mon: nsm::Mon<'_>;
    stat_res: nsm::StatRes;
    stat: nsm::Stat;
    state_change: nsm::StateChange<'_>;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]
    #[test]
    fn any_bytes_can_be_read_by_every_type(bytes in super::likely_bytes()) {
        for (name, reencode) in ALL.iter().chain(v1::ALL).chain(v4::ALL) {
            if let Some((again, read)) = reencode(&bytes) {
                prop_assert_eq!(again.len(), read, "{}", name);
                let same = reencode(&again);
                prop_assert_eq!(same, Some((again, read)), "{}", name);
            }
        }
    }
}

fn check<'a, T>(value: &T, bytes: &'a [u8])
where
    T: Encode + Decode<'a> + PartialEq + std::fmt::Debug,
{
    assert_eq!(super::written(value), bytes);
    let mut r = Reader::new(bytes);
    assert_eq!(T::decode(&mut r).as_ref(), Ok(value));
    assert!(r.is_empty());
}

/// The lock of the golden messages in version 4, and what it is on the wire.
const LOCK: nlm::v4::Lock<'static> = nlm::v4::Lock {
    caller_name: b"host",
    fh: b"fh",
    oh: b"7@host",
    svid: 7,
    offset: 0x1_0000_0000,
    length: 16,
};
const LOCK_BYTES: &[u8] = b"\0\0\0\x04host\0\0\0\x02fh\0\0\0\0\0\x067@host\0\0\0\0\0\x07\
    \0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\x10";

#[test]
fn a_lock_of_version_4() {
    let lock = nlm::v4::LockArgs {
        cookie: b"\x01\x02\x03\x04",
        block: true,
        exclusive: false,
        lock: LOCK,
        reclaim: true,
        state: 5,
    };
    let head = b"\0\0\0\x04\x01\x02\x03\x04\0\0\0\x01\0\0\0\0";
    check(&lock, &[&head[..], LOCK_BYTES, b"\0\0\0\x01\0\0\0\x05"].concat());
}

#[test]
fn a_lock_of_version_1_has_numbers_of_32_bits() {
    let lock = nlm::v1::LockArgs {
        cookie: b"",
        block: false,
        exclusive: true,
        lock: nlm::v1::Lock {
            caller_name: b"h",
            fh: b"f",
            oh: b"o",
            svid: 1,
            offset: 2,
            length: u32::MAX,
        },
        reclaim: false,
        state: 0,
    };
    check(
        &lock,
        b"\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\x01h\0\0\0\0\0\0\x01f\0\0\0\0\0\0\x01o\0\0\0\
          \0\0\0\x01\0\0\0\x02\xff\xff\xff\xff\0\0\0\0\0\0\0\0",
    );
}

#[test]
fn a_denied_test_tells_whose_lock_it_is_and_a_granted_one_does_not() {
    let holder = nlm::v4::Holder { exclusive: true, svid: 9, oh: b"o", offset: 1, length: 0 };
    check(
        &nlm::v4::TestRes::Denied { cookie: b"c", holder },
        b"\0\0\0\x01c\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0\x09\0\0\0\x01o\0\0\0\
          \0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0",
    );
    let res = nlm::v4::Res { cookie: b"c", stat: nlm::NlmStat::DeniedGracePeriod };
    check(&nlm::v4::TestRes::Other(res), b"\0\0\0\x01c\0\0\0\0\0\0\x04");
}

#[test]
fn a_share_reservation() {
    let share = nlm::v4::ShareArgs {
        cookie: b"",
        caller_name: b"h",
        fh: b"f",
        oh: b"o",
        mode: nlm::ShareMode::DenyWrite,
        access: nlm::ShareAccess::Both,
        reclaim: false,
    };
    check(
        &share,
        b"\0\0\0\0\0\0\0\x01h\0\0\0\0\0\0\x01f\0\0\0\0\0\0\x01o\0\0\0\
          \0\0\0\x02\0\0\0\x03\0\0\0\0",
    );
}

#[test]
fn what_monitors_say_to_each_other() {
    let my_id = nsm::MyId { my_name: b"me", my_prog: 100_021, my_vers: 4, my_proc: 16 };
    let mon_id = nsm::MonId { mon_name: b"you", my_id };
    check(
        &nsm::Mon { mon_id, private: *b"0123456789abcdef" },
        b"\0\0\0\x03you\0\0\0\0\x02me\0\0\0\x01\x86\xb5\0\0\0\x04\0\0\0\x100123456789abcdef",
    );
    check(&nsm::StateChange { mon_name: b"you", state: 5 }, b"\0\0\0\x03you\0\0\0\0\x05");
    check(&nsm::StatRes { res_stat: nsm::SmRes::Success, state: 3 }, b"\0\0\0\0\0\0\0\x03");
}
