//! Arguments of NFSv3; the first byte picks the procedure.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_wire::nfs3;

fuzz_target!(|input: &[u8]| {
    steadfast_fuzz::check_one_of!(
        input;
        nfs3::NfsStat3, nfs3::Getattr3Args<'_>, nfs3::Setattr3Args<'_>, nfs3::Lookup3Args<'_>,
        nfs3::Access3Args<'_>, nfs3::Readlink3Args<'_>, nfs3::Read3Args<'_>,
        nfs3::Write3Args<'_>, nfs3::Create3Args<'_>, nfs3::Mkdir3Args<'_>,
        nfs3::Symlink3Args<'_>, nfs3::Mknod3Args<'_>, nfs3::Remove3Args<'_>,
        nfs3::Rmdir3Args<'_>, nfs3::Rename3Args<'_>, nfs3::Link3Args<'_>,
        nfs3::Readdir3Args<'_>, nfs3::Readdirplus3Args<'_>, nfs3::Fsstat3Args<'_>,
        nfs3::Fsinfo3Args<'_>, nfs3::Pathconf3Args<'_>, nfs3::Commit3Args<'_>,
    );
});
