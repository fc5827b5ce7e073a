//! Arguments and results of rpcbind, versions 2 to 4.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_wire::rpcbind;

fuzz_target!(|input: &[u8]| {
    steadfast_fuzz::check_one_of!(
        input;
        rpcbind::Mapping, rpcbind::MappingList, rpcbind::Binding<'_>, rpcbind::BindingList<'_>,
        rpcbind::UniversalAddress<'_>, rpcbind::AddressList<'_>,
        rpcbind::RemoteCall<'_>, rpcbind::RemoteResult<'_>, rpcbind::RemoteResult2<'_>,
        rpcbind::Netbuf<'_>,
    );
    if let Some((which, results)) = input.split_first() {
        // What the client calls of versions 2 to 4; the seeds of lists, which the first byte picks
        // above, are read by DUMP.
        let called = [(2, 0), (2, 4), (2, 1), (4, 4), (3, 3), (2, 2), (2, 3), (4, 1), (4, 2)];
        let (version, number) = called[usize::from(*which) % called.len()];
        let key = (steadfast_client::rpcbind::RPCBIND, version, number);
        steadfast_fuzz::client_reads(key, results);
    }
});
