//! Names: what is listed and what is found, against what is acknowledged.

use std::collections::BTreeMap;

use anyhow::Result;
use steadfast_client::{Entry, FileHandle, arguments, procedure};

use super::{ASIDE, Ask, Broken, Check, FOUND, LOCAL_NAME, OURS, Seen, hexadecimal, shown};
use crate::local::TEMPORARY;
use crate::operation::{Name, Number, Place, decoder};
use crate::state::{Kind, Object, State};

/// The names that a directory must have, and whose they are.
type Wanted = BTreeMap<Vec<u8>, (Place, Number)>;

impl<T: Ask> Check<'_, T> {
    pub(super) fn names(&mut self, state: &State, seen: &Seen) -> Result<()> {
        let mut wanted: BTreeMap<Number, Wanted> = BTreeMap::new();
        for (place, object) in &state.names {
            let names = wanted.entry(place.directory).or_default();
            names.insert(place.name.bytes(), (*place, *object));
        }
        let none = Wanted::new();
        for (directory, entries) in seen {
            if !state.objects.contains_key(directory) {
                continue;
            }
            let wanted = wanted.get(directory).unwrap_or(&none);
            self.wanted_names(state, wanted, entries);
            for name in entries.keys().filter(|name| !wanted.contains_key(*name)) {
                self.other_name(state, *directory, name);
            }
        }
        self.lookups(state)
    }

    /// Compares the names that a directory must have with what is listed.
    fn wanted_names(&mut self, state: &State, wanted: &Wanted, listed: &BTreeMap<Vec<u8>, Entry>) {
        for (name, (place, object)) in wanted {
            if state.loose.contains(place) {
                continue;
            }
            let last = state.last.get(place).copied();
            let known = state.objects.get(object).and_then(|object| object.handle.as_ref());
            self.compared = Some(*object);
            let Some(entry) = listed.get(name) else {
                let text = format!("the name {} of #{object} is not listed", shown(name));
                self.note_broken(Broken::Name, last, text);
                continue;
            };
            if let (Some(seen), Some(known)) = (&entry.handle, known)
                && seen != known
            {
                let name = shown(name);
                let text = format!("{name} is listed with another handle than #{object}'s");
                self.note_broken(Broken::Name, last, text);
            }
        }
        self.compared = None;
    }

    /// A name that nobody is known to have given.
    fn other_name(&mut self, state: &State, directory: Number, name: &[u8]) {
        let place = (0..64)
            .map(|number| Place { directory, name: Name(number) })
            .find(|place| place.name.bytes() == *name);
        let is_beside =
            name.starts_with(OURS) || name.starts_with(LOCAL_NAME) || name == TEMPORARY.as_bytes();
        if self.has_histories && is_beside {
            if name.starts_with(ASIDE) {
                self.findings.asides.insert(name.to_vec());
            }
            return;
        }
        if place.is_some_and(|place| state.loose.contains(&place)) {
            return;
        }
        if self.is_found_of_under_way(state, name) {
            self.findings.asides.insert(name.to_vec());
            self.findings.reported += 1;
            return;
        }
        let last = place.and_then(|place| state.last.get(&place).copied());
        let text = format!("{} is there, and should not be", shown(name));
        self.note_broken_or_half(Broken::Name, last, text);
    }

    /// LOOKUP, which servers do by another way than listing.
    fn lookups(&mut self, state: &State) -> Result<()> {
        let mut asked = Vec::new();
        let mut calls = Vec::new();
        for (place, object) in state.names.iter().filter(|(place, _)| !state.loose.contains(place))
        {
            let directory = state.objects.get(&place.directory);
            let Some(handle) = directory.and_then(|known| known.handle.as_ref()) else { continue };
            calls.push((procedure::LOOKUP, arguments::place(handle, &place.name.bytes())));
            asked.push((*place, *object));
        }
        let none = FileHandle(Vec::new());
        for (reply, (place, object)) in self.batch(&calls)?.into_iter().zip(asked) {
            let last = state.last.get(&place).copied();
            let name = place.name.bytes();
            self.compared = Some(object);
            match decoder(reply).lookup(&none, b"") {
                Ok(found) => {
                    let handle = state.objects.get(&object).and_then(|known| known.handle.clone());
                    if handle.is_some_and(|handle| handle != found.handle) {
                        let text = format!("{} is not #{object} any more", shown(&name));
                        self.note_broken(Broken::Name, last, text);
                    }
                }
                Err(error) => {
                    let text = format!("LOOKUP of {} for #{object}: {error}", shown(&name));
                    self.note_broken(Broken::Name, last, text);
                }
            }
        }
        self.compared = None;
        Ok(())
    }

    /// Whether a name is of what replay has kept of a file whose data was on its way when the power failed. Of any
    /// other file each change that can be on the disk has its record in the log.
    fn is_found_of_under_way(&self, state: &State, name: &[u8]) -> bool {
        let Some(key) = name.strip_prefix(FOUND).filter(|_| self.is_power_cut) else {
            return false;
        };
        let is_of = |object: &Object| {
            // The server's own part of a handle is in front of the file system's.
            let handle = object.handle.as_ref().map(|handle| hexadecimal(handle.as_bytes()));
            !key.is_empty() && handle.is_some_and(|handle| handle.as_bytes().ends_with(key))
        };
        state.objects.iter().any(|(number, object)| match &object.kind {
            Kind::File(content) => {
                (self.loose_data.contains(number) || content.is_unstable()) && is_of(object)
            }
            _ => false,
        })
    }
}
