//! What the calls work on, as NFSv4.1 sees it.

use std::collections::HashSet;

use steadfast_client::FileHandle;
use steadfast_client::nfs4::{ClientSettings, LINUX_ATTRIBUTES, Nfs4Client, patiently4};
use steadfast_wire::nfs4::{Attribute4, Bitmap4};

use crate::error::BenchError;
use crate::op::tree::{Place, Tree, object_name};
use crate::op::{Load, Operation};
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
    /// Bytes of each file.
    pub(super) file_bytes: u64,
}

impl Objects {
    /// Nothing, for calls that need nothing.
    pub(in crate::op) fn none() -> Self {
        Self { directory: FileHandle(Vec::new()), all: Vec::new(), file_bytes: 0 }
    }

    /// Walks to the tree from the root of what the server shows.
    pub(in crate::op) fn find(load: &Load, place: &Place, tree: &Tree) -> Result<Self, BenchError> {
        let walking = || BenchError::client("finding the tree over NFSv4.1");
        let (identity, settings) = (load.target.identity.clone(), ClientSettings::default());
        let connecting = BenchError::client("connecting over NFSv4.1");
        let mut client =
            Nfs4Client::connect(load.target.connect()?, identity, &settings).map_err(connecting)?;
        let share = patiently4(CALL_TIMEOUT, || client.lookup_path(load.path.as_bytes()))
            .map_err(walking())?;
        if let Operation::Read { size } = load.operation {
            let wanted = Bitmap4::of(&[Attribute4::MaxRead]);
            let limits =
                patiently4(CALL_TIMEOUT, || client.attributes(&share, wanted)).map_err(walking())?;
            // A server that tells 0 tells nothing.
            if let Some(most @ 1..) = limits.read_bytes_max
                && u64::from(size) > most
            {
                return Err(BenchError::Usage(format!(
                    "the server reads at most {most} bytes a call over NFSv4.1"
                )));
            }
        }
        let (directory, _) =
            patiently4(CALL_TIMEOUT, || client.lookup(&share, place.name(), Bitmap4::EMPTY))
                .map_err(walking())?;
        let mut numbers = HashSet::new();
        let mut all = Vec::with_capacity(tree.objects.len());
        for index in 0..tree.objects.len() {
            let name = object_name(index);
            let (handle, attributes) =
                patiently4(CALL_TIMEOUT, || client.lookup(&directory, &name, LINUX_ATTRIBUTES))
                    .map_err(walking())?;
            let Some(fileid) = attributes.fileid else {
                return Err(BenchError::broken("lookup", "an object without a number"));
            };
            if !numbers.insert(fileid) {
                return Err(BenchError::broken("lookup", "two names are one object"));
            }
            all.push(Object { handle, fileid, told: attributes.told() });
        }
        client.destroy().map_err(BenchError::client("ending a session"))?;
        Ok(Self { directory, all, file_bytes: tree.file_bytes })
    }
}
