//! COMPOUND (RFC 8881 §16.2, RFC 7530 §15.2): a list of operations, executed one after another until one fails.
//!
//! A [`Run`] is a COMPOUND that is being executed. Its operations are decoded one at a time, where
//! they lie in the message. Between two operations it can stop: [`crate::progress::SuspendedRun`] is what is left of
//! it then, and it goes on with the operation that had to wait. No operation that has ended is
//! ever executed again.
//!
//! Operations are rows of a table ([`OpRow`]), as procedures are; `nfs4` has them.

mod going_on;
mod granted;
mod run;
mod versions;

pub(crate) use run::{Compound, Run};
pub(crate) use versions::Versions;

use steadfast_wire::nfs4::{NfsStat4, Op4};
use steadfast_xdr::{Decode, Reader};

use crate::operation::Operation;
use crate::reply::ReplyBuffer;

/// An operation as the table has it.
pub(crate) struct OpRow {
    pub(crate) number: Op4,
    pub(crate) operation: Operation,
    /// Which minor versions have it.
    pub(crate) versions: Versions,
    /// Where it may stand.
    pub(crate) stands: Stands,
    /// What a success may append to the reply, in bytes, if it must be known before: what cannot be
    /// undone is not done when there is no room to tell of it.
    pub(crate) result_bytes_max: usize,
    pub(crate) run: RunOp,
}

/// Where an operation may stand in a COMPOUND (RFC 8881 §2.10.8.2, §18).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stands {
    /// First, and it makes the COMPOUND one of a session: SEQUENCE.
    First,
    /// Behind SEQUENCE.
    InSession,
    /// Behind SEQUENCE, or alone.
    InSessionOrAlone,
    /// Alone.
    Alone,
}

/// Decodes the arguments and executes an operation. What it appends follows the status of success;
/// when it fails, that is taken away again.
pub(crate) type RunOp =
    fn(&mut Run<'_, '_>, &mut Reader<'_>, &mut ReplyBuffer) -> Result<(), NfsStat4>;

/// One operation of NFSv4. To serve another one, implement this and put [`OpRow::of`] into the
/// table.
pub(crate) trait Op {
    /// Its number.
    const NUMBER: Op4;

    /// Its name in the RFC.
    const NAME: &'static str;

    /// Where it may stand.
    const STANDS: Stands = Stands::InSession;

    /// What its success may append, in bytes, if it changes something or makes state; 0 for others.
    const RESULT_BYTES_MAX: usize = 0;

    /// What it brings, borrowed from the message.
    type Arguments<'a>: Decode<'a>;

    /// Executes it, appending what follows the status of success.
    fn run(
        run: &mut Run<'_, '_>,
        arguments: &Self::Arguments<'_>,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4>;
}

impl OpRow {
    /// The row of an operation.
    pub(crate) const fn of<O: Op>() -> Self {
        Self {
            number: O::NUMBER,
            operation: Operation::reads(O::NAME, crate::nfs4::status::number, 0),
            versions: Versions::ALL,
            stands: O::STANDS,
            result_bytes_max: O::RESULT_BYTES_MAX,
            run: decode_and_run::<O>,
        }
    }

    /// The row of SEQUENCE, which runs do by themselves: it decides what becomes of them.
    pub(crate) const fn sequence() -> Self {
        let row = Self::refused(Op4::Sequence, "SEQUENCE", |_, _, _| Err(NfsStat4::SequencePos));
        Self { stands: Stands::First, ..row }
    }

    /// The row of an operation that is refused, whatever its arguments.
    pub(crate) const fn refused(number: Op4, name: &'static str, run: RunOp) -> Self {
        let operation = Operation::reads(name, crate::nfs4::status::number, 0);
        let (versions, stands) = (Versions::ALL, Stands::InSession);
        Self { number, operation, versions, stands, result_bytes_max: 0, run }
    }

    /// The same in these minor versions alone.
    pub(crate) const fn only_in(self, versions: Versions) -> Self {
        Self { versions, ..self }
    }

    /// Whether a minor version has it.
    ///
    /// # Errors
    /// `OpIllegal` if that does not know it; `NotSupp` if that has it no more.
    pub(crate) fn require_in(&self, minor: u32) -> Result<(), NfsStat4> {
        if self.versions.has(minor) {
            return Ok(());
        }
        Err(if self.versions.are_after(minor) { NfsStat4::OpIllegal } else { NfsStat4::NotSupp })
    }
}

fn decode_and_run<O: Op>(
    run: &mut Run<'_, '_>,
    arguments: &mut Reader<'_>,
    reply: &mut ReplyBuffer,
) -> Result<(), NfsStat4> {
    let arguments = O::Arguments::decode(arguments).map_err(|_| NfsStat4::BadXdr)?;
    O::run(run, &arguments, reply)
}
