//! GETATTR, SETATTR, ACCESS (RFC 1813 §3.3.1, §3.3.2, §3.3.4).

use steadfast_vfs::AccessMask;
use steadfast_wire::nfs3::{Access3Args, Getattr3Args, Setattr3Args};
use steadfast_xdr::{Decode, Reader, Writer, XdrError};

use super::{decode, encode};
use crate::session::{Outcome, Session, barrier};

pub(super) fn getattr(
    session: &mut Session<'_>,
    arguments: &mut Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<Outcome, XdrError> {
    let arguments = Getattr3Args::decode(arguments)?;
    let mut w = Writer::new(reply);
    let result = session.resolve(arguments.object.0).and_then(|target| {
        session.read(&target, |caller| target.storage.attributes(caller, &target.handle))
    });
    match result {
        Ok(attr) => {
            encode::ok(&mut w);
            encode::fattr3(&mut w, &attr);
        }
        Err(error) => encode::failure(&mut w, error, 0),
    }
    Ok(Outcome::Done)
}

pub(super) fn setattr(
    session: &mut Session<'_>,
    arguments: &mut Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<Outcome, XdrError> {
    let arguments = Setattr3Args::decode(arguments)?;
    let mut w = Writer::new(reply);
    let resolved = session
        .resolve(arguments.object.0)
        .and_then(|target| Ok((target, decode::set_attr(&arguments.new_attributes)?)));
    let (target, set) = match resolved {
        Ok(resolved) => resolved,
        Err(error) => {
            encode::failure(&mut w, error, 2);
            return Ok(Outcome::Done);
        }
    };
    let durable = target.storage.set_attributes(
        &target.caller(),
        &target.handle,
        &set,
        arguments.guard.map(decode::time),
    );
    Ok(barrier(durable.map(|changed| encode::changed(&mut w, &changed))))
}

pub(super) fn access(
    session: &mut Session<'_>,
    arguments: &mut Reader<'_>,
    reply: &mut Vec<u8>,
) -> Result<Outcome, XdrError> {
    let arguments = Access3Args::decode(arguments)?;
    let mut wanted = AccessMask::from_bits_truncate(arguments.access);
    let mut w = Writer::new(reply);
    let result = session.resolve(arguments.object.0).and_then(|target| {
        if target.rights.is_read_only {
            wanted -= AccessMask::MODIFY | AccessMask::EXTEND | AccessMask::DELETE;
        }
        session.read(&target, |caller| target.storage.access(caller, &target.handle, wanted))
    });
    match result {
        Ok((granted, attr)) => {
            encode::ok(&mut w);
            encode::post_op_attr(&mut w, Some(&attr));
            w.u32(granted.bits());
        }
        Err(error) => encode::failure(&mut w, error, 1),
    }
    Ok(Outcome::Done)
}
