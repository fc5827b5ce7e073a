//! Results of NFSv3 as the client reads them; the first byte picks the procedure.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_client::NFS3;

fuzz_target!(|input: &[u8]| {
    if let Some((procedure, results)) = input.split_first() {
        steadfast_fuzz::client_reads((NFS3, 3, u32::from(*procedure) % 22), results);
    }
});
