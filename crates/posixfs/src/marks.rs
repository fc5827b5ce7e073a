//! The name of the intent log's mark, which is nobody's in the directory that has it ([`crate::mark_file`]):
//! clients neither see it, nor get it for something else.

use steadfast_vfs::FsError;

use crate::attributes;
use crate::handle_form;
use crate::mark_file::{NAME, root_key};
use crate::node::Node;
use crate::traits;

/// Whether some file system could take another name for the mark's: one that differs in case, where
/// code points beyond ASCII stand for `s`, `t` and `k`, or for nothing (Unicode's case folding).
fn may_fold_to_mark(name: &[u8]) -> bool {
    fn kept(name: &[u8]) -> impl Iterator<Item = u8> {
        let ascii = name.iter().filter(|byte| byte.is_ascii()).map(u8::to_ascii_lowercase);
        ascii.filter(|byte| !b"stk".contains(byte))
    }
    name != NAME.as_bytes() && kept(name).eq(kept(NAME.as_bytes()))
}

/// Whether a name in a directory is the mark's, which clients neither see nor change.
pub(crate) fn is_mark(dir: &Node, name: &[u8]) -> bool {
    (name == NAME.as_bytes() || (may_fold_to_mark(name) && finds_mark_by(dir, name)))
        && dir.volume.can_be_logged()
        && root_key(&dir.mount.open).is_none_or(|root| root == handle_form::key(&dir.handle))
}

/// Whether a directory that folds case has the mark by this name too.
fn finds_mark_by(dir: &Node, name: &[u8]) -> bool {
    let traits = &dir.volume.traits;
    let folds =
        traits.is_case_insensitive || (traits.may_fold_case && traits::folds_case(&dir.path));
    let number = |name: &[u8]| attributes::stat_name(&dir.path, name).map(|it| it.stx_ino);
    folds
        && (name.eq_ignore_ascii_case(NAME.as_bytes())
            || number(name).is_ok_and(|found| number(NAME.as_bytes()) == Ok(found)))
}

/// # Errors
/// [`FsError::NotFound`] for the mark's name.
pub(crate) fn require_no_mark(dir: &Node, name: &[u8]) -> Result<(), FsError> {
    if is_mark(dir, name) { Err(FsError::NotFound) } else { Ok(()) }
}

/// As [`require_no_mark`] and [`require_not_marks_place`] of the two names of a renaming.
pub(crate) fn require_neither(from: (&Node, &[u8]), to: (&Node, &[u8])) -> Result<(), FsError> {
    require_no_mark(from.0, from.1)?;
    require_not_marks_place(to.0, to.1)
}

/// # Errors
/// [`FsError::AccessDenied`] for the mark's name, which nothing else gets.
pub(crate) fn require_not_marks_place(dir: &Node, name: &[u8]) -> Result<(), FsError> {
    if is_mark(dir, name) { Err(FsError::AccessDenied) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::may_fold_to_mark;

    #[test]
    fn names_that_case_folding_could_make_the_marks_are_looked_at() {
        for name in [".STEADFAST-MARK", ".Steadfast-mar\u{212a}", ".\u{fb06}eadfa\u{17f}t-mark"] {
            assert!(may_fold_to_mark(name.as_bytes()), "{name}");
        }
        for name in [".steadfast-mark", ".steadfast-mark2", "steadfast-mark", ".x", "a.b", ""] {
            assert!(!may_fold_to_mark(name.as_bytes()), "{name}");
        }
    }
}
