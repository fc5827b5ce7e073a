//! Property ring: a directory that is listed in pages is told whole and once, whatever its positions
//! are and whoever changes it meanwhile.

use proptest::prelude::*;

use super::*;

/// A directory as file systems have it: entries in the order of their positions, and the last one
/// followed by a position of its own.
#[derive(Clone, Debug)]
struct Directory {
    /// Position, name. Several may have one position.
    entries: Vec<(u64, Vec<u8>)>,
    end: u64,
}

impl Directory {
    fn read(&self, position: u64, each: &mut Each<'_>) -> bool {
        for (at, (here, name)) in self.entries.iter().enumerate() {
            let next = self.entries.get(at + 1).map_or(self.end, |(next, _)| *next);
            if *here >= position && !each(name, 7, next) {
                return false;
            }
        }
        true
    }
}

/// The page of a directory, which is read as storage is.
fn page_of(directory: &Directory, cookie: u32, bytes_max: usize) -> Result<Page, FsError> {
    page(&mut |position, each: &mut Each<'_>| Ok(directory.read(position, each)), cookie, bytes_max)
}

fn name(number: usize, bytes: usize) -> Vec<u8> {
    let mut name = number.to_string().into_bytes();
    name.resize(name.len() + bytes, b'x');
    name
}

/// As ext4 has it: by a hash of 31 bits and one of 32, of which neither need differ.
fn hashed() -> impl Strategy<Value = Directory> {
    let hash = prop_oneof![0..3_u32, 0..0x7fff_fffe_u32, Just(0x7fff_fffd)];
    let minor = prop_oneof![0..3_u32, any::<u32>()];
    prop::collection::vec((hash, minor, 0..20_usize), 0..120).prop_map(|hashes| {
        let mut entries = vec![(0, b".".to_vec()), (1 << 32, b"..".to_vec())];
        for (number, (hash, minor, bytes)) in hashes.into_iter().enumerate() {
            // No page of the test has room for many whose upper halves agree.
            let position = u64::from(hash.max(1)) << 32 | u64::from(minor);
            let alike = entries.iter().filter(|(other, _)| other >> 32 == position >> 32).count();
            if alike < 4 {
                entries.push((position.max((1 << 32) + 1), name(number, bytes)));
            }
        }
        entries.sort_by_key(|(position, _)| *position);
        Directory { entries, end: i64::MAX as u64 }
    })
}

/// As XFS has it: by place.
fn placed() -> impl Strategy<Value = Directory> {
    (prop::collection::vec((1..5_u64, 0..20_usize), 0..120), any::<bool>()).prop_map(
        |(places, ends_far)| {
            let mut entries = vec![(0, b".".to_vec()), (1, b"..".to_vec())];
            let mut position = 1;
            for (number, (step, bytes)) in places.into_iter().enumerate() {
                position += step;
                entries.push((position, name(number, bytes)));
            }
            let end = if ends_far { i64::MAX as u64 } else { position + 1 };
            Directory { entries, end }
        },
    )
}

proptest! {
    #[test]
    fn pages_tell_all_names_once(
        directory in prop_oneof![hashed(), placed()],
        bytes_max in 400..3000_usize,
    ) {
        let mut told = Vec::new();
        let mut cookie = 0;
        for _ in 0..=directory.entries.len() {
            let page = page_of(&directory, cookie, bytes_max).unwrap();
            let bytes = page.entries.iter().map(|entry| 16 + entry.name.len().next_multiple_of(4));
            prop_assert!(12 + bytes.sum::<usize>() <= bytes_max);
            cookie = page.entries.last().map_or(cookie, |entry| entry.cookie);
            told.extend(page.entries.into_iter().map(|entry| entry.name));
            if page.is_end {
                break;
            }
            // Old clients take the highest bit for a sign.
            prop_assert!(cookie != 0 && cookie < END);
        }
        let all: Vec<Vec<u8>> = directory.entries.into_iter().map(|(_, name)| name).collect();
        prop_assert_eq!(told, all);
    }

    #[test]
    fn from_every_cookie_nothing_is_left_out(
        directory in prop_oneof![hashed(), placed()],
        from in any::<prop::sample::Index>(),
    ) {
        let all = page_of(&directory, 0, usize::MAX).unwrap();
        prop_assert!(all.is_end);
        let at = from.index(all.entries.len());
        let rest = page_of(&directory, all.entries[at].cookie, usize::MAX).unwrap();
        prop_assert!(rest.entries.ends_with(&all.entries[at + 1..]));
    }

    #[test]
    fn names_that_stay_are_told_while_others_go(
        directory in prop_oneof![hashed(), placed()],
        bytes_max in 400..1200_usize,
        goes in prop::collection::vec(any::<bool>(), 150),
    ) {
        // As `rm -r` does it: what a page told is removed before the next is asked for.
        let mut now = directory.clone();
        let mut told = Vec::new();
        let mut cookie = 0;
        for round in 0.. {
            prop_assert!(round <= directory.entries.len());
            let page = page_of(&now, cookie, bytes_max).unwrap();
            cookie = page.entries.last().map_or(cookie, |entry| entry.cookie);
            told.extend(page.entries.into_iter().map(|entry| entry.name));
            if page.is_end {
                break;
            }
            let is_dots = |name: &[u8]| matches!(name, b"." | b"..");
            now.entries.retain(|(position, name)| {
                is_dots(name) || !told.contains(name) || goes[(*position % 150) as usize]
            });
        }
        let all: Vec<Vec<u8>> = directory.entries.into_iter().map(|(_, name)| name).collect();
        told.sort_unstable();
        told.dedup();
        let mut all = all;
        all.sort_unstable();
        prop_assert_eq!(told, all);
    }
}

#[test]
fn what_has_no_end_is_refused_and_never_repeated() {
    let mut entries = vec![(0, b".".to_vec()), (1 << 32, b"..".to_vec())];
    for number in 0..60 {
        entries.push((7 << 32 | number, name(number as usize, 10)));
    }
    let directory = Directory { entries, end: i64::MAX as u64 };
    let first = page_of(&directory, 0, 500).unwrap();
    assert_eq!((first.entries.len(), first.is_end), (2, false));
    let cookie = first.entries[1].cookie;
    assert_eq!(cookie, 7);
    assert_eq!(page_of(&directory, cookie, 500), Err(FsError::Io));
    // With room for all of them there is an end.
    let rest = page_of(&directory, cookie, 8192).unwrap();
    assert_eq!((rest.entries.len(), rest.is_end), (60, true));
    assert_eq!(rest.entries[59].cookie, END);
    assert_eq!(page_of(&directory, END, 500), Ok(Page { entries: Vec::new(), is_end: true }));
    assert_eq!(page_of(&directory, u32::MAX, 500).unwrap().entries, []);
    assert_eq!(page_of(&directory, 0, 20), Err(FsError::TooSmall));
}

/// A file system whose positions have no order: what the upper half leads to is not what follows.
#[test]
fn positions_that_cannot_be_shortened_are_refused() {
    let positions: Vec<u64> = (0..40).map(|number| number << 32 | 9).collect();
    let mut read = |position: u64, each: &mut Each<'_>| {
        let start = match position {
            0 => Some(0),
            position => positions.iter().position(|here| *here == position),
        };
        let start = start.ok_or(FsError::BadCookie)?;
        for at in start..positions.len() {
            let next = positions.get(at + 1).copied().unwrap_or(u64::MAX);
            if !each(&name(at, 10), 7, next) {
                return Ok(false);
            }
        }
        Ok(true)
    };
    assert_eq!(page(&mut read, 0, 8192).map(|page| page.entries.len()), Ok(40));
    assert_eq!(page(&mut read, 0, 500), Err(FsError::BadCookie));
}
