//! Files and directories that the kernel knows, with what is known of each.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use steadfast_client::{Attributes, FileHandle, FileType, Identity, Time, Wcc};

use crate::attribute_cache::{AttributeCache, Version};
use crate::options::CacheTimes;
use crate::versions::Versions;
use crate::write_back::Data;

/// The number of the root, by FUSE's rules.
pub(crate) const ROOT: u64 = 1;
/// Names that are remembered of a directory. Beyond that they are forgotten and looked up again.
const NAMES_MAX: usize = 65_536;
/// A longer path is told without its beginning.
const PATH_BYTES_MAX: usize = 4000;
/// Replaced handles that are remembered: of replies that are on their way only.
const REPLACED_MAX: usize = 65_536;
/// Users whose rights on an object are remembered.
const GRANTS_MAX: usize = 8;
/// Numbers of our own, where the server's number of a file is another file's already.
const OWN_NUMBERS: u64 = 1 << 63;

/// A file or directory.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) number: u64,
    /// A recovery that has made the object again has given it another one.
    handle: Mutex<Arc<FileHandle>>,
    pub(crate) file_type: FileType,
    state: Mutex<State>,
    /// Takes numbers of files whose pages the kernel is to drop.
    stale: SyncSender<u64>,
    /// Its data that is not on the server yet.
    pub(crate) data: Data,
    /// The directory and the name by which it was found last, for people to read.
    place: Mutex<Option<(u64, Vec<u8>)>>,
}

#[derive(Debug)]
struct State {
    attributes: AttributeCache,
    /// Which of them the kernel's pages, and our names, are of.
    versions: Versions,
    /// The kernel's pages are those of that version.
    is_current: bool,
    /// The kernel's pages may have what the server refused, or has not answered.
    is_doubtful: bool,
    /// The server does not know the handle any more.
    is_dead: bool,
    /// How often the names were forgotten, and when the call was sent that told why.
    forgotten: u64,
    forgotten_by: Option<Instant>,
    /// When somebody here wrote last.
    written: Option<Time>,
    opens: u32,
    hidden: Option<Hidden>,
    grants: Vec<Grant>,
    names: HashMap<Vec<u8>, u64>,
}

#[derive(Debug)]
struct Grant {
    identity: Identity,
    /// The bits that were asked for, and those that were granted.
    asked: u32,
    granted: u32,
    ctime: Time,
    when: Instant,
}

/// Where a file is that was removed while it was open.
#[derive(Clone, Debug)]
pub(crate) struct Hidden {
    pub(crate) directory: Arc<Node>,
    pub(crate) name: Vec<u8>,
    /// The number of the file itself.
    pub(crate) file: u64,
    pub(crate) identity: Identity,
}

/// The moment when attributes were asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asking {
    pub(crate) sent: Instant,
    /// How many changes of ours had ended, if none was in flight: else a difference may be ours.
    changed: Option<u64>,
    /// How often names had been forgotten.
    forgotten: u64,
}

/// A change of ours that is in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Changing {
    number: u64,
    sent: Instant,
}

impl Node {
    fn new(
        number: u64,
        handle: FileHandle,
        attributes: &Attributes,
        times: &CacheTimes,
        stale: SyncSender<u64>,
    ) -> Self {
        let cache = AttributeCache::new(attributes.clone(), Instant::now(), times);
        let state = State {
            versions: Versions::new(cache.version()),
            attributes: cache,
            is_current: false,
            is_doubtful: false,
            is_dead: false,
            forgotten: 0,
            forgotten_by: None,
            written: None,
            opens: 0,
            hidden: None,
            grants: Vec::new(),
            names: HashMap::new(),
        };
        let file_type = attributes.file_type;
        Self {
            number,
            handle: Mutex::new(Arc::new(handle)),
            file_type,
            state: Mutex::new(state),
            stale,
            data: Data::default(),
            place: Mutex::default(),
        }
    }

    /// Notes by which name it was found.
    pub(crate) fn note_name(&self, parent: u64, name: &[u8]) {
        *self.place.lock() = Some((parent, name.to_vec()));
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.file_type == FileType::Directory
    }

    /// The attributes as they are known, with the size that held data makes; and with the time of the
    /// last write here, while the server has not got it.
    pub(crate) fn attributes(&self) -> Attributes {
        let (mut attributes, written) = {
            let state = self.state.lock();
            (state.attributes.attributes().clone(), state.written)
        };
        if let Some(end) = self.data.end() {
            attributes.size = attributes.size.max(end);
        }
        if let Some(written) = written
            && self.data.is_unsent()
        {
            attributes.mtime = attributes.mtime.max(written);
            attributes.ctime = attributes.ctime.max(written);
        }
        attributes
    }

    /// Somebody here has written.
    pub(crate) fn note_written(&self) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = u32::try_from(since.as_secs()).unwrap_or(u32::MAX);
        self.state.lock().written = Some(Time { seconds, nanoseconds: since.subsec_nanos() });
    }

    pub(crate) fn is_fresh(&self) -> bool {
        self.state.lock().attributes.is_fresh(Instant::now())
    }

    pub(crate) fn expire(&self) {
        self.state.lock().attributes.expire();
    }

    /// The server does not know the handle any more (ESTALE): whoever looks up a name of it is to ask
    /// the server. Any answer for the handle revives it.
    pub(crate) fn die(&self) {
        let mut state = self.state.lock();
        state.attributes.expire();
        state.is_dead = true;
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.state.lock().is_dead
    }

    /// What the server knows the object by.
    pub(crate) fn handle(&self) -> Arc<FileHandle> {
        Arc::clone(&self.handle.lock())
    }

    /// The server may have another state of it than is known.
    fn doubt(&self) {
        let mut state = self.state.lock();
        state.is_dead = false;
        state.attributes.expire();
        state.forget_names();
    }

    /// To be called before attributes are asked for.
    pub(crate) fn ask(&self) -> Asking {
        let state = self.state.lock();
        let (changed, forgotten) = (state.versions.quiet(), state.forgotten);
        Asking { sent: Instant::now(), changed, forgotten }
    }

    /// Takes attributes from a reply. True if they show a change that somebody else made.
    pub(crate) fn learn(
        &self,
        attributes: Option<&Attributes>,
        asking: Asking,
        times: &CacheTimes,
    ) -> bool {
        let Some(attributes) = attributes else { return false };
        let mut state = self.state.lock();
        state.is_dead = false;
        if state.attributes.is_overtaken(attributes, asking.sent) {
            return false;
        }
        let is_quiet = state.is_quiet(asking);
        let is_foreign = state.versions.see(Version::of(attributes), is_quiet);
        let is_doubtful = is_quiet && std::mem::take(&mut state.is_doubtful);
        let now = Instant::now();
        state.attributes.update(attributes.clone(), is_foreign, asking.sent, now, times);
        if is_foreign || is_doubtful {
            self.outdate(&mut state);
            state.forgotten_by = Some(asking.sent);
        }
        is_foreign
    }

    /// What the kernel and we have kept of it is not of the known version. Pages of a file that is not
    /// open are dropped when it is opened.
    fn outdate(&self, state: &mut State) {
        tracing::debug!(number = self.number, "what was kept is not of the server's version");
        state.is_current = false;
        state.forget_names();
        if state.opens > 0 && self.file_type == FileType::Regular {
            // If too many wait, the pages are dropped at the next opening.
            let _ = self.stale.try_send(self.number);
        }
    }

    /// Has the kernel drop its pages.
    pub(crate) fn drop_pages(&self) {
        self.outdate(&mut self.state.lock());
    }

    /// Begins a change of ours.
    pub(crate) fn begin_change(&self) -> Changing {
        let number = self.state.lock().versions.begin();
        Changing { number, sent: Instant::now() }
    }

    /// Ends it, with what the reply tells of it. True if it shows somebody else's change too.
    pub(crate) fn end_change(
        &self,
        changing: Changing,
        wcc: Option<&Wcc>,
        times: &CacheTimes,
    ) -> bool {
        let mut state = self.state.lock();
        let Some(Wcc { before, after: Some(after) }) = wcc else {
            // Refused, or not answered, or without attributes: what was changed is to be asked.
            let is_foreign = state.versions.end_unknown(changing.number);
            state.attributes.expire();
            state.is_doubtful = true;
            if is_foreign {
                self.outdate(&mut state);
            }
            return is_foreign;
        };
        let after_version = Version::of(after);
        let is_foreign = match before {
            Some(before) => {
                state.versions.end(changing.number, Version::before(before), after_version)
            }
            None => state.versions.end_with(changing.number, after_version),
        };
        state.take(after, is_foreign, changing, times);
        if is_foreign {
            self.outdate(&mut state);
        } else if before.is_none() {
            // Some servers tell no version before a WRITE. The pages are dropped at the next opening.
            state.is_current = false;
            state.forget_names();
        }
        is_foreign
    }

    /// Ends a change of attributes whose reply has no WCC.
    pub(crate) fn settle_change(
        &self,
        changing: Changing,
        after: Option<&Attributes>,
        times: &CacheTimes,
    ) {
        let Some(after) = after else {
            self.end_change(changing, None, times);
            return;
        };
        let mut state = self.state.lock();
        let version = Version::of(after);
        let is_ours = version.has_content_of(&state.versions.base());
        let mut is_foreign = state.versions.end_with(changing.number, version);
        is_foreign |= !is_ours && state.versions.quiet().is_some();
        state.take(after, is_foreign, changing, times);
        if is_foreign {
            self.outdate(&mut state);
        }
    }

    /// Takes attributes that came beside another answer. If they differ from the known ones, the
    /// server is asked the next time, so that the difference is seen for what it is.
    pub(crate) fn glance(&self, attributes: &Attributes, sent: Instant, times: &CacheTimes) {
        let mut state = self.state.lock();
        state.is_dead = false;
        if Version::of(attributes) == state.attributes.version() {
            let now = Instant::now();
            state.attributes.update(attributes.clone(), false, sent, now, times);
        } else {
            state.attributes.expire();
        }
    }

    /// Begins to be open. True if the kernel's pages are those of the known attributes.
    pub(crate) fn open(&self) -> bool {
        let mut state = self.state.lock();
        state.opens += 1;
        std::mem::replace(&mut state.is_current, true)
    }

    /// Ends one opening; the last one of a hidden file tells where it is.
    pub(crate) fn close(&self) -> Option<Hidden> {
        let mut state = self.state.lock();
        state.opens = state.opens.saturating_sub(1);
        if state.opens == 0 { state.hidden.take() } else { None }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state.lock().opens > 0
    }

    pub(crate) fn is_hidden(&self) -> bool {
        self.state.lock().hidden.is_some()
    }

    /// Notes where a removed file is until it is closed; false if nobody has it open any more.
    pub(crate) fn hide(&self, hidden: Hidden) -> bool {
        let mut state = self.state.lock();
        if state.opens > 0 {
            state.hidden = Some(hidden);
        }
        state.opens > 0
    }

    /// Which of these rights somebody has, as far as that is known.
    pub(crate) fn granted(&self, identity: &Identity, bits: u32) -> Option<u32> {
        let state = self.state.lock();
        let now = Instant::now();
        if !state.attributes.is_fresh(now) {
            return None;
        }
        let ctime = state.attributes.attributes().ctime;
        let grant = state.grants.iter().find(|grant| grant.identity == *identity)?;
        // A change of the directories above, or of groups at the server, does not show in ctime.
        let is_valid = grant.ctime == ctime
            && grant.asked & bits == bits
            && now.saturating_duration_since(grant.when) < Duration::from_secs(60);
        is_valid.then_some(grant.granted & bits)
    }

    pub(crate) fn grant(&self, identity: &Identity, asked: u32, granted: u32) {
        let mut state = self.state.lock();
        let ctime = state.attributes.attributes().ctime;
        if let Some(known) = state.grants.iter_mut().find(|known| known.identity == *identity)
            && known.ctime == ctime
        {
            known.granted = known.granted & !asked | granted;
            known.asked |= asked;
            return;
        }
        state.grants.retain(|grant| grant.identity != *identity);
        if state.grants.len() >= GRANTS_MAX {
            state.grants.remove(0);
        }
        let identity = identity.clone();
        state.grants.push(Grant { identity, asked, granted, ctime, when: Instant::now() });
    }

    /// The number of what has this name in a directory, while the directory is known not to have
    /// changed.
    pub(crate) fn name(&self, name: &[u8]) -> Option<u64> {
        let state = self.state.lock();
        state.attributes.is_fresh(Instant::now()).then(|| state.names.get(name).copied())?
    }

    /// Remembers a name that a reply told, unless the directory has changed since it was asked for.
    pub(crate) fn remember(&self, name: &[u8], number: u64, asking: Asking) {
        let mut state = self.state.lock();
        if state.is_quiet(asking) {
            state.insert_name(name, number, asking);
        }
    }

    /// Remembers a name that a change of ours has made, unless somebody else has changed the directory
    /// since it was sent.
    pub(crate) fn remember_made(&self, name: &[u8], number: u64, asking: Asking) {
        self.state.lock().insert_name(name, number, asking);
    }

    /// Whether the name was known when the directory was last looked at.
    pub(crate) fn has_name(&self, name: &[u8]) -> bool {
        self.state.lock().names.contains_key(name)
    }

    pub(crate) fn forget_name(&self, name: &[u8]) {
        self.state.lock().names.remove(name);
    }
}

impl State {
    /// Whether no change of ours has begun or ended since.
    fn is_quiet(&self, asking: Asking) -> bool {
        asking.changed.is_some() && asking.changed == self.versions.quiet()
    }

    /// Takes the attributes after a change of ours.
    fn take(
        &mut self,
        after: &Attributes,
        is_foreign: bool,
        changing: Changing,
        times: &CacheTimes,
    ) {
        self.is_dead = false;
        if !self.attributes.is_overtaken(after, changing.sent) {
            let now = Instant::now();
            self.attributes.update(after.clone(), is_foreign, changing.sent, now, times);
        }
    }

    fn forget_names(&mut self) {
        self.names.clear();
        self.forgotten += 1;
        self.forgotten_by = None;
    }

    /// Not what may be older than the change for which names were forgotten; the reply that told of
    /// the change is not.
    fn insert_name(&mut self, name: &[u8], number: u64, asking: Asking) {
        if self.forgotten != asking.forgotten && self.forgotten_by != Some(asking.sent) {
            return;
        }
        if self.names.len() >= NAMES_MAX {
            self.names.clear();
        }
        self.names.insert(name.to_vec(), number);
    }
}

/// The nodes by number and by handle. What the kernel has forgotten is forgotten here, but for files
/// whose data is still to be written.
#[derive(Debug)]
pub(crate) struct Nodes {
    table: Mutex<Table>,
    times: CacheTimes,
    stale: SyncSender<u64>,
}

#[derive(Debug, Default)]
struct Table {
    by_number: HashMap<u64, (Arc<Node>, u64)>,
    by_handle: HashMap<FileHandle, u64>,
    /// Handles that recoveries have replaced: a reply from before may still tell one.
    replaced: HashMap<FileHandle, FileHandle>,
    own_numbers: u64,
}

impl Nodes {
    /// With what takes the numbers of files whose pages the kernel is to drop.
    pub(crate) fn new(
        root: FileHandle,
        attributes: &Attributes,
        times: CacheTimes,
        stale: SyncSender<u64>,
    ) -> Self {
        let mut table = Table::default();
        table.by_handle.insert(root.clone(), ROOT);
        let node = Node::new(ROOT, root, attributes, &times, stale.clone());
        table.by_number.insert(ROOT, (Arc::new(node), 1));
        Self { table: Mutex::new(table), times, stale }
    }

    pub(crate) fn by_number(&self, number: u64) -> Option<Arc<Node>> {
        self.table.lock().by_number.get(&number).map(|(node, _)| Arc::clone(node))
    }

    pub(crate) fn by_handle(&self, handle: &FileHandle) -> Option<Arc<Node>> {
        let table = self.table.lock();
        let number = table.by_handle.get(table.latest(handle))?;
        table.by_number.get(number).map(|(node, _)| Arc::clone(node))
    }

    /// A node of a file system of the server's that is not known to be gone; a directory, if there is one.
    pub(crate) fn any_of(&self, file_system: u64) -> Option<Arc<Node>> {
        let nodes: Vec<_> =
            self.table.lock().by_number.values().map(|(node, _)| Arc::clone(node)).collect();
        let is_of = |node: &&Arc<Node>| !node.is_dead() && node.attributes().fsid == file_system;
        let mut of_it = nodes.iter().filter(is_of);
        let first = of_it.next()?;
        let directory = std::iter::once(first).chain(of_it).find(|node| node.is_directory());
        Some(Arc::clone(directory.unwrap_or(first)))
    }

    /// The node of a handle, which the kernel gets to know once more, with attributes of a call
    /// that was sent at this moment.
    pub(crate) fn enter(
        &self,
        handle: &FileHandle,
        attributes: &Attributes,
        sent: Instant,
    ) -> Arc<Node> {
        let mut table = self.table.lock();
        let handle = &table.latest(handle).clone();
        if let Some(number) = table.by_handle.get(handle).copied()
            && let Some((node, lookups)) = table.by_number.get_mut(&number)
        {
            *lookups += 1;
            node.glance(attributes, sent, &self.times);
            return Arc::clone(node);
        }
        // The same number is another file's in a file system mounted below, or after a file was
        // removed that the kernel still knows.
        let mut number = attributes.fileid;
        if number <= ROOT || number >= OWN_NUMBERS || table.by_number.contains_key(&number) {
            table.own_numbers += 1;
            number = OWN_NUMBERS + table.own_numbers;
        }
        let stale = self.stale.clone();
        let node = Arc::new(Node::new(number, handle.clone(), attributes, &self.times, stale));
        table.by_handle.insert(handle.clone(), number);
        table.by_number.insert(number, (Arc::clone(&node), 1));
        node
    }

    /// The node of a number, which the kernel gets to know once more.
    pub(crate) fn enter_again(&self, number: u64) -> Option<Arc<Node>> {
        let mut table = self.table.lock();
        let (node, lookups) = table.by_number.get_mut(&number)?;
        *lookups += 1;
        Some(Arc::clone(node))
    }

    /// The path by which something was found last, below the root of the share; for people, since it may
    /// be another one by now.
    pub(crate) fn path(&self, number: u64) -> Vec<u8> {
        let mut names = Vec::new();
        let (mut number, mut bytes) = (number, 0);
        while number != ROOT
            && let Some(node) = self.by_number(number)
            && let Some((parent, name)) = node.place.lock().clone()
        {
            bytes += name.len() + 1;
            if bytes > PATH_BYTES_MAX {
                break;
            }
            names.push(name);
            number = parent;
        }
        // Each name has a slash before it.
        names.push(Vec::new());
        names.reverse();
        names.join(&b'/')
    }

    /// An object that was lost is there again, with another handle.
    pub(crate) fn rename_handle(&self, old: &FileHandle, new: FileHandle) {
        let mut table = self.table.lock();
        if table.replaced.len() >= REPLACED_MAX {
            table.replaced.clear();
        }
        table.replaced.insert(old.clone(), new.clone());
        let Some(number) = table.by_handle.remove(old) else { return };
        if let Some((node, _)) = table.by_number.get(&number) {
            *node.handle.lock() = Arc::new(new.clone());
        }
        table.by_handle.insert(new, number);
    }

    /// The server may have another state of everything than is known.
    pub(crate) fn doubt_all(&self) {
        let nodes: Vec<_> =
            self.table.lock().by_number.values().map(|(node, _)| Arc::clone(node)).collect();
        for node in nodes {
            node.doubt();
        }
    }

    /// A number for an entry of a directory whose handle nobody may have.
    pub(crate) fn number_of_unknown(&self) -> u64 {
        let mut table = self.table.lock();
        table.own_numbers += 1;
        OWN_NUMBERS + table.own_numbers
    }

    /// The kernel has forgotten a node this many times.
    pub(crate) fn forget(&self, number: u64, times: u64) {
        let mut table = self.table.lock();
        let Some((_, lookups)) = table.by_number.get_mut(&number) else { return };
        *lookups = lookups.saturating_sub(times);
        table.drop_if_unused(number);
    }

    /// The file of this number has no data to be written any more.
    pub(crate) fn release(&self, number: u64) {
        self.table.lock().drop_if_unused(number);
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.table.lock().by_number.len()
    }
}

impl Table {
    /// The handle that an object has now.
    fn latest<'h>(&'h self, handle: &'h FileHandle) -> &'h FileHandle {
        self.replaced.get(handle).unwrap_or(handle)
    }

    fn drop_if_unused(&mut self, number: u64) {
        let is_unused = self.by_number.get(&number).is_some_and(|(node, lookups)| {
            *lookups == 0 && number != ROOT && node.data.is_empty() && !node.is_open()
        });
        if is_unused && let Some((node, _)) = self.by_number.remove(&number) {
            self.by_handle.remove(&*node.handle());
        }
    }
}

#[cfg(test)]
mod tests;
