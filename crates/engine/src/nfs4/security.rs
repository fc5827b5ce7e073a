//! SECINFO and `SECINFO_NO_NAME` (RFC 8881 §18.29, §18.45): by which flavours an object may be used.

use steadfast_shares::{Decision, Flavor, ShareId};
use steadfast_wire::nfs4::{NfsStat4, Op4, SecInfo4Args, SecInfoNoName4Args};
use steadfast_xdr::Writer;

use super::names::{LookupP, look_up};
use crate::compound::{Op, Run};
use crate::program::Ignored;
use crate::progress::{Object, Place};
use crate::pseudo::Node;
use crate::reply::ReplyBuffer;

/// The current object itself.
const OF_CURRENT: u32 = 0;
/// Its parent.
const OF_PARENT: u32 = 1;

/// Tells the flavours of a share, or of the pseudo file system. The current object, which was `before`, is
/// used up.
fn tell(
    run: &mut Run<'_, '_>,
    before: Place,
    share: Option<ShareId>,
    reply: &mut ReplyBuffer,
) -> Result<(), NfsStat4> {
    let call = &*run.call;
    let exported = match share {
        None => None,
        Some(share) => Some(call.exports.exported(share).ok_or(NfsStat4::Stale)?),
    };
    let is_served = |flavor| {
        let question = call.peer.question(flavor);
        exported.is_none_or(|it| {
            let decision = call.shared.authority.decide(&it.export.share.rules, &question);
            !matches!(decision, Decision::Refused(_))
        })
    };
    let mut w = Writer::new(&mut reply.bytes);
    let served = [(Flavor::Sys, 1), (Flavor::None, 0)]
        .map(|(flavor, number)| if is_served(flavor) { Some(number) } else { None });
    w.u32(served.iter().flatten().count() as u32);
    for number in served.into_iter().flatten() {
        w.u32(number);
    }
    // Minor version 0 leaves the current object as it was (RFC 7530 §16.31).
    run.set_current_place(if run.minor_version > 0 { Place::default() } else { before });
    Ok(())
}

/// The share of the current object, if it is of one.
fn share_of_current(run: &Run<'_, '_>) -> Result<Option<ShareId>, NfsStat4> {
    Ok(match run.current()? {
        Object::Node(_) => None,
        Object::Stored(share, _) => Some(share),
    })
}

pub(super) struct SecInfo;

impl Op for SecInfo {
    const NUMBER: Op4 = Op4::SecInfo;
    const NAME: &'static str = "SECINFO";
    type Arguments<'a> = SecInfo4Args<'a>;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &SecInfo4Args<'_>,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        let before = run.progress.current;
        // Whoever asks has been told that he needs another flavour: that is no reason to refuse.
        let share = match (run.current()?, look_up(run, arguments.name)) {
            (_, Ok(_)) => share_of_current(run)?,
            (object, Err(NfsStat4::WrongSec)) => {
                let exports = run.call.exports;
                let node = match object {
                    Object::Node(key) => run.node(&key)?,
                    // The name is one of a share in this one.
                    Object::Stored(share, _) => {
                        let around = exports.by_id(share).ok_or(NfsStat4::Stale)?;
                        let path = around.share.path.as_bytes();
                        exports.pseudo().at(path).ok_or(NfsStat4::NoEnt)?
                    }
                };
                let child = exports.pseudo().child(node, arguments.name);
                Some(child.and_then(Node::share).ok_or(NfsStat4::NoEnt)?)
            }
            (_, Err(status)) => return Err(status),
        };
        tell(run, before, share, reply)
    }
}

pub(super) struct SecInfoNoName;

impl Op for SecInfoNoName {
    const NUMBER: Op4 = Op4::SecInfoNoName;
    const NAME: &'static str = "SECINFO_NO_NAME";
    type Arguments<'a> = SecInfoNoName4Args;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &SecInfoNoName4Args,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        match arguments.style {
            OF_CURRENT => {
                run.current()?;
            }
            OF_PARENT => LookupP::run(run, &Ignored, reply)?,
            _ => return Err(NfsStat4::BadXdr),
        }
        let share = share_of_current(run)?;
        tell(run, Place::default(), share, reply)
    }
}
