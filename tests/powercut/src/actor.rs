//! The local process of a load: it works on the share beside the server, now and then right after a
//! client, within the same tick of the clock.
//!
//! It takes claims as clients do, so that the order of effects on each name and object is known.

use std::time::Duration;

use steadfast_client::{Identity, Nfs3Client, RpcConnection, Time};

use crate::acl::Acl;
use crate::journal::Event;
use crate::local::{Local, Paths, Step, Sync, execute};
use crate::operation::{Action, Done, Name, Number, Outcome, Place, ROOT};
use crate::random::Random;
use crate::state::{Kind, Object, State};
use crate::workload::{DIRECTORIES_MAX, DIRECTORIES_MIN, Load, Mix, NAMES, Plan, of_kind};

/// What operations of the local process have as client.
pub(crate) const LOCAL: usize = usize::MAX;
/// The longest pause between two changes.
const PAUSE_US: u64 = 6000;
/// How long a look-up may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// How far into a file it writes, in bytes.
const REACH: u64 = 64 << 10;

impl Load {
    /// Changes the share until the load is over.
    pub(crate) fn act(&self, plan: &Plan) {
        let mut random = Random::of(plan.seed, 1 << 20);
        let connection = RpcConnection::connect(plan.server, PATIENCE);
        let mut client = connection.ok().map(|it| Nfs3Client::new(it, Identity::root()));
        while !self.is_over() {
            self.change_locally(client.as_mut(), &mut random);
            // Half of the changes come at once after another.
            if random.percent(50) {
                std::thread::sleep(Duration::from_micros(random.below(PAUSE_US)));
            }
        }
    }

    /// Makes one change, if there is one to be made. With a server the handle of what it makes is
    /// looked up, so that clients use it, too.
    pub(crate) fn change_locally(
        &self,
        client: Option<&mut Nfs3Client<RpcConnection>>,
        random: &mut Random,
    ) {
        const ATTEMPTS: u32 = 10;
        let (mix, share) = self.besides();
        let begun = (0..ATTEMPTS).find_map(|_| {
            let mut ledger = self.ledger();
            let local = choose(&ledger.state, ledger.recent, mix, random)?;
            let paths = Paths::of(&local, &ledger.state, share)?;
            let (number, ..) = ledger.begin(LOCAL, Action::Local(local))?;
            Some((number, local, paths))
        });
        let Some((number, local, paths)) = begun else { return };
        self.note(Event::Sent(number));
        let outcome = execute(&local, &paths);
        let mut done = Done::default();
        if outcome.is_ok() {
            self.note(Event::Acknowledged(number));
            let is_stable = local.sync != Sync::None || self.ledger().state.keeps_all;
            let directory = local.made().filter(|_| is_stable).and_then(|at| {
                Some((at, self.ledger().state.objects.get(&at.directory)?.handle.clone()?))
            });
            if let (Some((at, directory)), Some(client)) = (directory, client)
                && let Ok(found) = client.lookup(&directory, &at.name.bytes())
            {
                done.handle = Some(found.handle);
            }
        }
        let mut ledger = self.ledger();
        match outcome {
            Ok(()) => ledger.end(number, Vec::new(), &Outcome::Done(done)),
            Err(error) => ledger.surprises.push(format!("#{number} {local}: {error}")),
        }
    }
}

/// What to do next.
fn choose(state: &State, recent: Option<Action>, mix: Mix, random: &mut Random) -> Option<Local> {
    let is_file = |object: &Object| matches!(object.kind, Kind::File(_));
    let files = of_kind(state, is_file);
    let directories = of_kind(state, |object| object.kind == Kind::Directory);
    let followed = recent.filter(|_| random.percent(60)).and_then(|action| {
        let at = action.places().first().and_then(|place| state.names.get(place).copied());
        action.object().or(at)
    });
    let file = followed.filter(|number| files.contains(number)).or_else(|| random.choose(&files));
    let inode = followed.filter(|number| *number != ROOT && directories.contains(number)).or(file);
    let directory = random.choose(&directories).unwrap_or(ROOT);
    let at = Place { directory, name: Name(random.below(NAMES) as u16) };
    let free = Some(at).filter(|at| state.at(*at).is_none());
    let named = |is_wanted: fn(&Object) -> bool, random: &mut Random| {
        let names: Vec<Place> = (state.names.keys().copied())
            .filter(|place| state.at(*place).is_some_and(|(_, object)| is_wanted(object)))
            .collect();
        random.choose(&names)
    };
    let sync = match random.below(10) {
        0..6 => Sync::Own,
        6 | 7 => Sync::All,
        _ => Sync::None,
    };
    let mode = 0o400 + random.below(0o400) as u32;
    let bytes = 1 + random.below(20_000) as usize;
    let seed = random.next();
    let size_of = |number: Number| match &state.objects.get(&number)?.kind {
        Kind::File(content) => Some(content.size()),
        _ => None,
    };
    let step = match random.below(if mix.acls { 100 } else { 82 }) {
        0..12 => Step::Truncate { object: file?, size: random.below(REACH) },
        12..28 => {
            let (object, keeps_mtime) = (file?, random.percent(30));
            let offset = random.below(size_of(object)?.clamp(1, REACH));
            Step::Overwrite { object, offset, seed, bytes, keeps_mtime }
        }
        28..38 => Step::Replace { at: named(is_file, random)?, seed, bytes, mode },
        38..46 => Step::Create { at: free?, seed, bytes, mode },
        46..49 if directories.len() < DIRECTORIES_MAX => Step::Mkdir { at: free?, mode: 0o755 },
        49..55 => {
            let at = named(|object| object.kind != Kind::Directory, random)?;
            Step::Unlink { at }
        }
        55..58 if directories.len() > DIRECTORIES_MIN => {
            let at = named(|object| object.kind == Kind::Directory, random)?;
            let (number, _) = state.at(at)?;
            // Names that come and go unseen may be in one that is loose.
            let is_used = state.names.keys().chain(&state.loose).any(|it| it.directory == number);
            if is_used {
                return None;
            }
            Step::Rmdir { at }
        }
        58..66 => {
            let from = named(|object| object.kind != Kind::Directory, random)?;
            let to = Place { name: at.name, ..from };
            let to = if random.percent(70) { to } else { at };
            if state.at(to).is_some_and(|(_, object)| object.kind == Kind::Directory) {
                return None;
            }
            let is_moved = to.directory != from.directory;
            let sync = if is_moved && sync == Sync::Own { Sync::All } else { sync };
            return Some(Local { step: Step::Rename { from, to }, sync });
        }
        66..72 => Step::Chmod { object: inode?, mode },
        72..75 => {
            let (uid, gid) = (random.below(3000) as u32, random.below(3000) as u32);
            Step::Chown { object: inode?, uid, gid }
        }
        75..82 => {
            let mut time = || Time {
                seconds: 1_000_000_000 + random.below(700_000_000) as u32,
                nanoseconds: random.below(1_000_000_000) as u32,
            };
            Step::Utimes { object: file?, atime: time(), mtime: time() }
        }
        82..88 => {
            let acl = random.percent(70).then(|| Acl::random(random));
            Step::Acl { object: file?, acl }
        }
        88..100 => {
            let with = of_kind(state, |object| {
                object.kind == Kind::Directory && matches!(object.default_acl, Some(Some(_)))
            });
            match random.choose(&with).filter(|_| random.percent(60)) {
                Some(object) => Step::DefaultAcl { object, acl: None },
                None => Step::DefaultAcl { object: directory, acl: Some(Acl::random(random)) },
            }
        }
        _ => return Some(Local { step: Step::Nothing, sync: Sync::All }),
    };
    Some(Local { step, sync })
}
