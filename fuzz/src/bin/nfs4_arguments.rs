//! Arguments of NFSv4; the first byte picks the operation. A bitmap may come in more words than it
//! needs, and is written in as few as it can: so what is read is the same when it is read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_fuzz::written;
use steadfast_wire::nfs4;
use steadfast_xdr::{Decode, Reader};

/// Writes what it reads, and reads it again.
macro_rules! read_again {
    ($($type:ty),* $(,)?) => {
        &[$(|bytes: &[u8]| {
            let Ok(value) = <$type>::decode(&mut Reader::new(bytes)) else { return };
            let again = written(&value);
            assert_eq!(<$type>::decode(&mut Reader::new(&again)).as_ref(), Ok(&value));
        }),*]
    };
}

fuzz_target!(|input: &[u8]| {
    let readers: &[fn(&[u8])] = read_again!(
        nfs4::CompoundHead4<'_>,
        nfs4::Op4,
        nfs4::NfsStat4,
        nfs4::Access4Args,
        nfs4::Close4Args,
        nfs4::Commit4Args,
        nfs4::Create4Args<'_>,
        nfs4::GetAttr4Args,
        nfs4::Link4Args<'_>,
        nfs4::Lock4Args<'_>,
        nfs4::LockT4Args<'_>,
        nfs4::LockU4Args,
        nfs4::LockDenied4<'_>,
        nfs4::Lookup4Args<'_>,
        nfs4::Open4Args<'_>,
        nfs4::OpenDowngrade4Args,
        nfs4::PutFh4Args<'_>,
        nfs4::Read4Args,
        nfs4::ReadDir4Args,
        nfs4::Remove4Args<'_>,
        nfs4::Rename4Args<'_>,
        nfs4::SecInfo4Args<'_>,
        nfs4::SecInfoNoName4Args,
        nfs4::SetAttr4Args<'_>,
        nfs4::Verify4Args<'_>,
        nfs4::Write4Args<'_>,
        nfs4::BackchannelCtl4Args<'_>,
        nfs4::BindConnToSession4Args,
        nfs4::CreateSession4Args<'_>,
        nfs4::DestroyClientId4Args,
        nfs4::DestroySession4Args,
        nfs4::ExchangeId4Args<'_>,
        nfs4::FreeStateId4Args,
        nfs4::ReclaimComplete4Args,
        nfs4::Sequence4Args,
        nfs4::TestStateId4Args,
        nfs4::SetClientId4Args<'_>,
        nfs4::SetClientIdConfirm4Args,
        nfs4::Renew4Args,
        nfs4::OpenConfirm4Args,
        nfs4::ReleaseLockOwner4Args<'_>,
        nfs4::Allocate4Args,
        nfs4::Clone4Args,
        nfs4::Copy4Args<'_>,
        nfs4::IoAdvise4Args,
        nfs4::ReadPlus4Args,
        nfs4::Seek4Args,
        nfs4::XattrName4Args<'_>,
        nfs4::SetXattr4Args<'_>,
        nfs4::ListXattrs4Args,
        nfs4::CallbackCompoundHead4<'_>,
        nfs4::CallbackSequence4Args,
        nfs4::CallbackSequence4Result,
        nfs4::CallbackNotifyLock4Args<'_>,
        nfs4::CompoundReplyHead4<'_>,
    );
    if let Some((which, rest)) = input.split_first() {
        readers[usize::from(*which) % readers.len()](rest);
    }
});
