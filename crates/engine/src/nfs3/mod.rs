//! NFS version 3 (RFC 1813): a type for each procedure, which decodes nothing and knows no header.
//!
//! Each asks the storage and appends its result to the reply. Status codes are made in [`status`]
//! alone.

mod attributes;
pub(crate) mod data;
mod decode;
mod directory;
pub(crate) mod encode;
mod filesystem;
pub(crate) mod names;
pub(crate) mod status;

use crate::program::{Demand, Null, Port, Program, Row, ServedOver, Version};

/// Its procedures by number (RFC 1813 §3.3).
const PROCEDURES: &[Row] = &[
    Row::of::<Null>(),
    Row::of::<attributes::Getattr>(),
    Row::of::<attributes::Setattr>(),
    Row::of::<names::Lookup>(),
    Row::of::<attributes::Access>(),
    Row::of::<data::Readlink>(),
    Row::of::<data::Read>(),
    Row::of::<data::Write>(),
    Row::of::<names::Create>(),
    Row::of::<names::Mkdir>(),
    Row::of::<names::Symlink>(),
    Row::of::<names::Mknod>(),
    Row::of::<names::Remove>(),
    Row::of::<names::Rmdir>(),
    Row::of::<names::Rename>(),
    Row::of::<names::Link>(),
    Row::of::<directory::Readdir>(),
    Row::of::<directory::Readdirplus>(),
    Row::of::<filesystem::Fsstat>(),
    Row::of::<filesystem::Fsinfo>(),
    Row::of::<filesystem::Pathconf>(),
    // COMMIT makes stable what was changed before; doing it twice does no harm.
    Row::of::<data::Commit>(),
];

/// NFS.
pub(crate) const PROGRAM: Program = Program {
    name: "nfs",
    number: steadfast_wire::nfs3::PROGRAM,
    port: Port::Nfs,
    versions: &[
        Version::new(2, crate::nfs2::PROCEDURES).if_asked_for(Demand::Nfs2),
        Version::new(3, PROCEDURES),
        // It needs a transport that heeds congestion (RFC 8881 §2.9.1).
        Version::new(4, crate::nfs4::PROCEDURES).if_asked_for(Demand::Nfs4).over(ServedOver::Tcp),
    ],
};
