//! The same of NFSv2, and a call of it byte by byte.

use proptest::prelude::*;
use steadfast_wire::nfs2;
use steadfast_xdr::{Decode, Reader};

use crate::strategies::{Make, Parts, one_of};

impl<'p> Make<'p> for nfs2::NfsStat2 {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        one_of(Self::ALL, parts, at)
    }
}

/// Some, since a handle is borrowed and has 32 bytes always.
const HANDLES: [[u8; nfs2::HANDLE_BYTES]; 3] = [[0; 32], [7; 32], [0xff; 32]];

impl<'p> Make<'p> for nfs2::NfsFh2<'p> {
    fn make(parts: &'p Parts, at: &mut usize) -> Self {
        nfs2::NfsFh2(one_of(&[&HANDLES[0], &HANDLES[1], &HANDLES[2]], parts, at))
    }
}

macro_rules! structures {
    ($($name:ty { $($field:ident)* })*) => {$(
        impl<'p> Make<'p> for $name {
            fn make(parts: &'p Parts, at: &mut usize) -> Self {
                Self { $($field: Make::make(parts, at)),* }
            }
        }
    )*};
}

structures! {
    nfs2::NfsTime2 { seconds useconds }
    nfs2::Sattr2 { mode uid gid size atime mtime }
    nfs2::DirOpArgs2<'p> { dir name }
    nfs2::Setattr2Args<'p> { file attributes }
    nfs2::Read2Args<'p> { file offset count totalcount }
    nfs2::Write2Args<'p> { file beginoffset offset totalcount data }
    nfs2::Create2Args<'p> { where_ attributes }
    nfs2::Rename2Args<'p> { from to }
    nfs2::Link2Args<'p> { from to }
    nfs2::Symlink2Args<'p> { from to attributes }
    nfs2::Readdir2Args<'p> { dir cookie count }
}

types! {
    ALL;
    status2: nfs2::NfsStat2;
    handle2: nfs2::NfsFh2<'_>;
    place2: nfs2::DirOpArgs2<'_>;
    setattr2: nfs2::Setattr2Args<'_>;
    read2: nfs2::Read2Args<'_>;
    write2: nfs2::Write2Args<'_>;
    create2: nfs2::Create2Args<'_>;
    rename2: nfs2::Rename2Args<'_>;
    link2: nfs2::Link2Args<'_>;
    symlink2: nfs2::Symlink2Args<'_>;
    readdir2: nfs2::Readdir2Args<'_>;
}

/// By hand, from RFC 1094 §2.2.14 and §2.3: handle, name, target, then eight words of attributes.
#[test]
fn a_symlink() {
    let unset = nfs2::NfsTime2 { seconds: nfs2::UNSET, useconds: nfs2::UNSET };
    let symlink = nfs2::Symlink2Args {
        from: nfs2::DirOpArgs2 { dir: nfs2::NfsFh2(&[7; 32]), name: b"ab" },
        to: b"../x",
        attributes: nfs2::Sattr2 {
            mode: 0o120_777,
            uid: 1,
            gid: 2,
            size: nfs2::UNSET,
            atime: nfs2::NfsTime2 { seconds: 3, useconds: 4 },
            mtime: unset,
        },
    };
    let mut expected = vec![7; 32];
    expected.extend(b"\0\0\0\x02ab\0\0\0\0\0\x04../x");
    expected.extend(b"\0\0\xa1\xff\0\0\0\x01\0\0\0\x02\xff\xff\xff\xff\0\0\0\x03\0\0\0\x04");
    expected.extend([0xff; 8]);
    assert_eq!(crate::written(&symlink), expected);
    assert_eq!(nfs2::Symlink2Args::decode(&mut Reader::new(&expected)), Ok(symlink));
}

/// By hand, from RFC 1094 §2.2.9: of the five fields two are unused, and count all the same.
#[test]
fn a_write() {
    let write = nfs2::Write2Args {
        file: nfs2::NfsFh2(&[9; 32]),
        beginoffset: 1,
        offset: 2,
        totalcount: 3,
        data: b"abcde",
    };
    let mut expected = vec![9; 32];
    expected.extend(b"\0\0\0\x01\0\0\0\x02\0\0\0\x03\0\0\0\x05abcde\0\0\0");
    assert_eq!(crate::written(&write), expected);
    assert_eq!(nfs2::Write2Args::decode(&mut Reader::new(&expected)), Ok(write));
    let long = vec![0; nfs2::DATA_BYTES_MAX + 1];
    let long = crate::written(&nfs2::Write2Args { data: &long, ..write_of(&[9; 32]) });
    assert!(nfs2::Write2Args::decode(&mut Reader::new(&long)).is_err());
}

fn write_of(file: &[u8; 32]) -> nfs2::Write2Args<'_> {
    nfs2::Write2Args {
        file: nfs2::NfsFh2(file),
        beginoffset: 0,
        offset: 0,
        totalcount: 0,
        data: b"",
    }
}
