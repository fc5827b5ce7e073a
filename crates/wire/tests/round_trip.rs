//! Property ring: every message type is read as it was written; cut off anywhere it is refused;
//! no bytes at all make a reader panic, and what was read of any bytes writes the same bytes.
#![allow(clippy::unwrap_used)]

#[path = "round_trip/golden.rs"]
mod golden;
#[path = "round_trip/strategies.rs"]
mod strategies;

use proptest::prelude::*;
use steadfast_wire::{mount, nfs3, nfsacl, recovery, rpc, rpcbind};
use steadfast_xdr::{Decode, Encode, Reader, Writer};

fn written(value: &impl Encode) -> Vec<u8> {
    let mut bytes = Vec::new();
    value.encode(&mut Writer::new(&mut bytes));
    bytes
}

/// Reads, and tells which bytes what was read writes again, and how many were read.
type Reencode = fn(&[u8]) -> Option<(Vec<u8>, usize)>;

/// Types, each with a test of its own, and the list of all.
macro_rules! types {
    ($all:ident; $($name:ident: $type:ty;)*) => {
        pub(crate) const $all: &[(&str, $crate::Reencode)] = &[$((stringify!($name), |bytes| {
            let mut r = Reader::new(bytes);
            let value = <$type>::decode(&mut r).ok()?;
            Some(($crate::written(&value), r.position()))
        })),*];

        $(
            proptest! {
                #[test]
                fn $name(parts in $crate::strategies::parts()) {
                    let value: $type = $crate::strategies::Make::make(&parts, &mut 0);
                    let bytes = $crate::written(&value);
                    prop_assert_eq!(bytes.len() % 4, 0);
                    let mut r = Reader::new(&bytes);
                    prop_assert_eq!(<$type>::decode(&mut r), Ok(value));
                    prop_assert!(r.is_empty());
                    for cut in 0..bytes.len() {
                        prop_assert!(<$type>::decode(&mut Reader::new(&bytes[..cut])).is_err());
                    }
                }
            }
        )*
    };
}

#[path = "round_trip/nfs2.rs"]
mod nfs2;
#[path = "round_trip/nfs4/mod.rs"]
mod nfs4;
#[path = "round_trip/nlm.rs"]
mod nlm;

types! {
    ALL;
    status: nfs3::NfsStat3;
    stable_how: nfs3::StableHow;
    getattr: nfs3::Getattr3Args<'_>;
    setattr: nfs3::Setattr3Args<'_>;
    lookup: nfs3::Lookup3Args<'_>;
    access: nfs3::Access3Args<'_>;
    readlink: nfs3::Readlink3Args<'_>;
    read: nfs3::Read3Args<'_>;
    write: nfs3::Write3Args<'_>;
    create: nfs3::Create3Args<'_>;
    mkdir: nfs3::Mkdir3Args<'_>;
    symlink: nfs3::Symlink3Args<'_>;
    mknod: nfs3::Mknod3Args<'_>;
    remove: nfs3::Remove3Args<'_>;
    rmdir: nfs3::Rmdir3Args<'_>;
    rename: nfs3::Rename3Args<'_>;
    link: nfs3::Link3Args<'_>;
    readdir: nfs3::Readdir3Args<'_>;
    readdirplus: nfs3::Readdirplus3Args<'_>;
    fsstat: nfs3::Fsstat3Args<'_>;
    fsinfo: nfs3::Fsinfo3Args<'_>;
    pathconf: nfs3::Pathconf3Args<'_>;
    commit: nfs3::Commit3Args<'_>;
    write_head: nfs3::Write3Head<'_>;
    file_type: nfs3::FileType3;
    getattr_result: nfs3::Getattr3Res;
    changed_result: nfs3::Changed3Res;
    lookup_result: nfs3::Lookup3Res<'_>;
    access_result: nfs3::Access3Res;
    readlink_result: nfs3::Readlink3Res<'_>;
    read_result: nfs3::Read3Res<'_>;
    write_result: nfs3::Write3Res;
    made_result: nfs3::Made3Res<'_>;
    rename_result: nfs3::Rename3Res;
    link_result: nfs3::Link3Res;
    readdir_result: nfs3::Readdir3Res<'_>;
    readdirplus_result: nfs3::Readdirplus3Res<'_>;
    fsstat_result: nfs3::Fsstat3Res;
    fsinfo_result: nfs3::Fsinfo3Res;
    pathconf_result: nfs3::Pathconf3Res;
    commit_result: nfs3::Commit3Res;
    getacl_result: nfsacl::Getacl3Res;
    setacl_result: nfsacl::Setacl3Res;
    auth_stat: rpc::AuthStat;
    opaque_auth: rpc::OpaqueAuth<'_>;
    call_header: rpc::CallHeader<'_>;
    auth_sys: rpc::AuthSys<'_>;
    reply_header: rpc::ReplyHeader<'_>;
    dir_path: mount::DirPath<'_>;
    fh_status: mount::FhStatus;
    mount_result: mount::MountRes3<'_>;
    mount_list: mount::MountList<'_>;
    exports: mount::Exports<'_>;
    mapping: rpcbind::Mapping;
    mapping_list: rpcbind::MappingList;
    binding: rpcbind::Binding<'_>;
    binding_list: rpcbind::BindingList<'_>;
    universal_address: rpcbind::UniversalAddress<'_>;
    address_list: rpcbind::AddressList<'_>;
    remote_call: rpcbind::RemoteCall<'_>;
    remote_result_2: rpcbind::RemoteResult2<'_>;
    remote_result: rpcbind::RemoteResult<'_>;
    netbuf: rpcbind::Netbuf<'_>;
    version_statistics: rpcbind::VersionStatistics<'_>;
    getacl: nfsacl::Getacl3Args<'_>;
    setacl: nfsacl::Setacl3Args<'_>;
    recovery_status: recovery::StatusArgs<'_>;
    recovery_sync: recovery::SyncArgs<'_>;
    recovery_attach: recovery::AttachArgs<'_>;
    recovery_journal: recovery::JournalArgs<'_>;
    recovery_writez: recovery::WritezArgs<'_>;
    recovery_readz_result: recovery::ReadzRes<'_>;
    recovery_status_result: recovery::StatusRes;
    recovery_sync_result: recovery::SyncRes;
}

/// Bytes that look like XDR often enough to get somewhere: small numbers, and noise.
fn likely_bytes() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        8 => (0_u32..9).prop_map(u32::to_be_bytes),
        1 => any::<u32>().prop_map(u32::to_be_bytes),
    ];
    (prop::collection::vec(word, 0..80), prop::collection::vec(any::<u8>(), 0..4))
        .prop_map(|(words, tail)| [words.concat(), tail].concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn any_bytes_can_be_read_by_every_type(bytes in likely_bytes()) {
        for (name, reencode) in ALL.iter().chain(nfs2::ALL) {
            if let Some((again, read)) = reencode(&bytes) {
                prop_assert!(read <= bytes.len());
                // Padding is the one thing that is not kept: it is written as zeros.
                prop_assert_eq!(again.len(), read, "{}", name);
                let same = reencode(&again);
                prop_assert_eq!(same, Some((again, read)), "{}", name);
            }
        }
    }
}

/// A length says nothing about how much memory to take: the reader fails where the bytes end.
#[test]
fn announced_lengths_are_refused_beyond_their_bounds() {
    let announced =
        |words: &[u32]| -> Vec<u8> { words.iter().flat_map(|word| word.to_be_bytes()).collect() };
    // GETATTR with a handle of 65 bytes; LOOKUP with a name of 4097; an ACL of 1025 entries.
    let handle = announced(&[65, 0]);
    assert!(nfs3::Getattr3Args::decode(&mut Reader::new(&handle)).is_err());
    let mut long_name = Vec::new();
    let name = vec![b'n'; nfs3::NAME_BYTES_MAX + 1];
    nfs3::DirOpArgs3 { dir: nfs3::NfsFh3(b"h"), name: &name }
        .encode(&mut Writer::new(&mut long_name));
    assert!(nfs3::DirOpArgs3::decode(&mut Reader::new(&long_name)).is_err());
    let entries = announced(&[0, 1025]);
    assert!(nfsacl::AclList::decode(&mut Reader::new(&entries)).is_err());
    let auth = announced(&[1, 401]);
    assert!(rpc::OpaqueAuth::decode(&mut Reader::new(&auth)).is_err());
}
