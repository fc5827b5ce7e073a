//! Bytes that no client would send: the engine answers or hangs up, and never panics.

use proptest::prelude::*;
use steadfast_wire::nfs4::Op4;

use crate::compounds::Ops;
use crate::harness::{Client, Server, sender};
use crate::positions::with_arguments;

/// Every operation once, where it does the most.
fn valid() -> Ops {
    let mut ops = Ops::at(&[b"a"]).bare(Op4::SaveFh).bare(Op4::GetFh);
    for (op, arguments) in with_arguments() {
        ops = ops.raw(op as u32, &arguments).bare(Op4::RestoreFh);
    }
    ops
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_bytes_behind_a_head_are_answered(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
        count in prop_oneof![0..64_u32, any::<u32>()],
        in_session in any::<bool>(),
    ) {
        let server = Server::new();
        let client = Client::new(&server, b"c", sender(1));
        let ops = Ops { bytes, count };
        let message = if in_session {
            client.next(true, &Ops { count: count % 64, ..ops })
        } else {
            server.compound(&client.from, b"", 1, &ops)
        };
        prop_assert!(server.send(&client.from, &message).is_some());
    }

    #[test]
    fn any_operations_with_any_arguments_are_answered(
        operations in proptest::collection::vec(
            (3..60_u32, proptest::collection::vec(prop_oneof![0..5_u32, any::<u32>()], 0..12)),
            0..8,
        ),
    ) {
        let server = Server::new();
        let client = Client::new(&server, b"c", sender(1));
        for (number, arguments) in &operations {
            let arguments = crate::compounds::words(arguments);
            let ops = Ops::at(&[b"a"]).bare(Op4::SaveFh).raw(*number, &arguments);
            let message = client.next(true, &ops);
            prop_assert!(server.send(&client.from, &message).is_some());
        }
    }

    #[test]
    fn mutated_compounds_are_answered_or_refused(
        first in 0..22_usize,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        end in any::<prop::sample::Index>(),
        is_cut in any::<bool>(),
    ) {
        let server = Server::new();
        let client = Client::new(&server, b"c", sender(1));
        let (op, arguments) = with_arguments().swap_remove(first);
        let some = Ops::at(&[b"a"]).raw(op as u32, &arguments);
        for ops in [&some, &valid()] {
            let mut message = client.next(true, ops);
            for (at, value) in &changes {
                let at = at.index(message.len());
                message[at] ^= value;
            }
            if is_cut {
                message.truncate(end.index(message.len()));
            }
            // What is no call gets no reply.
            let _ = server.send(&client.from, &message);
        }
    }
}
