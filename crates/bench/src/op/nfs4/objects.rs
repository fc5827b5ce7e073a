//! What the calls work on, as NFSv4 sees it.

use std::collections::HashSet;

use steadfast_client::FileHandle;
use steadfast_client::nfs4::{ClientSettings, LINUX_ATTRIBUTES, patiently4};
use steadfast_wire::nfs4::Bitmap4;

use crate::error::BenchError;
use crate::op::tree::{Place, Tree, object_name, own_name};
use crate::op::{Load, Operation};
use crate::place4;
use crate::setup::CALL_TIMEOUT;

/// An object that calls are about.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) handle: FileHandle,
    pub(super) fileid: u64,
    /// Which attributes the server told of it.
    pub(super) told: Bitmap4,
}

/// The tree that was made.
#[derive(Debug)]
pub(in crate::op) struct Objects {
    /// Where the objects are.
    pub(super) directory: FileHandle,
    pub(super) all: Vec<Object>,
    /// One directory a connection, for names that come and go.
    pub(super) own: Vec<FileHandle>,
    /// Bytes of each file.
    pub(super) file_bytes: u64,
}

impl Objects {
    /// Nothing, for calls that need nothing.
    pub(in crate::op) fn none() -> Self {
        Self { directory: FileHandle(Vec::new()), all: Vec::new(), own: Vec::new(), file_bytes: 0 }
    }

    /// Finds the tree by LOOKUP, and what is told of its objects.
    pub(in crate::op) fn find(load: &Load, place: &Place, tree: &Tree) -> Result<Self, BenchError> {
        let walking = || BenchError::client("finding the tree over NFSv4");
        let minor_version = load.nfs.minor();
        let settings = ClientSettings { minor_version, ..ClientSettings::default() };
        let mut client = place4::connect(&load.target, &settings)?;
        let share = patiently4(CALL_TIMEOUT, || client.lookup_path(load.path.as_bytes()))
            .map_err(walking())?;
        let (directory, _) =
            patiently4(CALL_TIMEOUT, || client.lookup(&share, place.name(), Bitmap4::EMPTY))
                .map_err(walking())?;
        // What is the place itself has no name in it.
        let is_place = matches!(load.operation, Operation::Fsstat | Operation::Fsinfo);
        let mut numbers = HashSet::new();
        let mut all = Vec::with_capacity(tree.objects.len());
        for index in 0..tree.objects.len() {
            let (handle, attributes) = patiently4(CALL_TIMEOUT, || {
                if is_place {
                    return client.lookup(&share, place.name(), LINUX_ATTRIBUTES);
                }
                client.lookup(&directory, &object_name(index), LINUX_ATTRIBUTES)
            })
            .map_err(walking())?;
            let Some(fileid) = attributes.fileid else {
                return Err(BenchError::broken("lookup", "an object without a number"));
            };
            if !numbers.insert(fileid) {
                return Err(BenchError::broken("lookup", "two names are one object"));
            }
            all.push(Object { handle, fileid, told: attributes.told() });
        }
        let mut own = Vec::with_capacity(tree.own.len());
        for index in 0..tree.own.len() {
            let name = own_name(index);
            let found =
                patiently4(CALL_TIMEOUT, || client.lookup(&directory, &name, Bitmap4::EMPTY));
            own.push(found.map_err(walking())?.0);
        }
        client.destroy().map_err(BenchError::client("ending a session"))?;
        Ok(Self { directory, all, own, file_bytes: tree.file_bytes })
    }
}
