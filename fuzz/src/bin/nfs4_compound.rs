//! COMPOUNDs through the engine over a file system in memory. An input is a row of them, each after
//! two bytes: how many operations it has, of which minor version, and whether flushes work; and how
//! many words long it is. SEQUENCE comes before each that is not of minor version 0. Handles are stand-ins (see
//! [`steadfast_fuzz::server`]).
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_fuzz::server::Server;

const COMPOUNDS_MAX: usize = 32;

fuzz_target!(|input: &[u8]| {
    let mut server = Server::default();
    let mut rest = input;
    for _ in 0..COMPOUNDS_MAX {
        let Some(([kind, words], later)) = rest.split_first_chunk::<2>() else { return };
        let (operations, later) = later.split_at(later.len().min(usize::from(*words) * 4));
        rest = later;
        let flush_works = kind & 0x80 == 0;
        let count = u32::from(kind & 0x1f);
        if kind & 0x40 == 0 {
            server.compound(count, operations, flush_works);
        } else {
            server.compound_of_minor_0(count, operations, flush_works);
        }
    }
});
