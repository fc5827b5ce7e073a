//! Arguments of NFSv4.1; the first byte picks the operation.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_wire::nfs4;

fuzz_target!(|input: &[u8]| {
    steadfast_fuzz::check_one_of!(
        input;
        nfs4::CompoundHead4<'_>, nfs4::Op4, nfs4::NfsStat4, nfs4::Access4Args, nfs4::Close4Args,
        nfs4::Commit4Args, nfs4::Create4Args<'_>, nfs4::GetAttr4Args, nfs4::Link4Args<'_>,
        nfs4::Lock4Args<'_>, nfs4::LockT4Args<'_>, nfs4::LockU4Args, nfs4::LockDenied4<'_>,
        nfs4::Lookup4Args<'_>, nfs4::Open4Args<'_>, nfs4::OpenDowngrade4Args,
        nfs4::PutFh4Args<'_>, nfs4::Read4Args, nfs4::ReadDir4Args, nfs4::Remove4Args<'_>,
        nfs4::Rename4Args<'_>, nfs4::SecInfo4Args<'_>, nfs4::SecInfoNoName4Args,
        nfs4::SetAttr4Args<'_>, nfs4::Verify4Args<'_>, nfs4::Write4Args<'_>,
        nfs4::BackchannelCtl4Args<'_>, nfs4::BindConnToSession4Args,
        nfs4::CreateSession4Args<'_>, nfs4::DestroyClientId4Args, nfs4::DestroySession4Args,
        nfs4::ExchangeId4Args<'_>, nfs4::FreeStateId4Args, nfs4::ReclaimComplete4Args,
        nfs4::Sequence4Args, nfs4::TestStateId4Args,
    );
});
