//! The same of NFSv4.

mod golden;
mod strategies;

use proptest::prelude::*;
use steadfast_wire::nfs4::{self, Bitmap4, CompoundHead4, Op4};
use steadfast_xdr::{Decode, Reader};

types! {
    ALL;
    status: nfs4::NfsStat4;
    op: Op4;
    attribute: nfs4::Attribute4;
    bitmap: Bitmap4;
    fattr: nfs4::Fattr4<'_>;
    stateid: nfs4::StateId4;
    compound_head: CompoundHead4<'_>;
    access: nfs4::Access4Args;
    close: nfs4::Close4Args;
    commit: nfs4::Commit4Args;
    create: nfs4::Create4Args<'_>;
    getattr: nfs4::GetAttr4Args;
    link: nfs4::Link4Args<'_>;
    lock: nfs4::Lock4Args<'_>;
    lockt: nfs4::LockT4Args<'_>;
    locku: nfs4::LockU4Args;
    lookup: nfs4::Lookup4Args<'_>;
    open: nfs4::Open4Args<'_>;
    open_downgrade: nfs4::OpenDowngrade4Args;
    putfh: nfs4::PutFh4Args<'_>;
    read: nfs4::Read4Args;
    readdir: nfs4::ReadDir4Args;
    remove: nfs4::Remove4Args<'_>;
    rename: nfs4::Rename4Args<'_>;
    secinfo: nfs4::SecInfo4Args<'_>;
    secinfo_no_name: nfs4::SecInfoNoName4Args;
    setattr: nfs4::SetAttr4Args<'_>;
    verify: nfs4::Verify4Args<'_>;
    write: nfs4::Write4Args<'_>;
    sequence: nfs4::Sequence4Args;
    exchange_id: nfs4::ExchangeId4Args<'_>;
    create_session: nfs4::CreateSession4Args<'_>;
    backchannel_ctl: nfs4::BackchannelCtl4Args<'_>;
    bind_conn_to_session: nfs4::BindConnToSession4Args;
    destroy_session: nfs4::DestroySession4Args;
    destroy_clientid: nfs4::DestroyClientId4Args;
    reclaim_complete: nfs4::ReclaimComplete4Args;
    free_stateid: nfs4::FreeStateId4Args;
    test_stateid: nfs4::TestStateId4Args;
    setclientid: nfs4::SetClientId4Args<'_>;
    setclientid_result: nfs4::SetClientId4Result;
    setclientid_in_use: nfs4::ClientInUse4<'_>;
    setclientid_confirm: nfs4::SetClientIdConfirm4Args;
    renew: nfs4::Renew4Args;
    open_confirm: nfs4::OpenConfirm4Args;
    release_lockowner: nfs4::ReleaseLockOwner4Args<'_>;
    callback_op: nfs4::CallbackOp4;
    callback_compound_head: nfs4::CallbackCompoundHead4<'_>;
    callback_sequence: nfs4::CallbackSequence4Args;
    callback_sequence_result: nfs4::CallbackSequence4Result;
    callback_notify_lock: nfs4::CallbackNotifyLock4Args<'_>;
    callback_recall: nfs4::CallbackRecall4Args<'_>;
    callback_getattr: nfs4::CallbackGetAttr4Args<'_>;
    callback_getattr_result: nfs4::CallbackGetAttr4Result<'_>;
    compound_reply_head: nfs4::CompoundReplyHead4<'_>;
    change_info: nfs4::ChangeInfo4;
    time: nfs4::NfsTime4;
    file_type: nfs4::FileType4;
    ace: nfs4::Ace4<'_>;
    lock_denied: nfs4::LockDenied4<'_>;
    sequence_result: nfs4::Sequence4Result;
    exchange_id_result: nfs4::ExchangeId4Result<'_>;
    create_session_result: nfs4::CreateSession4Result;
    bind_conn_to_session_result: nfs4::BindConnToSession4Result;
    access_result: nfs4::Access4Result;
    getfh_result: nfs4::GetFh4Result<'_>;
    open_result: nfs4::Open4Result<'_>;
    read_result: nfs4::Read4Result<'_>;
    write_result: nfs4::Write4Result;
    create_result: nfs4::Create4Result;
    rename_result: nfs4::Rename4Result;
    readlink_result: nfs4::ReadLink4Result<'_>;
    secinfo_result: nfs4::SecInfo4Result<'_>;
    test_stateid_result: nfs4::TestStateId4Result;
    allocate: nfs4::Allocate4Args;
    clone: nfs4::Clone4Args;
    copy: nfs4::Copy4Args<'_>;
    copy_result: nfs4::Copy4Result;
    io_advise: nfs4::IoAdvise4Args;
    read_plus: nfs4::ReadPlus4Args;
    read_plus_result: nfs4::ReadPlus4Result<'_>;
    seek: nfs4::Seek4Args;
    seek_result: nfs4::Seek4Result;
    xattr_name: nfs4::XattrName4Args<'_>;
    getxattr_result: nfs4::GetXattr4Result<'_>;
    setxattr: nfs4::SetXattr4Args<'_>;
    listxattrs: nfs4::ListXattrs4Args;
    listxattrs_result: nfs4::ListXattrs4Result<'_>;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn any_bytes_can_be_read_by_every_type(bytes in super::likely_bytes()) {
        for (name, reencode) in ALL {
            if let Some((again, read)) = reencode(&bytes) {
                prop_assert!(read <= bytes.len());
                // A bitmap may have words that say nothing: those are not written again.
                prop_assert!(again.len() <= read, "{}", name);
                let same = reencode(&again);
                prop_assert_eq!(same, Some((again.clone(), again.len())), "{}", name);
            }
        }
    }
}

/// A bitmap of a client that knows more attributes than there are here.
#[test]
fn of_words_above_those_known_only_that_they_are_is_kept() {
    let long = b"\0\0\0\x05\0\0\0\x02\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0";
    let mut r = Reader::new(long);
    let read = Bitmap4::decode(&mut r).unwrap();
    assert!(r.is_empty() && read.words() == [2, 0, 0]);
    assert!(!read.without(&Bitmap4::from_words([u32::MAX; 3])).is_empty());
    let again = super::written(&read);
    assert_eq!(again, b"\0\0\0\x04\0\0\0\x02\0\0\0\0\0\0\0\0\0\0\0\x01");
    assert_eq!(Bitmap4::decode(&mut Reader::new(&again)), Ok(read));
    // The same, with nothing set that is not known.
    let zeros = b"\0\0\0\x05\0\0\0\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let read = Bitmap4::decode(&mut Reader::new(zeros)).unwrap();
    assert_eq!(read, Bitmap4::from_words([2, 0, 0]));
    // A length that was only announced takes neither memory nor time.
    assert!(Bitmap4::decode(&mut Reader::new(&[0xff; 8])).is_err());
}

#[test]
fn announced_lengths_are_refused_beyond_their_bounds() {
    let announced = |word: u32| [word.to_be_bytes(), [0; 4]].concat();
    assert!(nfs4::PutFh4Args::decode(&mut Reader::new(&announced(129))).is_err());
    assert!(nfs4::Lookup4Args::decode(&mut Reader::new(&announced(4097))).is_err());
    assert!(nfs4::TestStateId4Args::decode(&mut Reader::new(&announced(4097))).is_err());
    assert!(nfs4::SecInfo4Result::decode(&mut Reader::new(&announced(65))).is_err());
    assert!(CompoundHead4::decode(&mut Reader::new(&announced(u32::MAX))).is_err());
    assert!(nfs4::ClientInUse4::decode(&mut Reader::new(&announced(65))).is_err());
    assert!(nfs4::XattrName4Args::decode(&mut Reader::new(&announced(4097))).is_err());
    let listed = [&[0; 8][..], &announced(u32::MAX)].concat();
    assert!(nfs4::ListXattrs4Result::decode(&mut Reader::new(&listed)).is_err());
    let parts = [&[0; 4][..], &announced(1025)].concat();
    assert!(nfs4::ReadPlus4Result::decode(&mut Reader::new(&parts)).is_err());
    // Two implementation ids where there may be one.
    let two = [&[0; 8][..], &announced(0), &[0; 4], &2_u32.to_be_bytes(), &[0; 64]].concat();
    assert!(nfs4::ExchangeId4Args::decode(&mut Reader::new(&two)).is_err());
}

/// Operations follow each other without a gap: a COMPOUND is read as it was written.
#[test]
fn operations_are_read_one_after_the_other() {
    let mut r = Reader::new(golden::COMPOUND);
    let head = CompoundHead4::decode(&mut r).unwrap();
    assert_eq!((head.tag, head.minorversion, head.operations), (&b"ls"[..], 1, 3));
    assert_eq!(Op4::decode(&mut r), Ok(Op4::Sequence));
    assert_eq!(nfs4::Sequence4Args::decode(&mut r).unwrap().sequenceid, 7);
    assert_eq!(Op4::decode(&mut r), Ok(Op4::PutFh));
    assert_eq!(nfs4::PutFh4Args::decode(&mut r).unwrap().object, b"dir");
    assert_eq!(Op4::decode(&mut r), Ok(Op4::ReadDir));
    assert_eq!(nfs4::ReadDir4Args::decode(&mut r).unwrap().maxcount, 0x2000);
    assert!(r.is_empty());
}
