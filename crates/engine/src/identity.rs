//! Who a caller is: as it came, and as whom he acts on a share.

use steadfast_shares::{Rights, Squash};
use steadfast_vfs::Cred;

/// The identity on the wire, before squashing.
#[derive(Clone, Debug)]
pub(crate) enum WireIdentity {
    /// `AUTH_NONE`: nobody in particular.
    Anonymous,
    /// `AUTH_SYS`: as the client claims.
    Claimed(Cred),
}

/// As whom a caller acts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Acting {
    pub(crate) cred: Cred,
    /// Whether that is the user whom the client claims. Somebody else who has the same number is
    /// not: squashing takes his groups from him.
    pub(crate) is_himself: bool,
}

/// The local identity of a caller, by the share's rules.
#[inline]
pub(crate) fn squashed(identity: &WireIdentity, rights: &Rights) -> Acting {
    let anonymous = || Acting {
        cred: Cred {
            uid: rights.anonymous_uid,
            gid: rights.anonymous_gid,
            groups: smallvec::SmallVec::new(),
        },
        is_himself: false,
    };
    let WireIdentity::Claimed(claimed) = identity else { return anonymous() };
    match rights.squash {
        Squash::All => return anonymous(),
        Squash::Root if claimed.uid == 0 => return anonymous(),
        Squash::Root | Squash::None => {}
    }
    let mut cred = claimed.clone();
    // To the kernel -1 is "leave it as it is", never somebody.
    let is_himself = cred.uid != u32::MAX;
    if !is_himself {
        cred.uid = rights.anonymous_uid;
    }
    if cred.gid == u32::MAX {
        cred.gid = rights.anonymous_gid;
    }
    squash_groups(&mut cred, rights);
    Acting { cred, is_himself }
}

/// The groups of one who is himself.
pub(crate) fn squash_groups(cred: &mut Cred, rights: &Rights) {
    cred.groups.retain(|gid| *gid != u32::MAX);
    if rights.squash == Squash::Root {
        // Group 0 is squashed by itself too, as it may own what only root should touch.
        for gid in std::iter::once(&mut cred.gid).chain(&mut cred.groups) {
            if *gid == 0 {
                *gid = rights.anonymous_gid;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;

    fn claimed(uid: u32, gid: u32) -> WireIdentity {
        WireIdentity::Claimed(Cred { uid, gid, groups: smallvec![0, 5] })
    }

    #[test]
    fn squashing_follows_the_rights() {
        let mut rights = Rights { anonymous_uid: 7, anonymous_gid: 8, ..Rights::default() };
        let anonymous =
            Acting { cred: Cred { uid: 7, gid: 8, groups: smallvec![] }, is_himself: false };
        let himself = |cred| Acting { cred, is_himself: true };
        assert_eq!(squashed(&claimed(0, 0), &rights), anonymous);
        assert_eq!(squashed(&WireIdentity::Anonymous, &rights), anonymous);
        assert_eq!(
            squashed(&claimed(5, 0), &rights),
            himself(Cred { uid: 5, gid: 8, groups: smallvec![8, 5] })
        );
        rights.squash = Squash::All;
        assert_eq!(squashed(&claimed(5, 5), &rights), anonymous);
        // Also who claims to be whom all are squashed to.
        assert_eq!(squashed(&claimed(7, 5), &rights), anonymous);
        rights.squash = Squash::None;
        assert_eq!(
            squashed(&claimed(0, 0), &rights),
            himself(Cred { uid: 0, gid: 0, groups: smallvec![0, 5] })
        );
        assert_eq!(squashed(&WireIdentity::Anonymous, &rights), anonymous);
    }

    #[test]
    fn minus_one_is_nobody_whatever_the_squashing() {
        let mut rights = Rights { anonymous_uid: 7, anonymous_gid: 8, ..Rights::default() };
        let minus_one = u32::MAX;
        let identity = WireIdentity::Claimed(Cred {
            uid: minus_one,
            gid: minus_one,
            groups: smallvec![5, minus_one],
        });
        for squash in [Squash::Root, Squash::None] {
            rights.squash = squash;
            let nobody = Cred { uid: 7, gid: 8, groups: smallvec![5] };
            assert_eq!(squashed(&identity, &rights), Acting { cred: nobody, is_himself: false });
        }
    }
}
