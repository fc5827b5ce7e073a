//! Arguments and results of NFSACL, and of the recovery program.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_wire::{nfsacl, recovery};

fuzz_target!(|input: &[u8]| {
    steadfast_fuzz::check_one_of!(
        input;
        nfsacl::Getacl3Args<'_>, nfsacl::Setacl3Args<'_>, nfsacl::SecAttr,
        recovery::StatusArgs<'_>, recovery::SyncArgs<'_>, recovery::StatusRes, recovery::SyncRes,
        recovery::AttachArgs<'_>, recovery::JournalArgs<'_>,
    );
    if let Some((procedure, results)) = input.split_first() {
        let programs =
            [(steadfast_client::nfsacl::NFSACL, 3), (steadfast_client::recovery::RECOVERY, 1)];
        for (program, version) in programs {
            let key = (program, version, u32::from(*procedure) % 6);
            steadfast_fuzz::client_reads(key, results);
        }
    }
});
