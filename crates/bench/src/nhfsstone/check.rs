//! Whether what the calls should have left is there.

use super::script::Mixed;
use super::tree::WorkingSet;
use super::{Nhfsstone, WRITTEN};
use crate::error::BenchError;
use crate::pattern;
use crate::preparing::Preparer;

/// Places that are read back, and names that are looked up, at most.
const SAMPLES: usize = 256;

/// Reads back what some lanes wrote last, and looks up names that were made or removed last;
/// returns how many objects were looked at.
pub(super) fn names_and_data(
    load: &Nhfsstone,
    set: &WorkingSet,
    scripts: &[Mixed],
) -> Result<u64, BenchError> {
    let mut client = Preparer::connect(&load.target, load.nfs)?;
    let share = SAMPLES.div_ceil(scripts.len().max(1));
    let mut looked_at = 0;
    for (file, offset) in scripts.iter().flat_map(|script| script.written().take(share)) {
        let Some(handle) = set.files.get(file) else { continue };
        let read = client.read(handle, offset, load.transfer_bytes)?;
        let is_whole = read.len() == load.transfer_bytes as usize;
        if !is_whole || !pattern::matches_sampled(file + WRITTEN, offset, &read) {
            let what = "what was written is not what is read back";
            return Err(BenchError::broken("write", what));
        }
        looked_at += 1;
    }
    for script in scripts {
        // Of all of them, since those that were removed come last.
        let names: Vec<_> = script.names().collect();
        let step = names.len().div_ceil(share).max(1);
        for (directory, name, is_present) in names.iter().step_by(step).take(share) {
            if client.find(directory, name)?.is_some() != *is_present {
                let what = "a name that was made is missing, or a removed one there";
                return Err(BenchError::broken("lookup", what));
            }
            looked_at += 1;
        }
    }
    client.end()?;
    Ok(looked_at)
}
