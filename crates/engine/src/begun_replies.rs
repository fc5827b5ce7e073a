//! Replies to calls that were done and not recorded when the process was killed: what they did is told by
//! [`BegunOutcome`].

use steadfast_recovery::BegunOutcome;
use steadfast_recovery::{Action, BegunCall};
use steadfast_shares::ShareId;
use steadfast_vfs::Wcc;
use steadfast_xdr::Writer;

use crate::begun_outcomes::{self, OpOutcome};
use crate::call_mark::{self, Named};
use crate::nfs2;
use crate::nfs3::encode;
use crate::operation::OperationId;
use crate::record;
use crate::reply_cache::CallKey;
use crate::wire_handle::HandleSealer;

/// Makes replies.
pub struct BegunReplies {
    sealer: HandleSealer,
}

impl std::fmt::Debug for BegunReplies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BegunReplies").finish_non_exhaustive()
    }
}

impl BegunReplies {
    /// With the key by which handles are sealed.
    pub fn new(handle_key: &[u8; 16]) -> Self {
        Self { sealer: HandleSealer::new(handle_key) }
    }

    /// The call and its reply as they stand behind a change; `None` if it was not done. `outcome` is only
    /// asked about calls whose procedure fits their mark.
    ///
    /// # Errors
    /// Those of `outcome`.
    pub fn reply<E>(
        &self,
        call: &BegunCall<'_>,
        outcome: impl FnOnce() -> Result<Option<BegunOutcome>, E>,
    ) -> Result<Option<Vec<u8>>, E> {
        let key = match call_mark::named(call.call.key) {
            Some(Named::Call(key)) if fits(&key, &call.action) => key,
            Some(Named::Operation { .. }) => {
                return Ok(outcome()?.map(|outcome| {
                    let mut behind = Vec::new();
                    let outcome = match outcome {
                        BegunOutcome::Made { handle, .. } => OpOutcome::Made(handle),
                        BegunOutcome::Changed => OpOutcome::Changed,
                    };
                    begun_outcomes::append(&mut behind, call.call.key, outcome);
                    behind
                }));
            }
            _ => return Ok(None),
        };
        let Some(outcome) = outcome()? else { return Ok(None) };
        let mut result = Vec::new();
        let (_, version, _) = key.numbers();
        let share = ShareId(call.call.share);
        let is_told = if version == 2 {
            self.tell_by_2(&mut result, share, &key, outcome)
        } else {
            self.tell_by_3(&mut result, share, &call.action, outcome);
            true
        };
        if !is_told {
            return Ok(None);
        }
        let mut behind = Vec::new();
        record::append(&mut behind, Some(&key), &result);
        Ok(Some(behind))
    }

    /// The result of a call of NFSv2; whether it can be told.
    fn tell_by_2(
        &self,
        result: &mut Vec<u8>,
        share: ShareId,
        key: &CallKey,
        outcome: BegunOutcome,
    ) -> bool {
        let mut w = Writer::new(result);
        match (outcome, name_of(key)) {
            (BegunOutcome::Made { handle, attr }, "CREATE" | "MKDIR") => {
                let handle = self.sealer.seal_fixed(share, &handle);
                if let Some(handle) = &handle {
                    nfs2::encode::made(&mut w, handle, &attr);
                }
                handle.is_some()
            }
            // It tells attributes, which are not known. It is executed again, which does the same.
            (_, "SETATTR") => false,
            _ => {
                nfs2::encode::ok(&mut w);
                true
            }
        }
    }

    /// The result of a call of NFSv3.
    fn tell_by_3(
        &self,
        result: &mut Vec<u8>,
        share: ShareId,
        action: &Action<'_>,
        outcome: BegunOutcome,
    ) {
        let mut w = Writer::new(result);
        encode::ok(&mut w);
        match (outcome, action) {
            (BegunOutcome::Made { handle, attr }, _) => {
                w.bool(true);
                w.opaque(self.sealer.seal(share, &handle).as_bytes());
                encode::post_op_attr(&mut w, Some(&attr));
                encode::wcc_data(&mut w, &Wcc::default());
            }
            (BegunOutcome::Changed, Action::Link { .. }) => {
                encode::post_op_attr(&mut w, None);
                encode::wcc_data(&mut w, &Wcc::default());
            }
            (BegunOutcome::Changed, Action::Rename { .. }) => {
                encode::wcc_data(&mut w, &Wcc::default());
                encode::wcc_data(&mut w, &Wcc::default());
            }
            (BegunOutcome::Changed, _) => encode::wcc_data(&mut w, &Wcc::default()),
        }
    }
}

/// The name of a call's procedure.
fn name_of(key: &CallKey) -> &'static str {
    let (program, version, procedure) = key.numbers();
    OperationId::of(program, version, procedure).name().procedure_name
}

/// Whether a call's procedure does what its mark says.
fn fits(key: &CallKey, action: &Action<'_>) -> bool {
    let (program, version, procedure) = key.numbers();
    let called = OperationId::of(program, version, procedure).name();
    let name = called.procedure_name;
    called.protocol == "nfs"
        && match action {
            Action::Make { .. } => matches!(name, "CREATE" | "MKDIR" | "SYMLINK" | "MKNOD"),
            Action::Link { .. } => name == "LINK",
            Action::Remove { .. } => matches!(name, "REMOVE" | "RMDIR"),
            Action::Rename { .. } => name == "RENAME",
            Action::Touched { .. } => name == "SETATTR",
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use steadfast_recovery::{FileSystemIdentity, ObjectKey, Place};
    use steadfast_vfs::{Attr, CallName, DeviceNumber, FileKind, FsError, StorageHandle, Time};

    use super::*;
    use crate::Transport;
    use crate::reply_cache::KEY_BYTES;

    const SHARE: u64 = 9;
    const HANDLE_KEY: [u8; 16] = [3; 16];
    const XID: u32 = 0x1234;

    fn key_of(procedure: u32) -> [u8; KEY_BYTES] {
        let operation = (100_003, 3, procedure);
        CallKey::new(Ipv4Addr::LOCALHOST.into(), Transport::Tcp, XID, operation, b"x").to_bytes()
    }

    fn object(number: u64) -> StorageHandle {
        StorageHandle::new(&number.to_be_bytes()).expect("a short one")
    }

    fn call(key: &[u8]) -> BegunCall<'_> {
        let place = Place { dir: ObjectKey(object(1)), name: b"new" };
        BegunCall {
            call: CallName { key, share: SHARE },
            file_system: FileSystemIdentity { uuid: [1; 16], kind: 2 },
            at: Time::default(),
            dir: object(1),
            fsid: 77,
            made: None,
            action: Action::Make { place, object: ObjectKey(object(1)), target: &[] },
        }
    }

    fn made() -> BegunOutcome {
        let attr = Attr {
            kind: FileKind::Regular,
            mode: 0o644,
            links: 1,
            uid: 1,
            gid: 2,
            size: 0,
            used: 0,
            device: DeviceNumber::default(),
            fsid: 77,
            fileid: 10,
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
        };
        BegunOutcome::Made { handle: object(10), attr }
    }

    #[test]
    fn what_was_made_is_told_with_its_handle_and_attributes() {
        let key = key_of(8);
        let outcome = || Ok::<_, FsError>(Some(made()));
        let behind = BegunReplies::new(&HANDLE_KEY).reply(&call(&key), outcome).unwrap().unwrap();
        let (found, result) = record::read(&behind).unwrap();
        assert_eq!((found.to_bytes(), found.xid()), (key, XID));
        // NFS3_OK.
        assert_eq!(result[..4], [0; 4]);
        let sealed = HandleSealer::new(&HANDLE_KEY).seal(ShareId(SHARE), &object(10));
        let handle = sealed.as_bytes();
        assert_eq!(result[8..12], (handle.len() as u32).to_be_bytes());
        assert_eq!(result[12..12 + handle.len()], *handle);
        let attributes = &result[12 + handle.len().next_multiple_of(4)..];
        assert_eq!(attributes[..8], [0, 0, 0, 1, 0, 0, 0, 1], "those of an ordinary file follow");
        assert_eq!(attributes[4 + 44..4 + 52], 77_u64.to_be_bytes(), "its file system's number");
        assert_eq!(attributes[4 + 84..], [0; 8], "nothing of the directory");
    }

    #[test]
    fn version_2_is_told_in_its_own_words() {
        // CREATE, MKDIR: status, handle, attributes. SYMLINK: a status alone.
        for (procedure, bytes) in [(9, Some(4 + 32 + 68)), (14, Some(4 + 32 + 68)), (13, Some(4))] {
            let operation = (100_003, 2, procedure);
            let host = Ipv4Addr::LOCALHOST.into();
            let key = CallKey::new(host, Transport::Udp, XID, operation, b"x").to_bytes();
            let outcome = || Ok::<_, FsError>(Some(made()));
            let behind = BegunReplies::new(&HANDLE_KEY).reply(&call(&key), outcome).unwrap();
            let told = behind.as_deref().map(|behind| record::read(behind).unwrap().1);
            assert_eq!(told.map(<[u8]>::len), bytes, "{procedure}");
            assert_eq!(told.map(|told| &told[..4]), Some(&[0; 4][..]));
            if procedure != 13 {
                let sealer = HandleSealer::new(&HANDLE_KEY);
                let handle = sealer.seal_fixed(ShareId(SHARE), &object(10)).unwrap();
                assert_eq!(told.map(|told| &told[4..36]), Some(&handle[..]));
                assert_eq!(told.map(|told| &told[36..40]), Some(&[0, 0, 0, 1][..]), "a file");
            }
        }
    }

    #[test]
    fn a_mark_of_another_procedure_or_without_a_key_proves_nothing() {
        let replies = BegunReplies::new(&HANDLE_KEY);
        let outcome = || Ok::<_, FsError>(Some(made()));
        for procedure in 0..22 {
            let reply = replies.reply(&call(&key_of(procedure)), outcome).unwrap();
            assert_eq!(reply.is_some(), (8..=11).contains(&procedure), "{procedure}");
        }
        let nobody = || -> Result<Option<BegunOutcome>, FsError> { panic!("asked") };
        assert_eq!(replies.reply(&call(&key_of(8)[1..]), nobody), Ok(None));
        assert_eq!(replies.reply(&call(&key_of(14)), nobody), Ok(None));
        assert_eq!(replies.reply(&call(&key_of(8)), || Ok::<_, FsError>(None)), Ok(None));
    }
}
