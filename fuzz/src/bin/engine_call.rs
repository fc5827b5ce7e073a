//! Whole calls through the engine over a file system in memory. An input is a row of calls, each
//! after two bytes: what kind, and how many words long it is. Handles in it are stand-ins
//! (see [`steadfast_fuzz::server`]), so that valid ones occur; so the sealing of handles is
//! fuzzed here too. Each reply must be of its procedure's type to the last byte.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_fuzz::server::{Server, message};

/// Program, version and number of procedures.
const PROGRAMS: [(u32, u32, u32); 9] = [
    (100_003, 3, 23),
    (100_003, 2, 19),
    (100_227, 3, 4),
    (100_005, 3, 7),
    (100_005, 1, 8),
    (100_000, 2, 6),
    (100_000, 3, 9),
    (100_000, 4, 13),
    (0x2053_4a52, 1, 4),
];
const CALLS_MAX: usize = 32;

fuzz_target!(|input: &[u8]| {
    let mut server = Server::default();
    let mut rest = input;
    for _ in 0..CALLS_MAX {
        let Some(([kind, words], later)) = rest.split_first_chunk::<2>() else { return };
        let (body, later) = later.split_at(later.len().min(usize::from(*words) * 4));
        rest = later;
        let flush_works = kind & 0x80 == 0;
        if kind & 0x40 != 0 {
            // The call as it is, head and all.
            server.call(body, flush_works);
            continue;
        }
        // A good head, except that the first byte of the arguments picks the procedure.
        let (program, version, procedures) = PROGRAMS[usize::from(kind & 15) % PROGRAMS.len()];
        let Some((procedure, arguments)) = body.split_first_chunk::<4>() else { continue };
        let procedure = u32::from(procedure[3]) % procedures;
        let mut call = message(program, version, procedure, arguments);
        if let Some(xid) = call.get_mut(..4) {
            xid.copy_from_slice(&[0, 0, body[0], body[1]]);
        }
        server.call(&call, flush_works);
    }
});
