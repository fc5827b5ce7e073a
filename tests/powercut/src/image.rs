//! What a disk holds: pages, and nothing where it is all zeros. Clones share their pages, so that
//! thousands of crash states cost little.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::SeekFrom;

/// The unit of sharing. No smaller than a file system's block, so that most writes replace whole
/// pages.
const PAGE_BYTES: usize = 4096;

type Page = [u8; PAGE_BYTES];

/// The contents of a disk of a fixed size.
#[derive(Clone, Debug, Default)]
pub(crate) struct Image {
    size_bytes: u64,
    pages: BTreeMap<u64, Arc<Page>>,
}

impl Image {
    /// All zeros.
    pub(crate) fn empty(size_bytes: u64) -> Self {
        Self { size_bytes, pages: BTreeMap::new() }
    }

    /// What is in a file; its holes are not read.
    pub(crate) fn read_from(file: &File) -> io::Result<Self> {
        let mut image = Self::empty(file.metadata()?.len());
        let mut buffer = vec![0; 1 << 20];
        let mut at = 0;
        while at < image.size_bytes {
            at = match rustix::fs::seek(file, SeekFrom::Data(at)) {
                Ok(at) => at,
                Err(rustix::io::Errno::NXIO) => break,
                Err(error) => return Err(error.into()),
            };
            let count = file.read_at(&mut buffer, at)?;
            if count == 0 {
                break;
            }
            image.write(at, buffer.get(..count).unwrap_or(&[]));
            at += count as u64;
        }
        Ok(image)
    }

    /// Writes the image to a file that is empty; zeros become holes.
    pub(crate) fn write_to(&self, file: &File) -> io::Result<()> {
        file.set_len(self.size_bytes)?;
        let mut run: Vec<u8> = Vec::new();
        let mut start = 0;
        for (number, page) in &self.pages {
            let at = number * PAGE_BYTES as u64;
            if start + run.len() as u64 != at || run.len() > 1 << 20 {
                file.write_all_at(&run, start)?;
                run.clear();
                start = at;
            }
            run.extend_from_slice(page.as_slice());
        }
        file.write_all_at(&run, start)
    }

    /// Replaces bytes.
    pub(crate) fn write(&mut self, offset: u64, mut bytes: &[u8]) {
        let mut at = offset;
        while !bytes.is_empty() {
            let within = (at % PAGE_BYTES as u64) as usize;
            let count = bytes.len().min(PAGE_BYTES - within);
            let (now, rest) = bytes.split_at(count);
            let number = at / PAGE_BYTES as u64;
            if count == PAGE_BYTES && now.iter().all(|byte| *byte == 0) {
                self.pages.remove(&number);
            } else {
                let page = self.pages.entry(number).or_insert_with(|| Arc::new([0; PAGE_BYTES]));
                if let Some(place) = Arc::make_mut(page).get_mut(within..within + count) {
                    place.copy_from_slice(now);
                }
            }
            at += count as u64;
            bytes = rest;
        }
    }

    #[cfg(test)]
    pub(crate) fn byte(&self, at: u64) -> u8 {
        let page = self.pages.get(&(at / PAGE_BYTES as u64));
        page.map_or(0, |page| page[(at % PAGE_BYTES as u64) as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_cross_pages_and_survive_a_file() {
        let mut image = Image::empty(64 << 10);
        image.write(4000, &[7; 5000]);
        image.write(4096, &[0; 4096]);
        let file = tempfile::tempfile().expect("a file");
        image.write_to(&file).expect("written");
        let again = Image::read_from(&file).expect("read");
        for at in 0..64 << 10 {
            let wanted =
                if (4000..4096).contains(&at) || (8192..9000).contains(&at) { 7 } else { 0 };
            assert_eq!((image.byte(at), again.byte(at)), (wanted, wanted), "at {at}");
        }
    }

    #[test]
    fn a_clone_stays_as_it_was() {
        let mut image = Image::empty(8192);
        image.write(0, &[1; 10]);
        let before = image.clone();
        image.write(5, &[2; 10]);
        assert_eq!((before.byte(5), image.byte(5), image.byte(4)), (1, 2, 1));
    }
}
