//! NLM, by which clients of NFSv3 lock files: versions 1, 3 and 4. Versions 1 and 3 are the same
//! procedures with numbers of 32 bits ([`width`]).
//!
//! A call may come in two forms. The first gets its result by the reply. The second (`_MSG`) gets
//! an empty reply, and its result by a call of ours (`_RES`).
//!
//! The locks themselves are the state's ([`steadfast_state`]), which NFSv4 uses too. A lock may be
//! had by whoever may read the file, by its owner, and, for a write lock, by whoever may write
//! it. A share that is read-only refuses write locks, as Linux does.
//!
//! LOCK, UNLOCK, CANCEL, SHARE and UNSHARE change nothing when they are repeated at once. But one
//! that comes late would undo what followed it. So the duplicate request cache remembers them.

pub(crate) mod note;
mod procedures;
mod refusal;
mod share;
mod width;

use crate::program::{Null, Port, Program, Row, Version};

use self::procedures::{Cancel, FreeAll, Granted, Ignore, Lock, Test, Unavailable, Unlock};
use self::share::Share;
use self::width::{Narrow, Wide, Width};

/// Numbers of procedures that we call at clients.
pub(crate) mod procedure {
    pub(crate) const GRANTED: u32 = 5;
    /// The result of the procedure with the number 1 is number 11, and so on.
    pub(super) const RESULTS_BEHIND: u32 = 10;
    /// The message form of the procedure with the number 1 is number 6, and so on.
    pub(super) const MESSAGES_BEHIND: u32 = 5;
}

/// NLM.
pub(crate) const PROGRAM: Program = Program {
    name: "nlm",
    number: steadfast_wire::nlm::PROGRAM,
    port: Port::Nfs,
    versions: &[
        Version::new(1, PROCEDURES_OF_3.split_at(16).0),
        Version::new(3, PROCEDURES_OF_3),
        Version::new(4, PROCEDURES_OF_4),
    ],
};

/// Version 3 by number; version 1 has the first 16.
const PROCEDURES_OF_3: &[Row] = &procedures::<Narrow>();
/// Version 4 (RFC 1813 §6.1) by number.
const PROCEDURES_OF_4: &[Row] = &procedures::<Wide>();

const fn procedures<W: Width>() -> [Row; 24] {
    [
        Row::of::<Null>(),
        Row::of::<Test<W, false>>(),
        Row::of::<Lock<W, false, true>>(),
        Row::of::<Cancel<W, false>>(),
        Row::of::<Unlock<W, false>>(),
        Row::of::<Granted<W>>(),
        Row::of::<Test<W, true>>(),
        Row::of::<Lock<W, true, true>>(),
        Row::of::<Cancel<W, true>>(),
        Row::of::<Unlock<W, true>>(),
        Row::of::<Ignore<10>>(),
        Row::of::<Ignore<11>>(),
        Row::of::<Ignore<12>>(),
        Row::of::<Ignore<13>>(),
        Row::of::<Ignore<14>>(),
        Row::of::<Ignore<15>>(),
        Row::of::<Unavailable>(),
        Row::of::<Unavailable>(),
        Row::of::<Unavailable>(),
        Row::of::<Unavailable>(),
        Row::of::<Share<W, true>>(),
        Row::of::<Share<W, false>>(),
        Row::of::<Lock<W, false, false>>(),
        Row::of::<FreeAll>(),
    ]
}
