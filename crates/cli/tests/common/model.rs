//! Operations on files and directories, and what there is afterwards: on a mount as in an ordinary directory.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A number after the other, the same ones for the same first one.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// Everything below a directory: paths with modes, lengths and sums of their contents.
pub fn tree(at: &Path) -> BTreeMap<PathBuf, (u32, usize, u64)> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![at.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let content = if metadata.is_dir() {
                waiting.push(path.clone());
                Vec::new()
            } else if metadata.is_symlink() {
                fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
            } else {
                fs::read(&path).unwrap()
            };
            let name = path.strip_prefix(at).unwrap().to_owned();
            let sum =
                content.iter().fold(0_u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
            found.insert(name, (metadata.mode(), content.len(), sum));
        }
    }
    found
}

/// One random operation in a directory; what it tells is compared.
pub fn operate(at: &Path, seed: u64) -> String {
    let mut random = Random(seed | 1);
    for _ in 0..4 {
        random.next();
    }
    let file = at.join(format!("f{}", random.below(8)));
    let other = at.join(format!("f{}", random.below(8)));
    let directory = at.join(format!("d{}", random.below(3)));
    let kind = |outcome: std::io::Result<String>| match outcome {
        Ok(told) => told,
        Err(error) => format!("errno {:?}", error.raw_os_error()),
    };
    let done = |outcome: std::io::Result<()>| kind(outcome.map(|()| "done".to_owned()));
    let offset = random.below(300_000);
    let length = random.below(50_000) as usize;
    let data = vec![random.next() as u8; length];
    match random.below(16) {
        0..=3 => done((|| {
            let file = OpenOptions::new().create(true).truncate(false).write(true).open(&file)?;
            for part in data.chunks(7000) {
                file.write_all_at(part, offset)?;
            }
            file.write_all_at(&data, offset / 2)
        })()),
        4 => done(
            OpenOptions::new()
                .append(true)
                .create(true)
                .open(&file)
                .and_then(|mut f| f.write_all(&data)),
        ),
        5 => done(OpenOptions::new().write(true).open(&file).and_then(|file| file.set_len(offset))),
        6..=8 => kind(File::open(&file).and_then(|file| {
            let mut read = vec![0; length];
            let count = file.read_at(&mut read, offset)?;
            Ok(format!("{count} {:?}", read[..count].iter().map(|b| u64::from(*b)).sum::<u64>()))
        })),
        9 => done(fs::remove_file(&file)),
        10 => done(fs::rename(&file, &other)),
        11 => done(fs::hard_link(&file, &other)),
        12 => done(
            fs::create_dir(&directory).and_then(|()| fs::write(directory.join("inner"), &data)),
        ),
        13 => done(fs::remove_dir_all(&directory)),
        14 => kind((|| {
            // Reads what is written and not sent, through one descriptor.
            let mut file = OpenOptions::new().read(true).write(true).open(&file)?;
            file.seek(SeekFrom::Start(offset))?;
            file.write_all(&data)?;
            file.set_len(offset + length as u64 / 2)?;
            file.write_all_at(b"tail", offset + length as u64)?;
            let mut all = Vec::new();
            file.seek(SeekFrom::Start(offset.saturating_sub(5000)))?;
            file.read_to_end(&mut all)?;
            Ok(format!("{} {}", all.len(), all.iter().map(|b| u64::from(*b)).sum::<u64>()))
        })()),
        _ => kind(fs::metadata(&file).map(|m| format!("{} {} {:o}", m.len(), m.nlink(), m.mode()))),
    }
}

/// What is written and closed by one of two mounts of a share is what the other one reads then, in turn.
pub fn see_what_the_other_has_closed(one: &Path, two: &Path) {
    for round in 0_u32..40 {
        let (writer, reader) = if round % 2 == 0 { (one, two) } else { (two, one) };
        let content = vec![round as u8; 1 + (round as usize * 977) % 20_000];
        fs::write(writer.join("file"), &content).unwrap();
        assert_eq!(fs::read(reader.join("file")).unwrap(), content, "round {round}");
        let mut log =
            OpenOptions::new().create(true).append(true).open(writer.join("log")).unwrap();
        writeln!(log, "{round}").unwrap();
    }
    let lines: Vec<String> = (0..40).map(|round: u32| round.to_string()).collect();
    assert_eq!(fs::read_to_string(one.join("log")).unwrap().lines().collect::<Vec<_>>(), lines);
}
