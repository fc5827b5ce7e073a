//! A client of NFSv4: one life after the other, each with a directory of its own.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use steadfast_client::nfs4::{NfsStat4, Settings4, StateId4, patiently4};
use steadfast_client::{FileHandle, NfsStat3};
use steadfast_wire::nfs4::{Attribute4, Bitmap4, Create4Args, CreateType4, Op4};

use super::deeds::{DeedNumber, Life, LifeNumber, What};
use super::session::{self, PATIENCE, Sent, Session};
use super::steps::{File, Opened, Step, Told, made};
use crate::journal::Event;
use crate::operation::{Action, Done, Name, Number, Outcome, Place, ROOT};
use crate::random::Random;
use crate::workload::{Load, Plan};

/// What operations of these clients have as client, beside their number.
const FIRST: usize = 1 << 20;
/// Files of a life at one time.
const FILES: usize = 6;
/// Requests in flight.
const IN_FLIGHT: u64 = 3;
/// Lives of one client at the most; the last goes on.
const LIVES_MAX: u32 = 24;
/// How long a client waits that is told to try later.
const LATER: Duration = Duration::from_millis(2);
/// The mode of its directories.
const MODE: u32 = 0o755;

/// A request that has no reply.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) place: usize,
    pub(crate) step: Step,
    /// In the ledger.
    pub(crate) number: Option<Number>,
    pub(crate) deed: Option<DeedNumber>,
}

/// One life of a client.
#[derive(Debug)]
pub(crate) struct Holder {
    client: usize,
    pub(crate) life: LifeNumber,
    pub(crate) session: Session,
    /// Its own.
    directory: (Number, FileHandle),
    files: [Option<File>; FILES],
    pub(crate) waiting: Vec<(Sent, Waiting)>,
}

/// Has a client live until the load is over. Returns the one that was there then.
pub(crate) fn hold(
    load: &Load,
    plan: &Plan,
    number: usize,
    share: &Path,
) -> (Option<Holder>, Result<()>) {
    let mut random = Random::of(plan.seed, (1 << 21) + number as u64);
    let mut before = None;
    let mut lives = 0;
    while !load.is_over() {
        lives += 1;
        let owner = format!("holder {} {number} {lives}", plan.seed).into_bytes();
        let begun = Holder::begin(load, plan.server, (number, before.take(), owner), share);
        let mut holder = match begun {
            Ok(holder) => holder,
            Err(error) => return (None, Err(error)),
        };
        let turns = match random.below(100) {
            _ if lives >= LIVES_MAX => u64::MAX,
            // It never opens anything.
            0..12 => 0,
            _ => 3 + random.below(16),
        };
        let mut outcome = holder.take_turns(load, turns, &mut random);
        let is_over = outcome.is_err() || load.is_over();
        let end = random.below(100);
        if !is_over && end < 35 {
            outcome = holder.close_all(load, &mut random);
        }
        if is_over || outcome.is_err() {
            return (Some(holder), outcome);
        }
        match end {
            0..35 => {
                if let Err(error) = holder.leave(load) {
                    return (None, Err(error));
                }
            }
            // It goes silent.
            35..60 => {}
            _ => before = Some(holder.life),
        }
    }
    (None, Ok(()))
}

impl Holder {
    /// A life begins; `before` is that of the same owner before it.
    fn begin(
        load: &Load,
        server: SocketAddr,
        (client, before, owner): (usize, Option<LifeNumber>, Vec<u8>),
        share: &Path,
    ) -> Result<Self> {
        let (life, deed, owner, verifier) = {
            let deeds = &mut load.ledger().deeds;
            let same = before.and_then(|before| deeds.life(before));
            let owner = same.map_or(owner, |same| same.owner.clone());
            let verifier = u64::from(before.map_or(0, |before| before + 1)).to_be_bytes();
            let life = Life { owner: owner.clone(), verifier, before, call: Vec::new() };
            let (life, deed) = deeds.begin(life);
            (life, deed, owner, verifier)
        };
        load.note(Event::DeedSent(deed));
        let mut known = patiently4(PATIENCE, || session::client(server, &owner, verifier))?;
        load.note(Event::DeedAnswered(deed));
        load.ledger().deeds.answer(deed, true);
        known.complete_reclaim()?;
        let path = share.as_os_str().as_encoded_bytes();
        let root = patiently4(PATIENCE, || known.lookup_path(path))?;
        let mut session = Session::of(known);
        let client = FIRST + client;
        let directory = make_directory(load, client, life, &mut session, &root)?;
        let files = [const { None }; FILES];
        Ok(Self { client, life, session, directory, files, waiting: Vec::new() })
    }

    /// Does something so many times, or until the load is over.
    pub(crate) fn take_turns(
        &mut self,
        load: &Load,
        turns: u64,
        random: &mut Random,
    ) -> Result<()> {
        for _ in 0..turns {
            if load.is_over() {
                break;
            }
            self.turn(load, random)?;
        }
        Ok(())
    }

    /// Some requests at once, each for another file.
    pub(crate) fn turn(&mut self, load: &Load, random: &mut Random) -> Result<()> {
        for _ in 0..=random.below(IN_FLIGHT) {
            let place = random.below(FILES as u64) as usize;
            if self.waiting.iter().any(|(_, waiting)| waiting.place == place) {
                continue;
            }
            let file = self.files.get(place).and_then(Option::as_ref);
            let step = Step::choose(place, file, random);
            self.begin_step(load, place, step)?;
        }
        self.end_steps(load)
    }

    /// Sends a step, unless something is in its way.
    fn begin_step(&mut self, load: &Load, place: usize, step: Step) -> Result<()> {
        let file = self.files.get(place).and_then(Option::as_ref);
        let (number, deed) = {
            let mut ledger = load.ledger();
            let number = match step.action(self.directory.0, file) {
                None => None,
                Some(action) => match ledger.reserve(self.client, action) {
                    None => return Ok(()),
                    number => number,
                },
            };
            let what = step.what(file, number);
            (number, what.map(|what| ledger.deeds.send(self.life, what)))
        };
        if let Some(number) = number {
            load.note(Event::Sent(number));
        }
        if let Some(deed) = deed {
            load.note(Event::DeedSent(deed));
        }
        self.send(Waiting { place, step, number, deed })
    }

    fn send(&mut self, waiting: Waiting) -> Result<()> {
        let Waiting { place, step, .. } = &waiting;
        let file = self.files.get(*place).and_then(Option::as_ref);
        let (directory, file) = (&self.directory.1, (*place, file));
        let sent = self.session.prepare(|compound| step.build(compound, directory, file))?;
        // What cannot be sent may have been sent: it waits for a reply all the same.
        let outcome = self.session.send(&sent);
        self.waiting.push((sent, waiting));
        outcome
    }

    /// Makes a request anew that was put off.
    pub(crate) fn try_again(&mut self, load: &Load, waiting: Waiting) -> Result<()> {
        std::thread::sleep(LATER);
        self.send(waiting)?;
        self.end_steps(load)
    }

    /// Takes the replies to all that was sent.
    fn end_steps(&mut self, load: &Load) -> Result<()> {
        let begun = Instant::now();
        while !self.waiting.is_empty() {
            let reply = self.session.receive()?;
            let Some(at) = self.waiting.iter().position(|(sent, _)| sent.xid == reply.xid) else {
                bail!("a reply to a request that was not sent: xid {}", reply.xid);
            };
            let (sent, waiting) = self.waiting.swap_remove(at);
            let results = self.session.take(sent, &reply)?;
            let step = waiting.step;
            let told = step.read(&results).with_context(|| format!("{step:?}"))?;
            if told.as_ref().is_err_and(|status| *status == NfsStat4::Delay) {
                if begun.elapsed() > PATIENCE {
                    bail!("{step:?} is put off again and again");
                }
                std::thread::sleep(LATER);
                self.send(waiting)?;
                continue;
            }
            self.settle(load, &waiting, told)?;
        }
        Ok(())
    }

    /// Something was answered.
    pub(crate) fn settle(
        &mut self,
        load: &Load,
        waiting: &Waiting,
        told: Result<Told, NfsStat4>,
    ) -> Result<()> {
        let Waiting { place, step, number, deed } = *waiting;
        let outcome = match &told {
            Ok(told) => Outcome::Done(told.done.clone()),
            Err(NfsStat4::Exist) => Outcome::Failed(NfsStat3::Exist),
            Err(NfsStat4::NoEnt) => Outcome::Failed(NfsStat3::NoEnt),
            Err(status) => bail!("{step:?} failed with {status:?}"),
        };
        if let Some(number) = number {
            load.note(Event::Acknowledged(number));
            load.ledger().end(number, Vec::new(), &outcome);
        }
        if let Some(deed) = deed {
            load.note(Event::DeedAnswered(deed));
            load.ledger().deeds.answer(deed, told.is_ok());
        }
        if let Ok(told) = told {
            self.follow(place, step, number, &told)?;
        }
        Ok(())
    }

    /// What a file is after a step that was done.
    fn follow(
        &mut self,
        place: usize,
        step: Step,
        number: Option<Number>,
        told: &Told,
    ) -> Result<()> {
        let opened = |modes| {
            let (lock, locked) = (None, std::collections::BTreeSet::new());
            told.stateid.map(|stateid| Opened { stateid, modes, lock, locked })
        };
        let slot = self.files.get_mut(place).context("a place for files")?;
        if let Step::Create { name, modes, .. } = step {
            let object = number.context("a file that nothing has made")?;
            let handle = told.done.handle.clone().context("a file without a handle")?;
            *slot = Some(File { name, object, handle, open: opened(modes) });
            return Ok(());
        }
        let file = slot.as_mut().context("a file")?;
        let open = file.open.as_mut();
        match (step, open) {
            (Step::Open { modes }, _) => file.open = opened(modes),
            (Step::Close, _) => file.open = None,
            (Step::Lock { range }, Some(open)) => {
                open.lock = told.stateid;
                open.locked.insert(range);
            }
            (Step::Unlock { range }, Some(open)) => {
                open.lock = told.stateid;
                open.locked.remove(&range);
            }
            (Step::Rename { to }, _) => file.name = to,
            (Step::Remove, _) => *slot = None,
            _ => {}
        }
        Ok(())
    }

    /// What was at a place is not known any more.
    pub(crate) fn forget(&mut self, place: usize) {
        if let Some(slot) = self.files.get_mut(place) {
            *slot = None;
        }
    }

    /// The stateids of its opens, and of the locks that it has, each with the file.
    pub(crate) fn stateids(&self) -> Vec<(Number, StateId4)> {
        let open = |file: &File| file.open.clone().map(|open| (file.object, open));
        let opens = self.files.iter().flatten().filter_map(open);
        let stateids = opens.flat_map(|(object, open)| {
            let locks = open.lock.filter(|_| !open.locked.is_empty());
            [Some(open.stateid), locks].into_iter().flatten().map(move |it| (object, it))
        });
        stateids.collect()
    }

    /// Unlocks and closes everything.
    fn close_all(&mut self, load: &Load, random: &mut Random) -> Result<()> {
        for place in 0..FILES {
            let file = self.files.get(place).and_then(Option::as_ref);
            let Some(open) = file.and_then(|file| file.open.as_ref()) else { continue };
            // CLOSE frees what is locked, too.
            let locked: Vec<u8> = open.locked.iter().copied().collect();
            if random.percent(50) {
                for range in locked {
                    self.begin_step(load, place, Step::Unlock { range })?;
                    self.end_steps(load)?;
                }
            }
            self.begin_step(load, place, Step::Close)?;
            self.end_steps(load)?;
        }
        Ok(())
    }

    /// Leaves, with everything closed.
    fn leave(self, load: &Load) -> Result<()> {
        let deed = load.ledger().deeds.send(self.life, What::End);
        load.note(Event::DeedSent(deed));
        self.session.destroy()?;
        load.note(Event::DeedAnswered(deed));
        load.ledger().deeds.answer(deed, true);
        Ok(())
    }
}

/// Makes the directory of a life.
fn make_directory(
    load: &Load,
    client: usize,
    life: LifeNumber,
    session: &mut Session,
    root: &FileHandle,
) -> Result<(Number, FileHandle)> {
    let at = Place { directory: ROOT, name: Name::of_holder(life) };
    let action = Action::Mkdir { at, mode: MODE };
    let begun = Instant::now();
    let number = loop {
        let reserved = load.ledger().reserve(client, action);
        if let Some(number) = reserved {
            break number;
        }
        if begun.elapsed() > PATIENCE {
            bail!("something is in the way of a directory");
        }
        std::thread::sleep(LATER);
    };
    load.note(Event::Sent(number));
    let name = at.name.bytes();
    let settings = Settings4::mode(MODE).encode();
    let wanted = Bitmap4::of(&[Attribute4::FileId, Attribute4::Mode]);
    let answered = loop {
        let answered = session.ask(|compound| {
            let (objtype, createattrs) = (CreateType4::Directory, settings.fattr());
            let create = Create4Args { objtype, objname: &name, createattrs };
            compound.put(root).op(Op4::Create, &create).handle().attributes(wanted)
        })?;
        let told = session::read(&answered.results, |reply| {
            reply.done(Op4::PutFh)?;
            reply.create()?;
            Ok((reply.handle()?, reply.attributes()?))
        })?;
        match told {
            Ok((handle, told)) => break (handle, made(&told, MODE), answered.call),
            Err(NfsStat4::Delay) if begun.elapsed() < PATIENCE => std::thread::sleep(LATER),
            Err(status) => bail!("a directory cannot be made: {status:?}"),
        }
    };
    let (handle, attributes, call) = answered;
    load.note(Event::Acknowledged(number));
    let done = Done { handle: Some(handle.clone()), attributes, ..Done::default() };
    let mut ledger = load.ledger();
    ledger.end(number, Vec::new(), &Outcome::Done(done));
    ledger.deeds.keep_call(life, &call);
    Ok((number, handle))
}
