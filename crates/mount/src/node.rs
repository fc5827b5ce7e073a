//! Files and directories that the kernel knows, with what is known of each.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use steadfast_client::{Attributes, FileHandle, FileType, Identity, Time, Wcc};

use crate::attribute_cache::{AttributeCache, Origin, Version};
use crate::options::CacheTimes;
use crate::write_back::Data;

/// The number of the root, by FUSE's rules.
pub(crate) const ROOT: u64 = 1;
/// Names that are remembered of a directory. Beyond that they are forgotten and looked up again.
const NAMES_MAX: usize = 65_536;
/// A longer path is told without its beginning.
const PATH_BYTES_MAX: usize = 4000;
/// Users whose rights on an object are remembered.
const GRANTS_MAX: usize = 8;
/// Numbers of our own, where the server's number of a file is another file's already.
const OWN_NUMBERS: u64 = 1 << 63;

/// A file or directory.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) number: u64,
    pub(crate) handle: FileHandle,
    pub(crate) file_type: FileType,
    state: Mutex<State>,
    /// Its data that is not on the server yet.
    pub(crate) data: Data,
    /// The directory and the name by which it was found last, for people to read.
    place: Mutex<Option<(u64, Vec<u8>)>>,
}

#[derive(Debug)]
struct State {
    attributes: AttributeCache,
    /// The kernel's pages, and our names, are those of the attributes' version.
    is_current: bool,
    /// Changes of ours that are in flight, and how many have ended.
    changing: u32,
    changed: u64,
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
    pub(crate) directory: FileHandle,
    pub(crate) name: Vec<u8>,
    pub(crate) identity: Identity,
}

/// The moment when attributes were asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asking {
    pub(crate) sent: Instant,
    /// How many changes of ours had ended, if none was in flight: else a difference may be ours.
    changed: Option<u64>,
}

impl Node {
    fn new(number: u64, handle: FileHandle, attributes: &Attributes, times: &CacheTimes) -> Self {
        let cache = AttributeCache::new(attributes.clone(), Instant::now(), times);
        let state = State {
            attributes: cache,
            is_current: false,
            changing: 0,
            changed: 0,
            opens: 0,
            hidden: None,
            grants: Vec::new(),
            names: HashMap::new(),
        };
        let file_type = attributes.file_type;
        Self {
            number,
            handle,
            file_type,
            state: Mutex::new(state),
            data: Data::default(),
            place: Mutex::default(),
        }
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.file_type == FileType::Directory
    }

    /// The attributes as they are known, with the size that held data makes.
    pub(crate) fn attributes(&self) -> Attributes {
        let mut attributes = self.state.lock().attributes.attributes().clone();
        if let Some(end) = self.data.end() {
            attributes.size = attributes.size.max(end);
        }
        attributes
    }

    pub(crate) fn is_fresh(&self) -> bool {
        self.state.lock().attributes.is_fresh(Instant::now())
    }

    pub(crate) fn expire(&self) {
        self.state.lock().attributes.expire();
    }

    /// To be called before attributes are asked for.
    pub(crate) fn ask(&self) -> Asking {
        let state = self.state.lock();
        let changed = (state.changing == 0).then_some(state.changed);
        Asking { sent: Instant::now(), changed }
    }

    /// Whether no change of ours has begun or ended since.
    fn is_quiet(state: &State, asking: Asking) -> bool {
        state.changing == 0 && asking.changed == Some(state.changed)
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
        let origin = if Self::is_quiet(&state, asking) { Origin::Asked } else { Origin::Ours };
        let now = Instant::now();
        let is_foreign =
            state.attributes.update(attributes.clone(), origin, asking.sent, now, times);
        if is_foreign {
            state.is_current = false;
            state.names.clear();
        }
        is_foreign
    }

    /// Begins a change of ours.
    pub(crate) fn begin_change(&self) -> Instant {
        self.state.lock().changing += 1;
        Instant::now()
    }

    /// Ends it, with what the reply tells of it. True if it shows somebody else's change too.
    pub(crate) fn end_change(&self, begun: Instant, wcc: Option<&Wcc>, times: &CacheTimes) -> bool {
        let mut state = self.state.lock();
        let was_alone = state.changing == 1;
        state.changing = state.changing.saturating_sub(1);
        state.changed += 1;
        let Some(Wcc { before, after: Some(after) }) = wcc else {
            state.attributes.expire();
            return false;
        };
        let before = before.as_ref().map(Version::before);
        // With other changes in flight, what was before this one is not known.
        let is_foreign =
            was_alone && before.is_some_and(|before| before != state.attributes.version());
        let is_foreign = is_foreign && state.attributes.is_fresh(begun);
        let now = Instant::now();
        state.attributes.update(after.clone(), Origin::Ours, begun, now, times);
        if before.is_none() || is_foreign {
            state.is_current = false;
            state.names.clear();
        }
        is_foreign
    }

    /// Ends a change whose reply has no WCC.
    pub(crate) fn settle_change(
        &self,
        begun: Instant,
        after: Option<&Attributes>,
        times: &CacheTimes,
    ) {
        let mut state = self.state.lock();
        state.changing = state.changing.saturating_sub(1);
        state.changed += 1;
        match after {
            Some(after) => {
                let now = Instant::now();
                state.attributes.update(after.clone(), Origin::Ours, begun, now, times);
            }
            None => state.attributes.expire(),
        }
    }

    /// Takes attributes that came beside another answer. If they differ from the known ones, the
    /// server is asked the next time, so that the difference is seen for what it is.
    pub(crate) fn glance(&self, attributes: &Attributes, sent: Instant, times: &CacheTimes) {
        let mut state = self.state.lock();
        if Version::of(attributes) == state.attributes.version() {
            let now = Instant::now();
            state.attributes.update(attributes.clone(), Origin::Ours, sent, now, times);
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
        if Self::is_quiet(&state, asking) {
            if state.names.len() >= NAMES_MAX {
                state.names.clear();
            }
            state.names.insert(name.to_vec(), number);
        }
    }

    /// Whether the name was known when the directory was last looked at.
    pub(crate) fn has_name(&self, name: &[u8]) -> bool {
        self.state.lock().names.contains_key(name)
    }

    pub(crate) fn forget_name(&self, name: &[u8]) {
        self.state.lock().names.remove(name);
    }
}

/// The nodes by number and by handle. What the kernel has forgotten is forgotten here, but for files
/// whose data is still to be written.
#[derive(Debug)]
pub(crate) struct Nodes {
    table: Mutex<Table>,
    times: CacheTimes,
}

#[derive(Debug, Default)]
struct Table {
    by_number: HashMap<u64, (Arc<Node>, u64)>,
    by_handle: HashMap<FileHandle, u64>,
    own_numbers: u64,
}

impl Nodes {
    pub(crate) fn new(root: FileHandle, attributes: &Attributes, times: CacheTimes) -> Self {
        let mut table = Table::default();
        table.by_handle.insert(root.clone(), ROOT);
        let node = Node::new(ROOT, root, attributes, &times);
        table.by_number.insert(ROOT, (Arc::new(node), 1));
        Self { table: Mutex::new(table), times }
    }

    pub(crate) fn by_number(&self, number: u64) -> Option<Arc<Node>> {
        self.table.lock().by_number.get(&number).map(|(node, _)| Arc::clone(node))
    }

    pub(crate) fn by_handle(&self, handle: &FileHandle) -> Option<Arc<Node>> {
        let table = self.table.lock();
        let number = table.by_handle.get(handle)?;
        table.by_number.get(number).map(|(node, _)| Arc::clone(node))
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
        let node = Arc::new(Node::new(number, handle.clone(), attributes, &self.times));
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

    /// Notes by which name something was found.
    pub(crate) fn place(&self, node: &Node, parent: u64, name: &[u8]) {
        *node.place.lock() = Some((parent, name.to_vec()));
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
        names.reverse();
        names.join(&b'/')
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
    fn drop_if_unused(&mut self, number: u64) {
        let is_unused = self.by_number.get(&number).is_some_and(|(node, lookups)| {
            *lookups == 0 && number != ROOT && node.data.is_empty() && !node.is_open()
        });
        if is_unused && let Some((node, _)) = self.by_number.remove(&number) {
            self.by_handle.remove(&node.handle);
        }
    }
}
