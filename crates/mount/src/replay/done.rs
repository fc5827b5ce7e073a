//! Which changes of names the server has done. What a name is bound to does not always tell that of a single
//! change: a file that was moved to and fro is where it was at first. But a server does the changes of the
//! same names and objects in their order, and a crash takes away the last of them, so what all these names
//! are bound to together tells how far it has got.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::ReplayError;
use super::pass::{Life, Pass};
use super::plan::{Action, Object, Place, Plan, Step};
use super::share::{Failed, Who};

/// What a name is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Binding {
    Nothing,
    To(Object),
    /// To something that the journal does not know.
    Strange,
    /// It cannot be known.
    Any,
}

impl Binding {
    fn may_be(self, found: Self) -> bool {
        self == Self::Any || self == found
    }
}

/// What a change says of one name.
struct Effect<'a> {
    at: &'a Place,
    before: Binding,
    after: Binding,
}

/// Steps that share names or objects, in order.
#[derive(Debug, Default)]
struct Group(Vec<usize>);

fn known(object: Option<Object>) -> Binding {
    object.map_or(Binding::Any, Binding::To)
}

/// What a step does to names. `None`: it does nothing to any.
fn effects(step: &Step) -> Option<Vec<Effect<'_>>> {
    Some(match &step.action {
        Action::SetAttr { .. } => return None,
        Action::Make { at, object, .. } | Action::Link { object, at } => {
            vec![Effect { at, before: Binding::Nothing, after: Binding::To(*object) }]
        }
        Action::Remove { at, object, .. } => {
            vec![Effect { at, before: known(*object), after: Binding::Nothing }]
        }
        Action::Rename { from, to, object, replaced } => vec![
            Effect { at: from, before: known(*object), after: Binding::Nothing },
            Effect { at: to, before: known(*replaced), after: known(*object) },
        ],
    })
}

/// Whether the handles of all that a step is about are known.
fn is_known(plan: &Plan, step: &Step) -> bool {
    let has_handle = |object: Object| plan.objects[object].handle.is_some();
    step.objects().into_iter().all(|object| object.is_some_and(has_handle))
}

fn root(parents: &mut [usize], of: usize) -> usize {
    let mut at = of;
    while parents[at] != at {
        parents[at] = parents[parents[at]];
        at = parents[at];
    }
    at
}

/// The groups of several steps, as far as these are known.
fn groups(plan: &Plan) -> Vec<Group> {
    let mut parents: Vec<usize> = (0..plan.steps.len()).collect();
    let mut by_place: HashMap<&Place, usize> = HashMap::new();
    let mut by_object: HashMap<Object, usize> = HashMap::new();
    for (index, step) in plan.steps.iter().enumerate() {
        let Some(effects) = effects(step) else { continue };
        let of_places = effects.iter().map(|effect| *by_place.entry(effect.at).or_insert(index));
        let of_objects = step.objects().into_iter().flatten();
        let of_objects = of_objects.map(|object| *by_object.entry(object).or_insert(index));
        for other in of_places.chain(of_objects).collect::<Vec<_>>() {
            let (one, other) = (root(&mut parents, index), root(&mut parents, other));
            parents[one.max(other)] = one.min(other);
        }
    }
    let mut groups: BTreeMap<usize, Group> = BTreeMap::new();
    for (index, step) in plan.steps.iter().enumerate() {
        if effects(step).is_some() {
            groups.entry(root(&mut parents, index)).or_default().0.push(index);
        }
    }
    // Of what comes after one that is not known nothing can be said.
    let known = groups.into_values().map(|Group(steps)| {
        let known = steps.into_iter().take_while(|step| is_known(plan, &plan.steps[*step]));
        Group(known.collect())
    });
    known.filter(|group| group.0.len() > 1).collect()
}

/// How many of its first steps were done when the names are bound as they were found: the most that may be.
/// What is gone, and is removed at the end, is not made again by a replay, and has no names meanwhile.
fn steps_done(
    plan: &Plan,
    group: &Group,
    found: &HashMap<Place, Binding>,
    gone: &HashSet<Object>,
) -> Option<usize> {
    let bound_to = |binding: Binding| match binding {
        Binding::To(object) if gone.contains(&object) => Binding::Nothing,
        binding => binding,
    };
    // By how much the number of names that are as found changes, before the first step and after each.
    let mut agreeing = vec![0_isize; group.0.len() + 2];
    let mut bound: HashMap<&Place, (usize, Binding)> = HashMap::new();
    let agree = |agreeing: &mut [isize], at: &Place, from: usize, to: usize, binding: Binding| {
        if found.get(at).is_some_and(|found| binding.may_be(*found)) {
            agreeing[from] += 1;
            agreeing[to] -= 1;
        }
    };
    for (done, step) in group.0.iter().enumerate() {
        for effect in effects(&plan.steps[*step]).unwrap_or_default() {
            let (from, before) = bound.get(effect.at).copied().unwrap_or((0, effect.before));
            agree(&mut agreeing, effect.at, from, done + 1, bound_to(before));
            bound.insert(effect.at, (done + 1, effect.after));
        }
    }
    for (at, (from, binding)) in &bound {
        agree(&mut agreeing, at, *from, group.0.len() + 1, bound_to(*binding));
    }
    let sums = agreeing.iter().scan(0, |names, change| {
        *names += change;
        Some(*names)
    });
    let all = bound.len() as isize;
    sums.enumerate().filter(|(_, names)| *names == all).last().map(|(steps, _)| steps)
}

impl Pass<'_> {
    /// The steps that the server has done, as far as names tell.
    pub(super) fn find_done(&mut self) -> Result<HashSet<usize>, ReplayError> {
        let mut done = HashSet::new();
        for group in groups(&self.plan) {
            let (mut found, mut gone) = (HashMap::new(), HashSet::new());
            for index in &group.0 {
                let step = self.plan.steps[*index].clone();
                for object in step.objects().into_iter().flatten() {
                    if self.plan.objects[object].is_removed_later()
                        && self.life(&step.who, object)? == Life::Gone
                    {
                        gone.insert(object);
                    }
                }
                for effect in effects(&step).unwrap_or_default() {
                    if !found.contains_key(effect.at) {
                        let binding = self.binding(&step.who, effect.at)?;
                        found.insert(effect.at.clone(), binding);
                    }
                }
            }
            if let Some(steps) = steps_done(&self.plan, &group, &found, &gone) {
                done.extend(&group.0[..steps]);
            }
        }
        Ok(done)
    }

    /// All that is done to an object is still to be done.
    pub(super) fn not_done(&mut self, object: Object) {
        for index in self.plan.steps_of(object) {
            self.done.remove(&index);
        }
    }

    fn binding(&mut self, who: &Who, at: &Place) -> Result<Binding, ReplayError> {
        let Some(directory) = self.plan.objects[at.0].handle.clone() else {
            return Ok(Binding::Nothing);
        };
        if self.life(who, at.0)? == Life::Gone {
            return Ok(Binding::Nothing);
        }
        Ok(match self.ask(|share| share.lookup(who, &directory, &at.1))? {
            Ok(handle) => self.plan.known(&handle).map_or(Binding::Strange, Binding::To),
            Err(Failed::NoEntry | Failed::Gone) => Binding::Nothing,
            Err(_) => Binding::Strange,
        })
    }
}
