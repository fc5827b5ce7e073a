//! Changes settings, and changes them back.
//!
//! The order is what makes a way back from any crash: the record is on the disk before the first setting is
//! changed, and it is removed after the last one is restored.

use std::io;

use serde::Serialize;

use super::record::{Entry, RECORD, Record, SYSCTL_FILE, Turn, is_ours, is_same};
use super::settings::{SettingState, SettingStatus, path_of, state, states};
use crate::machine::{Machine, why};

/// Below this are all settings.
const SETTINGS: &str = "/proc/sys";

/// Why nothing, or not all, was done.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// There is no such setting in the table.
    #[error("{0}: no setting of `steadfast tune`; `steadfast tune --list` names them")]
    Unknown(String),
    /// A setting that was named cannot be set.
    #[error("{key}: cannot be set: {why}; nothing was changed")]
    Refused {
        /// The setting.
        key: String,
        /// Why.
        why: String,
    },
    /// A file is in the way.
    #[error(
        "{SYSCTL_FILE} is there and not written by `steadfast tune`; move it away; nothing was changed"
    )]
    NotOurs,
    /// Another one is at work.
    #[error("another `steadfast tune` changes settings now; try again when it has ended")]
    Busy,
    /// The record cannot be understood.
    #[error(
        "{RECORD} cannot be read: {0}; it says what settings were, so that nothing was changed"
    )]
    Record(String),
    /// A file could not be read or written.
    #[error("{what}: {source}")]
    File {
        /// Which.
        what: String,
        /// Why.
        source: io::Error,
    },
}

/// Which settings.
#[derive(Clone, Debug)]
pub enum Choice {
    /// All that are worse than proposed.
    All,
    /// These.
    Keys(Vec<String>),
}

/// What became of a setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It was changed.
    Changed,
    /// It would be changed.
    Would,
    /// It is as good or better.
    Unchanged,
    /// It does not matter here, or is not here.
    Skipped,
    /// It could not be changed.
    Failed,
    /// Somebody else has changed it since: it is as it was found.
    Left,
}

/// A setting, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Its name.
    pub key: String,
    /// What became of it.
    pub outcome: Outcome,
    /// What it was.
    pub before: Option<String>,
    /// What it is now, or would be.
    pub after: Option<String>,
    /// Why it was left as it was.
    pub why: Option<String>,
}

/// What was done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Applied {
    /// One a setting that was chosen.
    pub changes: Vec<Change>,
}

/// What was put back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Undone {
    /// One a setting of the record.
    pub changes: Vec<Change>,
    /// Whether [`SYSCTL_FILE`] is there and somebody else's, and was left: what it has is set again at the next start.
    pub is_file_left: bool,
}

impl Applied {
    /// Whether all that was to be changed is.
    pub fn is_complete(&self) -> bool {
        self.changes.iter().all(|change| change.outcome != Outcome::Failed)
    }
}

impl Undone {
    /// Whether nothing is left in the record.
    pub fn is_complete(&self) -> bool {
        self.changes.iter().all(|change| change.outcome != Outcome::Failed)
    }
}

/// Changes what was chosen; `is_dry`: only tells what would be.
///
/// # Errors
/// When a setting that was named cannot be set, or a file is in the way: nothing is changed then. Also when
/// the file for the next start could not be written: settings are changed then, and `undo` puts them back.
pub fn apply(machine: &Machine, choice: &Choice, is_dry: bool) -> Result<Applied, TuneError> {
    let chosen = chosen(machine, choice)?;
    let is_worse = |state: &SettingState| state.status == SettingStatus::Worse;
    if is_dry || !chosen.iter().any(is_worse) {
        let changes = chosen.into_iter().map(|state| untouched(state, is_dry)).collect();
        return Ok(Applied { changes });
    }
    let _turn = Turn::take(machine)?;
    if !is_ours(machine)? {
        return Err(TuneError::NotOurs);
    }
    let mut record = Record::load(machine)?;
    let before = record.clone();
    for state in chosen.iter().filter(|state| is_worse(state)) {
        if let (Some(present), Some(proposed)) = (&state.present, &state.proposed) {
            record.note(&state.key, present, proposed);
        }
    }
    record.store(machine)?;
    let mut applied = Applied::default();
    for state in chosen {
        let change = match (&state.present, &state.proposed) {
            (Some(present), Some(proposed)) if is_worse(&state) => {
                let error = set(machine, &state.key, proposed).err();
                if error.is_some() {
                    // What was written in part is put back; the record goes back to what it was.
                    let _ = set(machine, &state.key, present);
                    record.entries.retain(|entry| entry.key != state.key);
                    record.entries.extend(before.entry(&state.key).cloned());
                }
                Change {
                    key: state.key.clone(),
                    outcome: if error.is_some() { Outcome::Failed } else { Outcome::Changed },
                    before: Some(present.clone()),
                    after: machine.word(&path_of(&state.key)),
                    why: error,
                }
            }
            _ => untouched(state, false),
        };
        applied.changes.push(change);
    }
    record.store(machine)?;
    record.store_for_start(machine)?;
    Ok(applied)
}

/// The settings of a choice. Those that were named must be such that they can be set.
fn chosen(machine: &Machine, choice: &Choice) -> Result<Vec<SettingState>, TuneError> {
    let Choice::Keys(keys) = choice else { return Ok(states(machine)) };
    let mut chosen: Vec<SettingState> = Vec::new();
    for key in keys {
        let state = state(machine, key).ok_or_else(|| TuneError::Unknown(key.clone()))?;
        if let Some(why) = hindrance(&state) {
            return Err(TuneError::Refused { key: key.clone(), why });
        }
        if chosen.iter().all(|other| other.key != state.key) {
            chosen.push(state);
        }
    }
    Ok(chosen)
}

/// Why a setting cannot, or need not, be set.
fn hindrance(state: &SettingState) -> Option<String> {
    match state.status {
        SettingStatus::Good | SettingStatus::Worse => None,
        SettingStatus::NotNeeded => Some("it makes no difference on this machine".to_owned()),
        SettingStatus::Missing => Some(format!(
            "{} is not there: the kernel, or this container, does not have it",
            path_of(&state.key)
        )),
        SettingStatus::Odd => Some(format!(
            "what it has is not understood: {:?}",
            state.present.as_deref().unwrap_or_default()
        )),
    }
}

fn untouched(state: SettingState, is_dry: bool) -> Change {
    let why = hindrance(&state);
    let outcome = match state.status {
        SettingStatus::Good => Outcome::Unchanged,
        SettingStatus::Worse if is_dry => Outcome::Would,
        _ => Outcome::Skipped,
    };
    let after = if outcome == Outcome::Would { state.proposed } else { state.present.clone() };
    Change { key: state.key, outcome, before: state.present, after, why }
}

/// Writes a setting and reads it again: the kernel cuts some values, and ignores others.
fn set(machine: &Machine, key: &str, value: &str) -> Result<(), String> {
    let path = machine.path(&path_of(key));
    // It is there already: a name that is not a setting is never made.
    let written = std::fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(&path)
        .and_then(|mut file| io::Write::write_all(&mut file, format!("{value}\n").as_bytes()));
    written.map_err(|error| why(&error))?;
    let present = machine.read(&path_of(key)).map_err(|error| why(&error))?;
    if is_same(&present, value) {
        return Ok(());
    }
    Err(format!("the kernel made {:?} of {value:?}", present.trim()))
}

/// Puts back what the record has; `is_dry`: only tells what would be.
///
/// # Errors
/// When the record cannot be read, or a file cannot be written.
pub fn undo(machine: &Machine, is_dry: bool) -> Result<Undone, TuneError> {
    if !machine.path(SETTINGS).is_dir() {
        let source = io::ErrorKind::NotFound.into();
        return Err(TuneError::File { what: SETTINGS.to_owned(), source });
    }
    if is_dry {
        let mut undone = Undone::default();
        for entry in Record::load(machine)?.entries.into_iter().rev() {
            let before = machine.word(&path_of(&entry.key));
            let (outcome, why) = left(&entry, before.as_deref()).unwrap_or((Outcome::Would, None));
            let after = if outcome == Outcome::Would { Some(entry.before) } else { before.clone() };
            undone.changes.push(Change { key: entry.key, outcome, before, after, why });
        }
        return Ok(undone);
    }
    let _turn = Turn::take(machine)?;
    let record = Record::load(machine)?;
    let mut kept = Record { version: record.version, entries: Vec::new() };
    let mut undone = Undone::default();
    // The last first: what depends on another setting was set after it.
    for entry in record.entries.iter().rev() {
        let present = machine.word(&path_of(&entry.key));
        let (outcome, why) = match left(entry, present.as_deref()) {
            Some(left) => left,
            None => match set(machine, &entry.key, &entry.before) {
                Ok(()) => (Outcome::Changed, None),
                Err(error) => {
                    kept.entries.insert(0, entry.clone());
                    (Outcome::Failed, Some(error))
                }
            },
        };
        let after = machine.word(&path_of(&entry.key));
        undone.changes.push(Change {
            key: entry.key.clone(),
            outcome,
            before: present,
            after,
            why,
        });
    }
    undone.is_file_left = !is_ours(machine)?;
    if !undone.is_file_left {
        kept.store_for_start(machine)?;
    }
    kept.store(machine)?;
    Ok(undone)
}

/// What becomes of a setting that is not put back, and why; `None` if it is. The record forgets it then, so the reason
/// has what it was.
fn left(entry: &Entry, present: Option<&str>) -> Option<(Outcome, Option<String>)> {
    let was = || entry.before.split_whitespace().collect::<Vec<_>>().join(" ");
    match present {
        None => Some((Outcome::Left, Some(format!("it is not there any more; it was {}", was())))),
        Some(present) if is_same(present, &entry.before) => Some((Outcome::Unchanged, None)),
        Some(present) if !is_same(present, &entry.after) => {
            let why = format!("somebody else has changed it since; it was {} before", was());
            Some((Outcome::Left, Some(why)))
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A machine of one directory, with these settings and 8 GiB.
    fn machine(settings: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let root = tempfile::tempdir().expect("a directory");
        let machine = Machine::at(root.path());
        let write = |path: &str, text: &str| {
            let path = machine.path(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(path, text).expect("written");
        };
        write("/proc/meminfo", "MemTotal: 8388608 kB\n");
        for (key, value) in settings {
            write(&path_of(key), &format!("{value}\n"));
        }
        (root, machine)
    }

    fn value(machine: &Machine, key: &str) -> String {
        machine.word(&path_of(key)).expect("a value")
    }

    const BEFORE: &[(&str, &str)] = &[
        ("net.core.rmem_max", "212992"),
        ("net.ipv4.tcp_rmem", "4096\t131072\t262144"),
        ("vm.dirty_background_ratio", "20"),
        ("vm.dirty_writeback_centisecs", "50"),
        ("net.core.somaxconn", "9999"),
    ];

    #[test]
    fn what_is_worse_is_changed_and_put_back() {
        let (_root, machine) = machine(BEFORE);
        let dry = apply(&machine, &Choice::All, true).expect("told");
        let would = |change: &&Change| change.outcome == Outcome::Would;
        assert_eq!(dry.changes.iter().filter(would).count(), 3, "{dry:?}");
        assert_eq!(value(&machine, "net.core.rmem_max"), "212992");
        assert!(!machine.path(RECORD).exists());

        let applied = apply(&machine, &Choice::All, false).expect("applied");
        assert!(applied.is_complete());
        assert_eq!(value(&machine, "net.core.rmem_max"), "1310720");
        assert_eq!(value(&machine, "net.ipv4.tcp_rmem"), "4096\t131072\t1310720");
        assert_eq!(value(&machine, "vm.dirty_background_ratio"), "10");
        assert_eq!(value(&machine, "net.core.somaxconn"), "9999", "what is better stays");
        let lines = machine.read(SYSCTL_FILE).expect("a file");
        assert!(lines.contains("net.ipv4.tcp_rmem = 4096 131072 1310720\n"), "{lines}");
        let mode = machine.path(SYSCTL_FILE).metadata().expect("one").permissions().mode();
        assert_eq!(mode & 0o777, 0o644);

        // Again: nothing is left to do, and what was first is not forgotten.
        let again = apply(&machine, &Choice::All, false).expect("applied");
        assert!(again.changes.iter().all(|change| change.outcome != Outcome::Changed));
        let undone = undo(&machine, false).expect("undone");
        assert!(undone.is_complete());
        for (key, before) in BEFORE {
            assert_eq!(value(&machine, key), *before);
        }
        assert!(!machine.path(RECORD).exists() && !machine.path(SYSCTL_FILE).exists());
        assert_eq!(undo(&machine, false).expect("nothing").changes, []);
    }

    #[test]
    fn named_settings_that_cannot_be_set_are_refused_as_a_whole() {
        let (_root, machine) = machine(BEFORE);
        let keys = |keys: &[&str]| Choice::Keys(keys.iter().map(|&key| key.to_owned()).collect());
        let refused = apply(&machine, &keys(&["net.core.rmem_max", "net.core.wmem_max"]), false);
        let told = refused.expect_err("not there").to_string();
        assert!(
            told.contains("net/core/wmem_max") && told.contains("nothing was changed"),
            "{told}"
        );
        let refused = apply(&machine, &keys(&["net.core.rmem_max", "kernel.panic"]), false);
        assert!(matches!(refused, Err(TuneError::Unknown(_))));
        assert_eq!(value(&machine, "net.core.rmem_max"), "212992");
        let one = apply(&machine, &keys(&["net.core.rmem_max"]), false).expect("applied");
        assert_eq!(one.changes.len(), 1);
        assert_eq!(value(&machine, "vm.dirty_background_ratio"), "20");
    }

    #[test]
    fn a_file_of_somebody_else_is_not_written_over() {
        let (_root, machine) = machine(BEFORE);
        let path = machine.path(SYSCTL_FILE);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(&path, "vm.swappiness = 1\n").expect("written");
        assert!(matches!(apply(&machine, &Choice::All, false), Err(TuneError::NotOurs)));
        assert_eq!(value(&machine, "net.core.rmem_max"), "212992");
        assert_eq!(fs::read_to_string(&path).expect("text"), "vm.swappiness = 1\n");
    }

    #[test]
    fn what_somebody_else_has_changed_since_is_left() {
        let (_root, machine) = machine(BEFORE);
        apply(&machine, &Choice::All, false).expect("applied");
        fs::write(machine.path(&path_of("net.core.rmem_max")), "99999999\n").expect("written");
        // What would be done is what is done.
        for is_dry in [true, false] {
            let undone = undo(&machine, is_dry).expect("undone");
            let left = undone.changes.iter().find(|change| change.outcome == Outcome::Left);
            let left = left.expect("one");
            assert_eq!(left.key, "net.core.rmem_max");
            // The record forgets it: people must not.
            assert!(left.why.as_ref().is_some_and(|why| why.contains("212992")), "{left:?}");
        }
        assert_eq!(value(&machine, "net.core.rmem_max"), "99999999");
        assert_eq!(value(&machine, "vm.dirty_background_ratio"), "20");
    }

    #[test]
    fn a_record_that_cannot_be_read_stops_everything() {
        let (_root, machine) = machine(BEFORE);
        fs::create_dir_all(machine.path("/var/lib")).expect("made");
        fs::write(machine.path(RECORD), "{}").expect("written");
        assert!(matches!(apply(&machine, &Choice::All, false), Err(TuneError::Record(_))));
        assert!(matches!(undo(&machine, false), Err(TuneError::Record(_))));
        assert_eq!(value(&machine, "net.core.rmem_max"), "212992");
    }

    #[test]
    fn a_file_that_became_somebody_elses_is_left_and_told() {
        let (_root, machine) = machine(BEFORE);
        apply(&machine, &Choice::All, false).expect("applied");
        let path = machine.path(SYSCTL_FILE);
        fs::write(&path, "net.core.rmem_max = 1310720\n").expect("written");
        let undone = undo(&machine, false).expect("undone");
        assert!(undone.is_file_left && undone.is_complete());
        assert_eq!(fs::read_to_string(&path).expect("text"), "net.core.rmem_max = 1310720\n");
        assert_eq!(value(&machine, "net.core.rmem_max"), "212992");
    }

    #[test]
    fn without_settings_nothing_is_undone_and_the_record_stays() {
        let (_root, machine) = machine(BEFORE);
        apply(&machine, &Choice::All, false).expect("applied");
        // A rescue system that has not mounted it.
        fs::rename(machine.path("/proc/sys"), machine.path("/proc/away")).expect("moved");
        assert!(matches!(undo(&machine, false), Err(TuneError::File { .. })));
        fs::rename(machine.path("/proc/away"), machine.path("/proc/sys")).expect("moved");
        assert!(undo(&machine, false).expect("undone").is_complete());
        assert_eq!(value(&machine, "net.core.rmem_max"), "212992");
    }

    #[test]
    fn two_do_not_change_settings_at_once() {
        let (_root, machine) = machine(BEFORE);
        let turn = Turn::take(&machine).expect("a turn");
        assert!(matches!(apply(&machine, &Choice::All, false), Err(TuneError::Busy)));
        drop(turn);
        apply(&machine, &Choice::All, false).expect("applied");
    }

    #[test]
    fn a_setting_that_does_not_take_its_value_is_told_and_forgotten() {
        // A directory in place of the file cannot be written, but its state is of before.
        let (_root, machine) = machine(BEFORE);
        let path = machine.path(&path_of("vm.dirty_background_ratio"));
        fs::remove_file(&path).expect("removed");
        // /dev/full takes no bytes, as a kernel that refuses a value.
        if std::os::unix::fs::symlink("/dev/full", &path).is_ok() {
            let result = set(&machine, "vm.dirty_background_ratio", "10");
            assert!(result.is_err(), "{result:?}");
        }
    }
}
