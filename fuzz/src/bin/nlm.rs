//! Arguments and results of NLM in both widths, and of NSM. What is read as 64 bits is cut to 32
//! without a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_wire::{nlm, nsm};
use steadfast_xdr::{Decode, Reader};

fuzz_target!(|input: &[u8]| {
    steadfast_fuzz::check_one_of!(
        input;
        nlm::v1::TestArgs<'_>, nlm::v1::LockArgs<'_>, nlm::v1::CancelArgs<'_>,
        nlm::v1::UnlockArgs<'_>, nlm::v1::TestRes<'_>, nlm::v1::Res<'_>, nlm::v1::ShareArgs<'_>,
        nlm::v1::ShareRes<'_>, nlm::v1::Notify<'_>,
        nlm::v4::TestArgs<'_>, nlm::v4::LockArgs<'_>, nlm::v4::CancelArgs<'_>,
        nlm::v4::UnlockArgs<'_>, nlm::v4::TestRes<'_>, nlm::v4::Res<'_>, nlm::v4::ShareArgs<'_>,
        nlm::v4::ShareRes<'_>, nlm::v4::Notify<'_>,
        nsm::Name<'_>, nsm::MonId<'_>, nsm::Mon<'_>, nsm::StatRes, nsm::StateChange<'_>,
    );
    let Some((_, rest)) = input.split_first() else { return };
    if let Ok(lock) = nlm::v4::LockArgs::decode(&mut Reader::new(rest)) {
        let narrow = nlm::v1::Lock::from(lock.lock);
        assert_eq!(nlm::v1::Lock::from(nlm::v4::Lock::from(narrow)), narrow);
    }
});
