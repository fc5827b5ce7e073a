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
    steadfast_fuzz::client_reads(steadfast_client::rpcbind::RPCBIND, 3, input);
});
