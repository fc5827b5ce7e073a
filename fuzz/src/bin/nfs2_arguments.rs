//! Arguments of NFSv2; the first byte picks the procedure.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_wire::nfs2;

fuzz_target!(|input: &[u8]| {
    steadfast_fuzz::check_one_of!(
        input;
        nfs2::NfsStat2, nfs2::NfsFh2<'_>, nfs2::Setattr2Args<'_>, nfs2::DirOpArgs2<'_>,
        nfs2::Read2Args<'_>, nfs2::Write2Args<'_>, nfs2::Create2Args<'_>,
        nfs2::Rename2Args<'_>, nfs2::Link2Args<'_>, nfs2::Symlink2Args<'_>,
        nfs2::Readdir2Args<'_>,
    );
});
