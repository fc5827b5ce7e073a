//! Arguments and results of NFSACL.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_wire::nfsacl;

fuzz_target!(|input: &[u8]| {
    steadfast_fuzz::check_one_of!(
        input;
        nfsacl::Getacl3Args<'_>, nfsacl::Setacl3Args<'_>, nfsacl::SecAttr,
    );
    if let Some((procedure, results)) = input.split_first() {
        steadfast_fuzz::client_reads(
            steadfast_client::nfsacl::NFSACL,
            u32::from(*procedure) % 3,
            results,
        );
    }
});
