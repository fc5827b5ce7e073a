//! SETATTR (RFC 8881 §18.30).

use steadfast_state::ShareAccess;
use steadfast_wire::nfs4::{NfsStat4, Op4, SetAttr4Args};
use steadfast_xdr::{Encode, Writer};

use super::stateids::{client_of, file_key, given, judge};
use super::status::OrStatus;
use super::{changing, fattr_decode};
use crate::compound::{Op, Run};
use crate::reply::ReplyBuffer;

/// What is set is told with success and failure alike: of a failure nothing is.
pub(super) struct SetAttr;

impl Op for SetAttr {
    const NUMBER: Op4 = Op4::SetAttr;
    const NAME: &'static str = "SETATTR";
    const RESULT_BYTES_MAX: usize = 16;
    type Arguments<'a> = SetAttr4Args<'a>;

    fn run(
        run: &mut Run<'_, '_>,
        arguments: &SetAttr4Args<'_>,
        reply: &mut ReplyBuffer,
    ) -> Result<(), NfsStat4> {
        run.current()?;
        let set = fattr_decode::decode(&arguments.obj_attributes, run.minor_version)?;
        if set.size.is_some() {
            let id = given(run, &arguments.stateid)?;
            let client = client_of(run, &id)?;
            let file = file_key(run.stored(NfsStat4::RoFs)?.1);
            judge(run, &client, &id, &file, ShareAccess::WRITE)?;
        }
        let (_, target) = changing::stored(run)?;
        let durable = target.storage.set_attributes(&target.caller(), &target.handle, &set, None);
        let mut result = Ok(());
        let promised = durable.map(|changed| result = changed.result);
        run.promise(promised);
        result.or_status()?;
        arguments.obj_attributes.attrmask.encode(&mut Writer::new(&mut reply.bytes));
        Ok(())
    }
}
