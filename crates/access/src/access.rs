//! Who decides what clients may do, in a running server.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};
use serde::Serialize;
use steadfast_shares::{
    AccountKind, AccountName, Authority, Decision, Groups, NameOf, NumberOf, Question, RuleSet,
};
use steadfast_sys::durable_file;

use crate::book::{Asking, BOOK_BYTES_MAX, Kept, Listener, LookUp, NameBook, NameStatistics};
use crate::cache::{Cache, CacheStatistics};
use crate::clock::{Clock, SystemClock};
use crate::facts::Subject;
use crate::service::NameService;
use crate::settings::{AccessSettings, Bounds};
use crate::system::SystemNames;

/// How often what is known is written to the state file, if it has changed, and what is not used
/// let go.
const SAVE_INTERVAL: std::time::Duration = std::time::Duration::from_secs(180);
const AGE_INTERVAL: std::time::Duration = std::time::Duration::from_secs(30);

/// How old the file's ages may become while nothing changes: much less than answers are used.
const CONFIRM_INTERVAL: std::time::Duration = std::time::Duration::from_secs(1800);

/// Decides by rules and by what is known about names, and remembers what was decided.
///
/// All that takes time is done by threads of its own, which [`Access::start`] starts and
/// [`Access::stop`] ends.
pub struct Access {
    book: Arc<NameBook>,
    cache: Cache,
    clock: Arc<dyn Clock>,
    beginning_ms: u64,
    state_file: Option<PathBuf>,
    /// One writer at a time.
    saving: Mutex<()>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    keeper: Arc<Keeper>,
}

#[derive(Default)]
struct Keeper {
    is_stopping: Mutex<bool>,
    bell: Condvar,
}

/// What was decided, and what is known about names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AccessStatistics {
    /// Decisions.
    pub decisions: CacheStatistics,
    /// Names.
    pub names: NameStatistics,
}

impl Access {
    /// Starts name services as the settings say, with what was known when the server ended.
    /// A state file that is damaged is reported and not used.
    ///
    /// # Errors
    /// When there can be no more threads or descriptors.
    pub fn start(settings: &AccessSettings) -> io::Result<Arc<Self>> {
        let service = Arc::new(SystemNames::start(settings)?);
        let clock = Arc::new(SystemClock::default());
        let access = Self::with_service(
            settings.bounds.clone(),
            service,
            clock,
            settings.state_file.clone(),
        );
        access.restore();
        // Each is there before the next is started: if that fails, all are ended with this value.
        let start = |name: &str, run: Box<dyn FnOnce() + Send>| {
            let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
            access.threads.lock().push(thread);
            io::Result::Ok(())
        };
        let book = Arc::clone(&access.book);
        start("names", Box::new(move || book.run()))?;
        let (weak, keeper) = (Arc::downgrade(&access), Arc::clone(&access.keeper));
        start("names-keeper", Box::new(move || keeper.run(&weak)))?;
        Ok(access)
    }

    /// With any service and clock, and without threads: who has it calls [`NameBook::turn`].
    pub fn with_service(
        bounds: Bounds,
        service: Arc<dyn NameService>,
        clock: Arc<dyn Clock>,
        state_file: Option<PathBuf>,
    ) -> Arc<Self> {
        Arc::new(Self {
            cache: Cache::new(bounds.entries_max),
            book: NameBook::new(bounds, service, Arc::clone(&clock)),
            beginning_ms: clock.monotonic_ms(),
            clock,
            state_file,
            saving: Mutex::new(()),
            threads: Mutex::default(),
            keeper: Arc::default(),
        })
    }

    /// What is known about names.
    pub fn book(&self) -> &NameBook {
        &self.book
    }

    /// See [`NameBook::change_rules`]: to be called whenever shares are published.
    pub fn change_rules(
        &self,
        added: impl IntoIterator<Item = Arc<RuleSet>>,
        removed: impl IntoIterator<Item = Arc<RuleSet>>,
    ) {
        self.book.change_rules(added, removed);
    }

    /// See [`NameBook::on_news`].
    pub fn on_news(&self, listener: Listener) {
        self.book.on_news(listener);
    }

    /// What is known about a name.
    pub fn look_up(&self, subject: &Subject) -> Option<LookUp> {
        self.book.look_up(subject)
    }

    /// What the names of rules say about a client, and by what look-ups.
    pub fn explain(&self, rules: &RuleSet, client: IpAddr) -> Vec<Asking> {
        self.book.explain(rules, client)
    }

    /// What was decided, and what is known. Goes through all names: not for every second.
    pub fn statistics(&self) -> AccessStatistics {
        AccessStatistics { decisions: self.cache.statistics(), names: self.book.statistics() }
    }

    /// Gives back the memory of that part of the remembered decisions, from 0 to 1; they can be
    /// made again without a name service. What is known about names stays. Returns how many
    /// decisions were forgotten.
    pub fn reclaim(&self, fraction: f64) -> usize {
        self.cache.reclaim(fraction)
    }

    /// Lets go what was not used for long. Called by the threads of [`Access::start`].
    pub fn age(&self) {
        let elapsed_ms = self.clock.monotonic_ms().saturating_sub(self.beginning_ms);
        self.cache.age(u32::try_from(elapsed_ms / 1000).unwrap_or(u32::MAX));
    }

    /// Writes what is known to the state file, if anything has changed or was confirmed. On return
    /// it is on the disk.
    ///
    /// # Errors
    /// When it cannot be written; what was there before is then still there.
    pub fn save(&self) -> io::Result<()> {
        let Some(path) = &self.state_file else { return Ok(()) };
        let _alone = self.saving.lock();
        if !self.book.is_changed() && !self.book.is_confirmed() {
            return Ok(());
        }
        let kept = self.book.kept();
        durable_file::replace(path, &kept.to_bytes()).inspect_err(|_| self.book.note_unsaved())
    }

    /// Takes in what the state file has. Called by [`Access::start`]. Returns how many names that
    /// were.
    pub fn restore(&self) -> usize {
        let Some(path) = &self.state_file else { return 0 };
        let kept = match read(path) {
            Ok(Some(bytes)) => Kept::of_bytes(&bytes).map_err(|error| error.to_string()),
            Ok(None) => return 0,
            Err(error) => Err(error.to_string()),
        };
        match kept {
            Ok(kept) => self.book.restore(kept),
            Err(what) => {
                tracing::warn!(
                    "{} is not used, all names are looked up again: {what}",
                    path.display()
                );
                0
            }
        }
    }

    /// Ends the threads, and saves what is known. What was asked and is not answered is given up.
    pub fn stop(&self) {
        self.book.stop();
        *self.keeper.is_stopping.lock() = true;
        self.keeper.bell.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // The keeper itself may hold the last reference.
            if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
                tracing::error!("a thread of the name services ended by a panic");
            }
        }
        self.save_or_tell();
    }

    fn save_or_tell(&self) {
        if let Err(error) = self.save()
            && let Some(path) = &self.state_file
        {
            tracing::warn!("what is known about names is not in {}: {error}", path.display());
        }
    }
}

impl Keeper {
    fn run(&self, access: &std::sync::Weak<Access>) {
        let mut since_save = std::time::Duration::ZERO;
        let mut is_stopping = self.is_stopping.lock();
        while !*is_stopping {
            self.bell.wait_for(&mut is_stopping, AGE_INTERVAL);
            if *is_stopping {
                return;
            }
            parking_lot::MutexGuard::unlocked(&mut is_stopping, || {
                let Some(access) = access.upgrade() else { return };
                access.age();
                since_save += AGE_INTERVAL;
                let is_due = since_save >= SAVE_INTERVAL && access.book.is_changed();
                if is_due || since_save >= CONFIRM_INTERVAL {
                    since_save = std::time::Duration::ZERO;
                    access.save_or_tell();
                }
            });
        }
    }
}

impl Drop for Access {
    fn drop(&mut self) {
        if !self.threads.lock().is_empty() {
            self.stop();
        }
    }
}

impl Authority for Access {
    fn decide(&self, rules: &Arc<RuleSet>, question: &Question) -> Decision {
        let question = Question { client: question.client.to_canonical(), ..*question };
        // Addresses alone are found as quickly as a remembered decision, and take no memory.
        if !rules.has_names() {
            return rules.decide(&question, &steadfast_shares::NoNames);
        }
        // Before what is known is looked at: a change meanwhile makes the memory void.
        let epoch = self.book.epoch();
        if let Some(decision) = self.cache.find(rules, &question, epoch) {
            return decision;
        }
        let names = self.book.at_present();
        let decision = rules.decide(&question, &names);
        if decision == Decision::Pending {
            self.cache.note_pending();
        } else if !names.is_doubtful() {
            self.cache.remember(rules, &question, decision, epoch);
        }
        decision
    }

    fn epoch(&self) -> u64 {
        self.book.epoch()
    }

    fn groups(&self, uid: u32) -> Groups {
        self.book.at_present().groups(uid)
    }

    fn number_of(&self, kind: AccountKind, name: &AccountName) -> NumberOf {
        self.book.at_present().number_of(kind, name)
    }

    fn name_of(&self, kind: AccountKind, number: u32) -> NameOf {
        self.book.at_present().name_of(kind, number)
    }
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").field("book", &self.book).finish_non_exhaustive()
    }
}

/// `None` if there is no file.
fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    use std::io::Read;

    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(BOOK_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}
