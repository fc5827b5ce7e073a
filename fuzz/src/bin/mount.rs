//! Arguments and results of MOUNT, by this workspace's types and by the client.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_wire::mount;

fuzz_target!(|input: &[u8]| {
    steadfast_fuzz::check_one_of!(
        input;
        mount::DirPath<'_>, mount::MountRes3<'_>, mount::MountList<'_>, mount::FhStatus,
        mount::Exports<'_>,
    );
    if let Some((procedure, results)) = input.split_first() {
        let key = (steadfast_client::mount::MOUNT, 3, u32::from(*procedure) % 6);
        steadfast_fuzz::client_reads(key, results);
    }
});
