//! Who may work on what: operations on one name or object follow each other, so that the order of
//! their effects is known; all others run at the same time.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::local::Step;
use crate::operation::{Action, Number, Place, ROOT};
use crate::state::{Kind, State};

/// What is claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// A directory entry, there or not.
    Entry(Place),
    /// An object: its content, links, being; of a directory: its being.
    Object(Number),
    /// A directory's attributes.
    Attributes(Number),
    /// Which directory is in which.
    Tree,
    /// What new objects of a directory inherit.
    Inherited(Number),
}

/// A claim, exclusive or shared.
pub(crate) type Claim = (Key, bool);

/// What an operation has to claim, given what is there.
pub(crate) fn needed(state: &State, action: &Action) -> Vec<Claim> {
    let mut claims: Vec<Claim> = Vec::new();
    for place in action.places() {
        claims.push((Key::Entry(place), true));
        claims.push((Key::Object(place.directory), false));
        // What is removed, replaced or moved, or opened by CREATE.
        if let Some((number, object)) = state.at(place) {
            claims.push((Key::Object(number), true));
            if object.kind == Kind::Directory && matches!(action, Action::Rename { .. }) {
                claims.push((Key::Tree, true));
            }
        }
    }
    if let Some(number) = action.object() {
        let is_directory =
            state.objects.get(&number).is_some_and(|object| object.kind == Kind::Directory);
        if is_directory {
            claims.push((Key::Object(number), false));
            claims.push((Key::Attributes(number), true));
        } else {
            claims.push((Key::Object(number), true));
        }
    }
    claims.extend(inherited(action));
    if action.is_local() {
        claims.extend(on_the_way(state, action));
    }
    // One claim a key; an exclusive one outweighs.
    let mut unique: Vec<Claim> = Vec::new();
    for (key, is_exclusive) in claims {
        match unique.iter_mut().find(|(known, _)| *known == key) {
            Some((_, exclusive)) => *exclusive |= is_exclusive,
            None => unique.push((key, is_exclusive)),
        }
    }
    unique
}

/// What makes objects inherits from their directory; what changes that has it alone.
fn inherited(action: &Action) -> Option<Claim> {
    match action {
        Action::Create { at, .. } | Action::Mkdir { at, .. } | Action::Mknod { at, .. } => {
            Some((Key::Inherited(at.directory), false))
        }
        Action::Setacl { object, is_default: true, .. } => Some((Key::Inherited(*object), true)),
        Action::Local(local) => match local.step {
            Step::DefaultAcl { object, .. } => Some((Key::Inherited(object), true)),
            _ => local.made().map(|at| (Key::Inherited(at.directory), false)),
        },
        _ => None,
    }
}

/// A local process goes by path: no directory on the way is moved or removed, and the name by which
/// an object is found stays.
fn on_the_way(state: &State, action: &Action) -> Vec<Claim> {
    let mut claims = vec![(Key::Tree, false)];
    if let Some(object) = action.object().filter(|object| *object != ROOT)
        && let Some(place) = state.place_of(object)
    {
        claims.extend([(Key::Entry(place), true), (Key::Object(place.directory), false)]);
    }
    claims
}

/// The claims of all operations under way.
#[derive(Debug, Default)]
pub(crate) struct Claims(HashMap<Key, Holders>);

#[derive(Debug)]
enum Holders {
    One,
    Shared(u32),
}

impl Claims {
    /// Takes all of these or none.
    pub(crate) fn take(&mut self, claims: &[Claim]) -> bool {
        let is_free = |(key, is_exclusive): &Claim| match self.0.get(key) {
            None => true,
            Some(Holders::Shared(_)) => !is_exclusive,
            Some(Holders::One) => false,
        };
        if !claims.iter().all(is_free) {
            return false;
        }
        for (key, is_exclusive) in claims {
            match self.0.entry(*key) {
                Entry::Vacant(place) => {
                    place.insert(if *is_exclusive { Holders::One } else { Holders::Shared(1) });
                }
                Entry::Occupied(mut place) => {
                    if let Holders::Shared(count) = place.get_mut() {
                        *count += 1;
                    }
                }
            }
        }
        true
    }

    /// Gives these back.
    pub(crate) fn release(&mut self, claims: &[Claim]) {
        for (key, _) in claims {
            if let Some(Holders::Shared(count)) = self.0.get_mut(key)
                && *count > 1
            {
                *count -= 1;
                continue;
            }
            self.0.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_claims_exclude_exclusive_ones_and_the_other_way_round() {
        let mut claims = Claims::default();
        let shared = [(Key::Object(1), false)];
        let exclusive = [(Key::Tree, true), (Key::Object(1), true)];
        assert!(claims.take(&shared) && claims.take(&shared));
        assert!(!claims.take(&exclusive));
        claims.release(&shared);
        assert!(!claims.take(&exclusive));
        claims.release(&shared);
        assert!(claims.take(&exclusive), "what failed took nothing");
        assert!(!claims.take(&shared));
        claims.release(&exclusive);
        assert!(claims.take(&shared));
    }
}
