//! NSM version 1: how clients that have restarted say so, that their locks may be freed. It watches
//! nobody for others.

use steadfast_wire::nsm::{Mon, MonId, MyId, Name, SmRes, Stat, StatRes, StateChange};
use steadfast_xdr::{Encode, Writer};

use crate::call::{Call, Outcome};
use crate::operation::Operation;
use crate::program::{Ignored, Null, Port, Procedure, Program, Row, Version};
use crate::reply::ReplyBuffer;

/// NSM.
pub(crate) const PROGRAM: Program = Program {
    name: "nsm",
    number: steadfast_wire::nsm::PROGRAM,
    port: Port::Nfs,
    versions: &[Version::new(1, PROCEDURES)],
};

/// Its procedures by number.
const PROCEDURES: &[Row] = &[
    Row::of::<Null>(),
    Row::of::<SmStat>(),
    Row::of::<SmMon>(),
    Row::of::<SmUnmon>(),
    Row::of::<SmUnmonAll>(),
    Row::of::<SmSimuCrash>(),
    Row::of::<SmNotify>(),
];

fn state_number(call: &Call<'_>) -> u32 {
    call.shared.outbound.get().map_or(0, |outbound| outbound.state_number())
}

/// Declares a procedure.
macro_rules! answers {
    ($($name:ident, $its_name:literal, $arguments:ty, $run:expr;)*) => {$(
        struct $name;

        impl Procedure for $name {
            const OPERATION: Operation = Operation::answers($its_name);
            type Arguments<'a> = $arguments;

            fn run(
                call: &mut Call<'_>,
                arguments: &Self::Arguments<'_>,
                reply: &mut ReplyBuffer,
            ) -> Outcome {
                let run: fn(&Call<'_>, &Self::Arguments<'_>, &mut Writer<'_>) = $run;
                run(call, arguments, &mut Writer::new(&mut reply.bytes));
                Outcome::Done
            }
        }
    )*};
}

answers! {
    SmStat, "STAT", Name<'a>, |call, _, w| is_not_watched(call, w);
    SmMon, "MON", Mon<'a>, |call, _, w| is_not_watched(call, w);
    SmUnmon, "UNMON", MonId<'a>, |call, _, w| Stat { state: state_number(call) }.encode(w);
    SmUnmonAll, "UNMON_ALL", MyId<'a>, |call, _, w| Stat { state: state_number(call) }.encode(w);
    // A restart that is only played would free the locks of all.
    SmSimuCrash, "SIMU_CRASH", Ignored, |_, _, _| {};
    // It counts only from the host's own address: anybody could say that others have restarted. And
    // not any user of it may say so: sm-notify of Linux has a port below 1024, if it is not told another.
    SmNotify, "NOTIFY", StateChange<'a>, |call, change, _| {
        if call.peer.is_privileged() {
            let address = call.peer.address.ip();
            call.shared.state.host_restarted(change.mon_name, address, change.state);
            call.shared.keep_state();
        }
    };
}

fn is_not_watched(call: &Call<'_>, w: &mut Writer<'_>) {
    StatRes { res_stat: SmRes::Failed, state: state_number(call) }.encode(w);
}
