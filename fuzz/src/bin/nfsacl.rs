//! Arguments and results of NFSACL, and of the recovery program.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_wire::{frame, nfsacl, recovery};

fuzz_target!(|input: &[u8]| {
    steadfast_fuzz::check_one_of!(
        input;
        nfsacl::Getacl3Args<'_>, nfsacl::Setacl3Args<'_>, nfsacl::SecAttr,
        recovery::StatusArgs<'_>, recovery::SyncArgs<'_>, recovery::StatusRes, recovery::SyncRes,
        recovery::AttachArgs<'_>, recovery::JournalArgs<'_>, recovery::WritezArgs<'_>,
        recovery::ReadzRes<'_>,
    );
    // A frame, in the data of a file: what comes out is as long as was asked for, and compressed again the same.
    if let Some((head, frame)) = input.split_first_chunk() {
        let bytes = usize::from(u16::from_le_bytes(*head));
        if let Ok(data) = frame::decompress(frame, bytes) {
            assert_eq!(data.len(), bytes);
            if let Some(frame) = frame::compress(&data) {
                assert_eq!(frame::decompress(&frame, bytes), Ok(data));
            }
        }
    }
    if let Some((procedure, results)) = input.split_first() {
        let programs =
            [(steadfast_client::nfsacl::NFSACL, 3), (steadfast_client::recovery::RECOVERY, 1)];
        for (program, version) in programs {
            let key = (program, version, u32::from(*procedure) % 8);
            steadfast_fuzz::client_reads(key, results);
        }
    }
});
