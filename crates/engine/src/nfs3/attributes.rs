//! GETATTR, SETATTR, ACCESS (RFC 1813 §3.3.1, §3.3.2, §3.3.4).

use steadfast_state::ShareAccess;
use steadfast_vfs::{AccessMask, Caller};
use steadfast_wire::nfs3::{Access3Args, Getattr3Args, Setattr3Args};
use steadfast_xdr::Writer;

use super::status::{changes, reads};
use super::{decode, encode};
use crate::call::{Call, Outcome};
use crate::operation::Operation;
use crate::program::Procedure;
use crate::reply::ReplyBuffer;

pub(super) struct Getattr;

impl Procedure for Getattr {
    const OPERATION: Operation = reads("GETATTR", 0);
    type Arguments<'a> = Getattr3Args<'a>;

    fn run(call: &mut Call<'_>, arguments: &Getattr3Args<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let mut w = Writer::new(&mut reply.bytes);
        let result = call.resolve(arguments.object.0).and_then(|target| call.look(&target, None));
        match result {
            Ok(attr) => {
                encode::ok(&mut w);
                encode::fattr3(&mut w, &attr);
            }
            Err(error) => return call.fail(&mut w, error),
        }
        Outcome::Done
    }
}

pub(super) struct Setattr;

impl Procedure for Setattr {
    const OPERATION: Operation = changes("SETATTR", 2);
    type Arguments<'a> = Setattr3Args<'a>;

    fn run(call: &mut Call<'_>, arguments: &Setattr3Args<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let mut w = Writer::new(&mut reply.bytes);
        let resolved = call
            .resolve(arguments.object.0)
            .and_then(|target| Ok((target, decode::set_attr(&arguments.new_attributes)?)))
            .and_then(|(target, set)| {
                if set.size.is_some() {
                    call.require_not_denied(&target, ShareAccess::WRITE)?;
                }
                let change = call.begin_change(&target, None)?;
                Ok((target, set, change))
            });
        let (target, set, _change) = match resolved {
            Ok(resolved) => resolved,
            Err(error) => {
                return call.fail(&mut w, error);
            }
        };
        let durable = target.storage.set_attributes(
            &target.caller(),
            &target.handle,
            &set,
            arguments.guard.map(decode::time),
        );
        let encoded = durable.map(|changed| encode::changed(&mut w, &changed));
        call.barrier(encoded)
    }
}

pub(super) struct Access;

impl Procedure for Access {
    const OPERATION: Operation = reads("ACCESS", 1);
    type Arguments<'a> = Access3Args<'a>;

    fn run(call: &mut Call<'_>, arguments: &Access3Args<'_>, reply: &mut ReplyBuffer) -> Outcome {
        let mut wanted = AccessMask::from_bits_truncate(arguments.access) - AccessMask::XATTRS;
        let mut w = Writer::new(&mut reply.bytes);
        let since = call.begin_telling();
        let result = call.resolve(arguments.object.0).and_then(|target| {
            if target.rights.is_read_only {
                wanted -= AccessMask::MODIFY | AccessMask::EXTEND | AccessMask::DELETE;
            }
            let access =
                |caller: &Caller<'_>| target.storage.access(caller, &target.handle, wanted);
            call.read(&target, access).map(|(granted, attr)| (target, granted, attr))
        });
        match result {
            Ok((target, granted, attr)) => {
                encode::ok(&mut w);
                let told = call.told(since, target.storage, &target.handle, &attr);
                encode::post_op_attr(&mut w, told);
                w.u32(granted.bits());
            }
            Err(error) => return call.fail(&mut w, error),
        }
        Outcome::Done
    }
}
