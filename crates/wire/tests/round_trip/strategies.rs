//! Values of every message type, made of a few random parts.
//!
//! The types borrow from what they are made of, which a strategy's values cannot: so a strategy
//! makes the [`Parts`], and each type is put together of them inside the test.

use proptest::prelude::*;
use smallvec::{Array, SmallVec};
use steadfast_wire::List;
use steadfast_wire::mount::{
    DirPath, ExportEntry, FhStatus, Group, MountEntry, MountRes3, Mounted3,
};
use steadfast_wire::nfs3::{
    Access3Args, Access3Ok, Commit3Args, Commit3Ok, Create3Args, CreateHow3, DeviceData3,
    DirOpArgs3, Entry3, EntryPlus3, Fattr3, FileType3, Fsinfo3Args, Fsinfo3Ok, Fsstat3Args,
    Fsstat3Ok, Getattr3Args, Link3Args, Linked3, Lookup3Args, Lookup3Ok, Made3Ok, Mkdir3Args,
    Mknod3Args, MknodData3, NfsFh3, NfsStat3, NfsTime3, Nothing3, Pathconf3Args, Pathconf3Ok,
    Read3Args, Read3Ok, Readdir3Args, Readdir3Ok, Readdirplus3Args, Readdirplus3Ok, Readlink3Args,
    Readlink3Ok, Remove3Args, Rename3Args, Renamed3, Res3, Rmdir3Args, Sattr3, SetTime3,
    Setattr3Args, SpecData3, StableHow, Symlink3Args, SymlinkData3, WccAttr3, WccData3, Write3Args,
    Write3Head, Write3Ok,
};
use steadfast_wire::nfsacl::{AclEntry, AclList, Getacl3Args, Getacl3Ok, SecAttr, Setacl3Args};
use steadfast_wire::recovery::{
    AttachArgs, JournalArgs, ReadzOk, StatusArgs, StatusOk, StatusRes, SyncArgs, SyncOk, SyncRes,
    WritezArgs,
};
use steadfast_wire::rpc::{
    AcceptStat, AuthStat, AuthSys, CallHeader, OpaqueAuth, RejectStat, ReplyHeader, ReplyStatus,
};
use steadfast_wire::rpcbind::{
    AddressCalls, AddressEntry, Binding, Mapping, Netbuf, RemoteCall, RemoteCalls, RemoteResult,
    RemoteResult2, UniversalAddress, VersionStatistics,
};

/// What values are made of.
#[derive(Debug)]
pub(crate) struct Parts {
    words: Vec<u64>,
    data: Vec<Vec<u8>>,
}

pub(crate) fn parts() -> impl Strategy<Value = Parts> {
    let word = prop_oneof![any::<u64>(), 0_u64..10, Just(u64::MAX)];
    // No longer than the shortest bound, that of handles.
    let data = prop::collection::vec(any::<u8>(), 0..=64);
    (prop::collection::vec(word, 1..40), prop::collection::vec(data, 1..6))
        .prop_map(|(words, data)| Parts { words, data })
}

/// A type whose values can be made; `at` counts the parts used, and goes round.
pub(crate) trait Make<'p>: Sized {
    fn make(parts: &'p Parts, at: &mut usize) -> Self;
}

pub(crate) fn word(parts: &Parts, at: &mut usize) -> u64 {
    *at += 1;
    parts.words[*at % parts.words.len()]
}

pub(crate) fn one_of<T: Copy>(all: &[T], parts: &Parts, at: &mut usize) -> T {
    all[(word(parts, at) % all.len() as u64) as usize]
}

fn some<'p, T: Make<'p>>(parts: &'p Parts, at: &mut usize) -> Vec<T> {
    let count = word(parts, at) % 5;
    (0..count).map(|_| T::make(parts, at)).collect()
}

impl<'p> Make<'p> for u32 {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        word(parts, at) as u32
    }
}

impl<'p> Make<'p> for u64 {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        word(parts, at)
    }
}

impl<'p> Make<'p> for i64 {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        word(parts, at).cast_signed()
    }
}

impl<'p> Make<'p> for bool {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        word(parts, at) % 2 == 1
    }
}

impl<'p, const N: usize> Make<'p> for [u8; N] {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        let word = word(parts, at).to_be_bytes();
        std::array::from_fn(|index| word[index % 8])
    }
}

impl<'p> Make<'p> for &'p [u8] {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        *at += 1;
        &parts.data[*at % parts.data.len()]
    }
}

impl<'p, T: Make<'p>> Make<'p> for Option<T> {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        (word(parts, at) % 2 == 1).then(|| T::make(parts, at))
    }
}

impl<'p, T: Make<'p>> Make<'p> for Vec<T> {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        some(parts, at)
    }
}

impl<'p, A: Array<Item: Make<'p>>> Make<'p> for SmallVec<A> {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        some(parts, at).into_iter().collect()
    }
}

impl<'p, T: Make<'p>> Make<'p> for List<T> {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        List(some(parts, at))
    }
}

impl<'p> Make<'p> for NfsFh3<'p> {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        NfsFh3(Make::make(parts, at))
    }
}

impl<'p> Make<'p> for SetTime3 {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        let time = Make::make(parts, at);
        one_of(&[Self::DontChange, Self::SetToServerTime, Self::SetToClientTime(time)], parts, at)
    }
}

impl<'p> Make<'p> for CreateHow3 {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        let (set, verifier) = (Make::make(parts, at), Make::make(parts, at));
        one_of(&[Self::Unchecked(set), Self::Guarded(set), Self::Exclusive(verifier)], parts, at)
    }
}

impl<'p> Make<'p> for MknodData3 {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        let (set, device) = (Make::make(parts, at), Make::make(parts, at));
        let all = [
            Self::Chr(device),
            Self::Blk(device),
            Self::Sock(set),
            Self::Fifo(set),
            Self::Reg,
            Self::Dir,
            Self::Lnk,
        ];
        one_of(&all, parts, at)
    }
}

impl<'p> Make<'p> for FhStatus {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        match Make::make(parts, at) {
            0 => Self::Ok(Make::make(parts, at)),
            status => Self::Failed(status),
        }
    }
}

impl<'p> Make<'p> for MountRes3<'p> {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        let failed: Option<u32> = Make::make(parts, at);
        match failed.filter(|status| *status != 0) {
            None => Self::Ok(Make::make(parts, at)),
            Some(status) => Self::Failed(status),
        }
    }
}

impl<'p> Make<'p> for ReplyHeader<'p> {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        let [xid, low, high] = [(); 3].map(|()| Make::make(parts, at));
        let accepted = [
            AcceptStat::Success,
            AcceptStat::ProgUnavail,
            AcceptStat::ProgMismatch { low, high },
            AcceptStat::ProcUnavail,
            AcceptStat::GarbageArgs,
            AcceptStat::SystemErr,
            AcceptStat::Other(low.max(6)),
        ];
        let denied = [
            RejectStat::RpcMismatch { low, high },
            RejectStat::AuthError(low),
            RejectStat::Other(low.max(2)),
        ];
        let stat = one_of(&accepted, parts, at);
        let accepted = ReplyStatus::Accepted { verf: Make::make(parts, at), stat };
        let denied = ReplyStatus::Denied(one_of(&denied, parts, at));
        Self { xid, status: one_of(&[accepted, denied], parts, at) }
    }
}

impl<'p> Make<'p> for VersionStatistics<'p> {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        Self {
            info: std::array::from_fn(|_| Make::make(parts, at)),
            setinfo: Make::make(parts, at),
            unsetinfo: Make::make(parts, at),
            addrinfo: Make::make(parts, at),
            rmtinfo: Make::make(parts, at),
        }
    }
}

impl<'p> Make<'p> for Nothing3 {
    fn make(_: &'p Parts, _: &mut usize) -> Self {
        Self
    }
}

impl<'p, T: Make<'p>, F: Make<'p>> Make<'p> for Res3<T, F> {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        match Make::make(parts, at) {
            NfsStat3::Ok => Self::Ok(Make::make(parts, at)),
            // As many successes as failures.
            _ if Make::make(parts, at) => Self::Ok(Make::make(parts, at)),
            status => Self::Failed(status, Make::make(parts, at)),
        }
    }
}

/// Results: what follows a status of 0, or another status.
macro_rules! results {
    ($($type:ty)*) => {$(
        impl<'p> Make<'p> for $type {
            fn make(parts: &'p Parts, at: &mut usize) -> Self {
                match Make::make(parts, at) {
                    NfsStat3::Ok => Self::Ok(Make::make(parts, at)),
                    status => Self::Failed(status),
                }
            }
        }
    )*};
}

results! { StatusRes SyncRes }

/// Enumerations, of which every value is as likely.
macro_rules! enumerations {
    ($($type:ty)*) => {$(
        impl<'p> Make<'p> for $type {
            fn make(parts: &'p Parts, at: &mut usize) -> Self {
                one_of(Self::ALL, parts, at)
            }
        }
    )*};
}

enumerations! { NfsStat3 StableHow AuthStat FileType3 }

/// Structures, field by field.
macro_rules! structures {
    ($($name:ident $(<$life:lifetime>)? { $($field:ident)* })*) => {$(
        impl<'p> Make<'p> for $name $(<$life>)? {
            fn make(parts: &'p Parts, at: &mut usize) -> Self {
                Self { $($field: Make::make(parts, at)),* }
            }
        }
    )*};
}

structures! {
    NfsTime3 { seconds nseconds }
    Sattr3 { mode uid gid size atime mtime }
    SpecData3 { specdata1 specdata2 }
    DeviceData3 { dev_attributes spec }
    SymlinkData3<'p> { symlink_attributes symlink_data }
    DirOpArgs3<'p> { dir name }
    Getattr3Args<'p> { object }
    Setattr3Args<'p> { object new_attributes guard }
    Lookup3Args<'p> { what }
    Access3Args<'p> { object access }
    Readlink3Args<'p> { symlink }
    Read3Args<'p> { file offset count }
    Write3Args<'p> { file offset count stable data }
    Create3Args<'p> { where_ how }
    Mkdir3Args<'p> { where_ attributes }
    Symlink3Args<'p> { where_ symlink }
    Mknod3Args<'p> { where_ what }
    Remove3Args<'p> { object }
    Rmdir3Args<'p> { object }
    Rename3Args<'p> { from to }
    Link3Args<'p> { file link }
    Readdir3Args<'p> { dir cookie cookieverf count }
    Readdirplus3Args<'p> { dir cookie cookieverf dircount maxcount }
    Fsstat3Args<'p> { fsroot }
    Fsinfo3Args<'p> { fsroot }
    Pathconf3Args<'p> { object }
    Commit3Args<'p> { file offset count }
    Write3Head<'p> { file offset count stable data_bytes }
    Fattr3 { file_type mode nlink uid gid size used rdev fsid fileid atime mtime ctime }
    WccAttr3 { size mtime ctime }
    WccData3 { before after }
    Lookup3Ok<'p> { object obj_attributes dir_attributes }
    Access3Ok { obj_attributes access }
    Readlink3Ok<'p> { symlink_attributes data }
    Read3Ok<'p> { file_attributes count eof data }
    Write3Ok { file_wcc count committed verf }
    Made3Ok<'p> { obj obj_attributes dir_wcc }
    Renamed3 { fromdir_wcc todir_wcc }
    Linked3 { file_attributes linkdir_wcc }
    Entry3<'p> { fileid name cookie }
    Readdir3Ok<'p> { dir_attributes cookieverf entries eof }
    EntryPlus3<'p> { fileid name cookie name_attributes name_handle }
    Readdirplus3Ok<'p> { dir_attributes cookieverf entries eof }
    Fsstat3Ok { obj_attributes tbytes fbytes abytes tfiles ffiles afiles invarsec }
    Fsinfo3Ok {
        obj_attributes rtmax rtpref rtmult wtmax wtpref wtmult dtpref maxfilesize time_delta
        properties
    }
    Pathconf3Ok {
        obj_attributes linkmax name_max no_trunc chown_restricted case_insensitive case_preserving
    }
    Commit3Ok { file_wcc verf }
    Getacl3Ok { obj_attributes acls }
    OpaqueAuth<'p> { flavor body }
    CallHeader<'p> { xid rpcvers prog vers proc_ cred verf }
    AuthSys<'p> { stamp machinename uid gid gids }
    DirPath<'p> { path }
    Mounted3<'p> { fhandle auth_flavors }
    MountEntry<'p> { hostname directory }
    Group<'p> { name }
    ExportEntry<'p> { directory groups }
    Mapping { prog vers prot port }
    Binding<'p> { prog vers netid addr owner }
    UniversalAddress<'p> { addr }
    RemoteCall<'p> { prog vers proc_ args }
    RemoteResult2<'p> { port res }
    RemoteResult<'p> { addr results }
    Netbuf<'p> { maxlen buf }
    AddressCalls<'p> { prog vers success failure netid }
    RemoteCalls<'p> { prog vers proc_ success failure indirect netid }
    AddressEntry<'p> { maddr nc_netid nc_semantics nc_protofmly nc_proto }
    AclEntry { tag id permissions }
    AclList { count entries }
    SecAttr { mask access default }
    Getacl3Args<'p> { object mask }
    Setacl3Args<'p> { object acls }
    StatusArgs<'p> { object }
    SyncArgs<'p> { object }
    AttachArgs<'p> { object journal name }
    JournalArgs<'p> { object journal }
    WritezArgs<'p> { file offset count stable frame }
    ReadzOk<'p> { file_attributes count eof is_compressed data }
    StatusOk { is_async verifier flags }
    SyncOk { verifier }
}

pub(crate) use {enumerations, structures};
