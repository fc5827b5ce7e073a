//! PUTFH, PUTROOTFH, PUTPUBFH, GETFH, SAVEFH, RESTOREFH (RFC 8881 §18.8, §18.19 to §18.21,
//! §18.27, §18.28).

use steadfast_wire::nfs4::{NfsStat4, Op4, PutFh4Args};
use steadfast_xdr::Writer;

use super::names::enter;
use crate::complaint::Complaint;
use crate::compound::{Op, Run};
use crate::host::Stage;
use crate::program::Ignored;
use crate::progress::Object;
use crate::reply::ReplyBuffer;
use crate::wire_handle::{Opened, SealedHandle};

/// The handle of an object as the client will hold it.
pub(super) fn sealed(run: &Run<'_, '_>, object: &Object) -> SealedHandle {
    let sealer = &run.call.shared.sealer;
    match object {
        Object::Node(key) => sealer.seal_node(key),
        Object::Stored(share, handle) => sealer.seal(*share, handle),
    }
}

pub(super) struct PutFh;

impl Op for PutFh {
    const NUMBER: Op4 = Op4::PutFh;
    const NAME: &'static str = "PUTFH";
    type Arguments<'a> = PutFh4Args<'a>;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &PutFh4Args<'_>,
        _: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        run.call.host.stage(Stage::Access);
        let Some(opened) = run.call.shared.sealer.open_any(arguments.object) else {
            run.call.complaint = Some(Complaint::ForgedHandle);
            return Err(NfsStat4::BadHandle);
        };
        match opened {
            Opened::Node(key) => {
                run.node(&key)?;
                run.set_current(Object::Node(key));
            }
            Opened::Object(share, handle) => {
                let target = run.resolve(share, handle).map_err(super::status::status)?;
                run.set_current_target(target);
            }
        }
        run.call.host.stage(Stage::Storage);
        Ok(())
    }
}

/// The root of the pseudo file system.
fn put_root(run: &mut Run<'_, '_>) -> Result<(), NfsStat4> {
    let root = run.call.exports.pseudo().root();
    enter(run, root)
}

pub(super) struct PutRootFh;

impl Op for PutRootFh {
    const NUMBER: Op4 = Op4::PutRootFh;
    const NAME: &'static str = "PUTROOTFH";
    type Arguments<'a> = Ignored;

    fn run(run: &mut Run<'_, '_>, _: &Ignored, _: &mut ReplyBuffer) -> Result<(), NfsStat4> {
        put_root(run)
    }
}

/// The public handle is the root's.
pub(super) struct PutPubFh;

impl Op for PutPubFh {
    const NUMBER: Op4 = Op4::PutPubFh;
    const NAME: &'static str = "PUTPUBFH";
    type Arguments<'a> = Ignored;

    fn run(run: &mut Run<'_, '_>, _: &Ignored, _: &mut ReplyBuffer) -> Result<(), NfsStat4> {
        put_root(run)
    }
}

pub(super) struct GetFh;

impl Op for GetFh {
    const NUMBER: Op4 = Op4::GetFh;
    const NAME: &'static str = "GETFH";
    type Arguments<'a> = Ignored;

    fn run(run: &mut Run<'_, '_>, _: &Ignored, reply: &mut ReplyBuffer) -> Result<(), NfsStat4> {
        let handle = sealed(run, &run.current()?);
        Writer::new(&mut reply.bytes).opaque(handle.as_bytes());
        Ok(())
    }
}

pub(super) struct SaveFh;

impl Op for SaveFh {
    const NUMBER: Op4 = Op4::SaveFh;
    const NAME: &'static str = "SAVEFH";
    type Arguments<'a> = Ignored;

    fn run(run: &mut Run<'_, '_>, _: &Ignored, _: &mut ReplyBuffer) -> Result<(), NfsStat4> {
        run.current()?;
        run.progress.saved = run.progress.current;
        Ok(())
    }
}

pub(super) struct RestoreFh;

impl Op for RestoreFh {
    const NUMBER: Op4 = Op4::RestoreFh;
    const NAME: &'static str = "RESTOREFH";
    type Arguments<'a> = Ignored;

    fn run(run: &mut Run<'_, '_>, _: &Ignored, _: &mut ReplyBuffer) -> Result<(), NfsStat4> {
        let saved = run.progress.saved;
        saved.object.ok_or(NfsStat4::RestoreFh)?;
        run.set_current_place(saved);
        Ok(())
    }
}
