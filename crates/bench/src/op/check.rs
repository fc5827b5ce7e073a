//! Whether what the calls should have left is there.

use steadfast_client::StableHow;

use super::script::Promises;
use super::tree::{Tree, turn_name};
use super::{Load, Operation};
use crate::error::BenchError;
use crate::pattern;
use crate::preparing::Preparer;

/// Slots whose last call is looked at.
const SAMPLES: usize = 64;
/// The modes that SETATTR gives; files are made with another.
pub(super) const MODES: [u32; 2] = [0o640, 0o604];

/// What a thread's script tells of its calls when it has ended.
pub(super) trait Ended {
    /// How many turns each slot has ended, with its number among those of all threads.
    fn turns(&self) -> Vec<(usize, u64)>;

    /// Whether SETATTR has changed an object.
    fn has_set(&self, object: usize) -> bool;

    /// What replies promised.
    fn promises(&self) -> &Promises;
}

/// Looks at what the last calls of some slots should have left; returns at how many objects.
pub(super) fn what_was_left<S: Ended>(
    load: &Load,
    tree: &Tree,
    scripts: &[S],
) -> Result<u64, BenchError> {
    let operation = load.operation;
    let has_lost = scripts.iter().any(|script| script.promises().verifier_changes > 0);
    let leaves_names = operation.makes_names()
        || operation.removes_names()
        || matches!(operation, Operation::Rename);
    // What was written unstable and not committed may be gone with the verifier that came with it.
    let is_stable = matches!(operation, Operation::WriteCommit { .. })
        || operation.stability().is_some_and(|stable| stable != StableHow::Unstable);
    let leaves_data = operation.stability().is_some() && (is_stable || !has_lost);
    if !leaves_names && !leaves_data && operation != Operation::Setattr {
        return Ok(0);
    }
    let mut client = Preparer::connect(&load.target, load.nfs)?;
    let broken = |what: &str| Err(BenchError::broken(operation.name(), what));
    let mut looked_at = 0;
    let step = (load.slots() / SAMPLES).max(1);
    let turns = scripts.iter().flat_map(Ended::turns).step_by(step);
    for (slot, turns) in turns {
        let Some(last) = turns.checked_sub(1) else { continue };
        let connection = slot / load.depth;
        if let (true, Some(file)) = (leaves_data, tree.objects.get(connection)) {
            let size = operation.payload_bytes();
            let offset = tree.write_offset(slot % load.depth, last, size);
            let read = client.read(file, offset, size)?;
            if !pattern::matches_sampled(connection, offset, &read) {
                return broken("what was written is not what is read back");
            }
            looked_at += 1;
        }
        if let (true, Some(directory)) = (leaves_names, tree.own.get(connection)) {
            let is_rename = operation == Operation::Rename;
            let newest = if is_rename { turns } else { last };
            let is_there = client.find(directory, &turn_name(slot, newest))?.is_some();
            if is_there == operation.removes_names() {
                return broken("a name that was made is missing, or a removed one there");
            }
            if is_rename && client.find(directory, &turn_name(slot, last))?.is_some() {
                return broken("a name is still there after it was renamed");
            }
            looked_at += 1;
        }
    }
    if operation == Operation::Setattr {
        let was_set = |file: usize| scripts.iter().any(|script| script.has_set(file));
        let set = tree.objects.iter().enumerate().filter(|(file, _)| was_set(*file));
        for (_, file) in set.take(SAMPLES) {
            if !client.mode(file)?.is_some_and(|mode| MODES.contains(&mode)) {
                return broken("a mode that was set is not there");
            }
            looked_at += 1;
        }
    }
    client.end()?;
    Ok(looked_at)
}
