//! Extended attributes of the model's files.

use crate::permission;
use crate::{Cred, FileKind, FsError, SetXattrHow, XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX};

use super::State;

impl State {
    fn check_xattrs(&self, cred: &Cred, id: u64, name: &[u8]) -> Result<(), FsError> {
        if !matches!(self.file(id)?.attr.kind, FileKind::Regular | FileKind::Directory) {
            return Err(FsError::NotPermitted);
        }
        if name.len() > XATTR_NAME_BYTES_MAX {
            return Err(FsError::NameTooLong);
        }
        self.check(cred, id, permission::WRITE)
    }

    pub(super) fn set_xattr(
        &mut self,
        cred: &Cred,
        id: u64,
        name: &[u8],
        value: &[u8],
        how: SetXattrHow,
    ) -> Result<(), FsError> {
        self.check_xattrs(cred, id, name)?;
        let now = self.now();
        let file = self.file_mut(id)?;
        match (how, file.xattrs.contains_key(name)) {
            (SetXattrHow::Create, true) => return Err(FsError::Exists),
            (SetXattrHow::Replace, false) => return Err(FsError::NotFound),
            _ if value.len() > XATTR_VALUE_BYTES_MAX => return Err(FsError::FileTooLarge),
            _ => {}
        }
        file.xattrs.insert(name.to_vec(), value.to_vec());
        file.attr.ctime = now;
        Ok(())
    }

    pub(super) fn remove_xattr(
        &mut self,
        cred: &Cred,
        id: u64,
        name: &[u8],
    ) -> Result<(), FsError> {
        self.check_xattrs(cred, id, name)?;
        let now = self.now();
        let file = self.file_mut(id)?;
        file.xattrs.remove(name).ok_or(FsError::NotFound)?;
        file.attr.ctime = now;
        Ok(())
    }
}
