//! A page of READDIR, as a value: which entries, and the cookies by which clients go on.
//!
//! NFSv2's cookies have 32 bits, those of file systems up to 64. A client that goes on by a cookie
//! must get every name once, also after a restart of the server, and while names come and go. So a
//! cookie is made of the file system's own position, and nothing is remembered:
//!
//! - XFS, tmpfs and most others have positions of 31 bits. They are the cookies.
//! - ext4 has the 63 bits of a name's hash. Its cookie is their upper half, 31 bits, by which the
//!   list begins again with the first name of that half. A page ends only where that is the name that
//!   comes next, which is looked at before the page is sent. Two names in a row that have the upper
//!   half in common are never torn apart: the earlier goes on the next page too, instead.
//!
//! Which of the two a directory has is seen from its first entries ([`Form::of`]). Cookies never use
//! their highest bit, which old clients take for a sign. Where no end can be found, the list is
//! refused: it never repeats itself for ever, and never leaves a name out.

use steadfast_vfs::FsError;

/// Stands for the end of a directory: what comes after is nothing. Also where file systems that are
/// asked for short positions have their end.
pub(super) const END: u32 = 0x7fff_ffff;
/// What an empty page has around its entries: status, end of list, eof.
const AROUND_BYTES: usize = 12;
/// What an entry has beside its name: a boolean, file number, the name's length, cookie.
const BESIDE_NAME_BYTES: usize = 16;
/// So many first entries tell how positions are: one position of ext4's may be small by chance.
const LOOKED_AT: usize = 4;
/// So many ends of a page are tried: more only if somebody makes names whose hashes agree.
const ENDS_TRIED_MAX: usize = 8;

/// An entry as storage tells it: name, file number, where to go on after it.
pub(super) type Each<'e> = dyn FnMut(&[u8], u64, u64) -> bool + 'e;

/// Reads a directory from a position on, until it is told to stop or the directory ends (`true`).
pub(super) type Reading<'r> = dyn FnMut(u64, &mut Each<'_>) -> Result<bool, FsError> + 'r;

/// How a directory's positions become cookies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// They are the cookies.
    Short,
    /// The upper half is.
    Wide,
}

impl Form {
    /// Looks at the first positions that another entry follows; the last may be special.
    fn of(directory: &mut Reading<'_>) -> Result<Self, FsError> {
        let (mut is_wide, mut seen, mut before) = (false, 0, None);
        directory(0, &mut |_, _, position| {
            is_wide |= before.is_some_and(|before: u64| before >= u64::from(END));
            before = Some(position);
            seen += 1;
            seen < LOOKED_AT
        })?;
        Ok(if is_wide { Self::Wide } else { Self::Short })
    }

    /// The cookie of a position; [`END`] if it has none.
    fn cookie(self, position: u64) -> u32 {
        let cookie = match self {
            Self::Short => position,
            Self::Wide => position >> 32,
        };
        u32::try_from(cookie).unwrap_or(END).min(END)
    }

    fn position(self, cookie: u32) -> u64 {
        match self {
            Self::Short => u64::from(cookie),
            Self::Wide => u64::from(cookie) << 32,
        }
    }
}

/// One entry of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) name: Vec<u8>,
    pub(super) fileid: u64,
    pub(super) cookie: u32,
}

/// A page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) entries: Vec<Listed>,
    pub(super) is_end: bool,
}

/// The page after a cookie, of at most so many bytes.
///
/// # Errors
/// The storage's; `TooSmall` if not one entry fits; `Io` if no end of the page can be told.
pub(super) fn page(
    directory: &mut Reading<'_>,
    cookie: u32,
    bytes_max: usize,
) -> Result<Page, FsError> {
    if cookie >= END {
        return Ok(Page { entries: Vec::new(), is_end: true });
    }
    let form = Form::of(directory)?;
    let start = form.position(cookie);
    let mut room = bytes_max.saturating_sub(AROUND_BYTES);
    let mut entries: Vec<Listed> = Vec::new();
    let mut positions = vec![start];
    // What comes after the last entry that fits.
    let mut next = None;
    let is_end = directory(start, &mut |name, fileid, position| {
        let bytes = BESIDE_NAME_BYTES + name.len().next_multiple_of(4);
        if bytes > room {
            next = Some(name.to_vec());
            return false;
        }
        room -= bytes;
        positions.push(position);
        entries.push(Listed { name: name.to_vec(), fileid, cookie: form.cookie(position) });
        true
    })?;
    if is_end {
        return Ok(Page { entries, is_end });
    }
    if entries.is_empty() {
        return Err(FsError::TooSmall);
    }
    let next = next.unwrap_or_default();
    let count = last_end(directory, form, &positions, &entries, &next)?;
    entries.truncate(count);
    Ok(Page { entries, is_end: false })
}

/// How many of a page's entries can be told, so that the cookie of the last leads to the one that
/// follows.
fn last_end(
    directory: &mut Reading<'_>,
    form: Form,
    positions: &[u64],
    entries: &[Listed],
    next: &[u8],
) -> Result<usize, FsError> {
    let mut tried = 0;
    for count in (1..=entries.len()).rev() {
        let (Some(before), Some(position)) = (positions.get(count - 1), positions.get(count))
        else {
            continue;
        };
        let cookie = form.cookie(*position);
        if cookie == 0 || cookie == END {
            continue;
        }
        match form {
            Form::Short => return Ok(count),
            Form::Wide if cookie == form.cookie(*before) => {}
            Form::Wide => {
                let follows = entries.get(count).map_or(next, |entry| &entry.name);
                let mut is_it = false;
                directory(form.position(cookie), &mut |name, _, _| {
                    is_it = name == follows;
                    false
                })?;
                if is_it {
                    return Ok(count);
                }
                tried += 1;
                if tried == ENDS_TRIED_MAX {
                    break;
                }
            }
        }
    }
    Err(FsError::Io)
}

#[cfg(test)]
#[path = "listing_tests.rs"]
mod tests;
