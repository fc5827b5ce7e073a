//! The file of a group: text that people and tools edit.
//!
//! [`GroupFile`] keeps the text in segments (`segments.rs`), one a share, with what each says. A
//! change touches the segment of its share alone; everything else stays as it is byte for byte,
//! comments and all. A mistake makes its share faulty alone.

mod editing;
mod kept;
mod pool;
mod reading;
mod segments;
mod writing;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use steadfast_shares::{FieldMistake, Share};

use crate::configuration::document::Document;
use crate::configuration::{ConfigurationError, TEXT_BYTES_MAX};
use crate::manage::{GroupSpec, PatternSpec, ShareSpec};
use editing::TableText;
pub(crate) use kept::KeptShare;
use pool::WordPool;
use segments::Kind;

/// No node.
const NONE: u32 = u32::MAX;

/// A part of a group that has a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Item {
    /// The whole file.
    File,
    /// The group itself: what stands before its shares.
    Group,
    /// A share, by its path.
    Share(Box<str>),
    /// A pattern, by its directories.
    Pattern(Box<str>),
}

/// Where a segment stands: so many segments behind the one of an item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The last item with a name before it; the group itself for the first.
    pub behind: Item,
    /// How many segments without a name are between.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skip: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A segment's number in its file; others keep theirs when it goes.
pub(crate) type NodeId = u32;

/// A group's file.
#[derive(Clone, Debug)]
pub struct GroupFile {
    preamble: Box<str>,
    group: GroupSpec,
    group_mistakes: Vec<ConfigurationError>,
    nodes: Vec<Node>,
    free: Vec<NodeId>,
    first: NodeId,
    last: NodeId,
    inserted: NodeId,
    text_bytes: usize,
}

/// A segment.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    text: Box<str>,
    pub(crate) content: Content,
    previous: NodeId,
    next: NodeId,
    /// Grows from segment to segment.
    order: u64,
}

/// What a segment is and says.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    Share(Box<ShareNode>),
    Pattern(Box<PatternNode>),
    /// Nothing that is known.
    Other(Box<[ConfigurationError]>),
    /// Comments.
    Loose,
}

/// `[[share]]`
#[derive(Clone, Debug)]
pub(crate) struct ShareNode {
    pub(crate) kept: KeptShare,
    /// Mistakes in how it is written, as if the segment began in line 1.
    mistakes: Box<[ConfigurationError]>,
    pub(crate) outcome: Outcome,
}

/// `[[pattern]]`
#[derive(Clone, Debug)]
pub(crate) struct PatternNode {
    pub(crate) spec: PatternSpec,
    mistakes: Box<[ConfigurationError]>,
    /// Mistakes in its words.
    pub(crate) word_mistakes: Option<Arc<[FieldMistake]>>,
}

/// What becomes of a share as it is written together with what it inherits.
#[derive(Clone, Debug, Default)]
pub(crate) enum Outcome {
    /// Nobody has looked yet.
    #[default]
    Open,
    /// This.
    Share(Arc<Share>),
    /// Nothing: it is not written right.
    Miswritten,
    /// Nothing: its words are wrong.
    Misworded(Arc<[FieldMistake]>),
}

impl ShareNode {
    fn read(text: &str, pool: &mut WordPool) -> Self {
        let read = reading::share(text);
        let kept = KeptShare::new(read.spec, pool);
        Self { kept, mistakes: read.mistakes.into(), outcome: Outcome::Open }
    }

    /// Whether it is TOML with the keys and values of a share.
    pub(crate) fn is_well_written(&self) -> bool {
        self.mistakes.is_empty()
    }
}

impl PatternNode {
    fn read(text: &str) -> Self {
        let read = reading::pattern(text);
        Self { spec: read.spec, mistakes: read.mistakes.into(), word_mistakes: None }
    }

    pub(crate) fn is_well_written(&self) -> bool {
        self.mistakes.is_empty()
    }
}

impl Content {
    fn read(kind: Kind, text: &str, pool: &mut WordPool) -> Self {
        match kind {
            Kind::Share => Self::Share(Box::new(ShareNode::read(text, pool))),
            Kind::Pattern => Self::Pattern(Box::new(PatternNode::read(text))),
            Kind::Preamble | Kind::Other => Self::Other(reading::other(text).into()),
            Kind::Loose => Self::Loose,
        }
    }

    fn item(&self) -> Option<Item> {
        match self {
            Self::Share(share) if !share.kept.path.is_empty() => {
                Some(Item::Share((*share.kept.path).into()))
            }
            Self::Pattern(pattern) if !pattern.spec.directories.is_empty() => {
                Some(Item::Pattern(pattern.spec.directories.as_str().into()))
            }
            _ => None,
        }
    }
}

impl GroupFile {
    /// Reads a file's text. Mistakes in it are kept where they are.
    pub fn parse(name: &str, text: &str) -> Self {
        let mut file = Self::new(name);
        if text.len() > TEXT_BYTES_MAX {
            // Told, and nothing of it is read.
            let mut document = Document::new("");
            let what = format!("the file is longer than {TEXT_BYTES_MAX} bytes");
            document.refuse(document.start(), what, None);
            file.group_mistakes = document.into_errors();
            return file;
        }
        // Segments end with a newline, so that others can come behind them.
        let ended = (!text.is_empty() && !text.ends_with('\n')).then(|| format!("{text}\n"));
        let mut pieces = segments::split(ended.as_deref().unwrap_or(text)).into_iter();
        if let Some(preamble) = pieces.next() {
            file.put_preamble(preamble.text);
        }
        let mut pool = WordPool::default();
        for piece in pieces {
            let content = Content::read(piece.kind, piece.text, &mut pool);
            file.insert(file.last, piece.text, content);
        }
        file.nodes.shrink_to_fit();
        file
    }

    /// Reads a text that is cut into segments at these offsets; if there are none, wherever it is.
    pub(crate) fn parse_cut(name: &str, text: &str, cuts: &[u32]) -> Self {
        let mut ends = cuts.iter().map(|cut| *cut as usize).chain([text.len()]);
        let mut start = 0;
        let mut next = || {
            let end = ends.next()?;
            let piece = text.get(start..end);
            start = end;
            piece
        };
        let Some(preamble) = next().filter(|_| !cuts.is_empty()) else {
            return Self::parse(name, text);
        };
        let mut file = Self::new(name);
        file.put_preamble(preamble);
        let mut pool = WordPool::default();
        while let Some(piece) = next() {
            let content = Content::read(segments::kind(piece), piece, &mut pool);
            file.insert(file.last, piece, content);
        }
        file
    }

    /// Where the segments begin, in bytes.
    pub(crate) fn cuts(&self) -> Vec<u32> {
        let mut at = self.preamble.len();
        let mut cuts = Vec::new();
        for (_, node) in self.nodes() {
            cuts.push(at as u32);
            at += node.text.len();
        }
        cuts
    }

    /// The file of a group that has nothing.
    pub fn new(name: &str) -> Self {
        Self {
            preamble: "".into(),
            group: GroupSpec { name: name.to_owned(), ..GroupSpec::default() },
            group_mistakes: Vec::new(),
            nodes: Vec::new(),
            free: Vec::new(),
            first: NONE,
            last: NONE,
            inserted: NONE,
            text_bytes: 0,
        }
    }

    /// The text as it is now.
    pub fn text(&self) -> String {
        let mut text = String::with_capacity(self.text_bytes);
        text += &self.preamble;
        for (_, node) in self.nodes() {
            text += &node.text;
        }
        text
    }

    /// The group's own keys.
    pub fn group(&self) -> &GroupSpec {
        &self.group
    }

    /// The group with its patterns.
    pub fn spec(&self) -> GroupSpec {
        let patterns = self.nodes().filter_map(|(_, node)| match &node.content {
            Content::Pattern(pattern) => Some(pattern.spec.clone()),
            _ => None,
        });
        GroupSpec { patterns: patterns.collect(), ..self.group.clone() }
    }

    /// The shares as they are written, those with mistakes too, as far as they can be read.
    pub fn shares(&self) -> impl Iterator<Item = ShareSpec> {
        self.kept_shares().map(KeptShare::spec)
    }

    /// Their paths.
    pub fn paths(&self) -> impl Iterator<Item = &Arc<str>> {
        self.kept_shares().map(|share| &share.path)
    }

    fn kept_shares(&self) -> impl Iterator<Item = &KeptShare> {
        self.nodes().filter_map(|(_, node)| match &node.content {
            Content::Share(share) => Some(&share.kept),
            _ => None,
        })
    }

    /// What is wrong with how the file is written, by place; not with words that inheritance
    /// gives their meaning.
    pub fn mistakes(&self) -> Vec<ConfigurationError> {
        let mut all = self.group_mistakes.clone();
        let mut line = self.first_line();
        for (_, node) in self.nodes() {
            let mistakes = match &node.content {
                Content::Share(share) => &share.mistakes,
                Content::Pattern(pattern) => &pattern.mistakes,
                Content::Other(mistakes) => mistakes,
                Content::Loose => &Box::default(),
            };
            all.extend(mistakes.iter().map(|mistake| moved(mistake, line)));
            line += newlines(&node.text);
        }
        all
    }

    /// The mistakes of the group's own keys.
    pub(crate) fn group_mistakes(&self) -> &[ConfigurationError] {
        &self.group_mistakes
    }

    /// The number of lines before the first segment.
    fn first_line(&self) -> usize {
        newlines(&self.preamble)
    }

    /// Segments in their order.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        let mut id = self.first;
        std::iter::from_fn(move || {
            let node = self.nodes.get(id as usize)?;
            let this = id;
            id = node.next;
            Some((this, node))
        })
    }

    pub(crate) fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id as usize)
    }

    pub(crate) fn node_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.nodes.get_mut(id as usize)
    }

    pub(crate) fn share(&self, id: NodeId) -> Option<&ShareNode> {
        match &self.node(id)?.content {
            Content::Share(share) => Some(share),
            _ => None,
        }
    }

    /// How many lines are before a segment.
    pub(crate) fn lines_before(&self, id: NodeId) -> usize {
        let before = self.nodes().take_while(|(other, _)| *other != id);
        self.first_line() + before.map(|(_, node)| newlines(&node.text)).sum::<usize>()
    }

    /// Everything that is wrong with a segment, as if the file had `lines` before it.
    pub(crate) fn mistakes_of(&self, id: NodeId, lines: usize) -> Vec<ConfigurationError> {
        let Some(node) = self.node(id) else { return Vec::new() };
        let of_words =
            |kind, mistakes: &[FieldMistake]| reading::placed(&node.text, kind, mistakes);
        let mistakes = match &node.content {
            Content::Share(share) => match &share.outcome {
                Outcome::Misworded(mistakes) => of_words(Kind::Share, mistakes),
                _ => share.mistakes.to_vec(),
            },
            Content::Pattern(pattern) => match &pattern.word_mistakes {
                Some(mistakes) => of_words(Kind::Pattern, mistakes),
                None => pattern.mistakes.to_vec(),
            },
            Content::Other(mistakes) => mistakes.to_vec(),
            Content::Loose => Vec::new(),
        };
        mistakes.iter().map(|mistake| moved(mistake, lines)).collect()
    }

    /// Mistakes in the group's own words, at their places.
    pub(crate) fn placed_in_group(&self, mistakes: &[FieldMistake]) -> Vec<ConfigurationError> {
        reading::placed(&self.preamble, Kind::Preamble, mistakes)
    }

    /// Where the header of a segment is, if the file has `lines` before it.
    pub(crate) fn header_line(&self, id: NodeId, lines: usize) -> usize {
        let text = self.node(id).map_or("", |node| &node.text);
        let above = text.lines().take_while(|line| !line.trim_start().starts_with('['));
        lines + above.count() + 1
    }

    /// The text of a segment.
    pub(crate) fn text_of(&self, id: NodeId) -> Option<&str> {
        self.node(id).map(|node| &*node.text)
    }

    /// The texts of all segments with names, each with its name and which of those with this name
    /// it is.
    pub(crate) fn named_texts(&self) -> Vec<((Item, u32), &str)> {
        let mut counts: HashMap<Item, u32> = HashMap::new();
        let named = self.nodes().filter_map(|(_, node)| Some((node.content.item()?, &*node.text)));
        named
            .map(|(item, text)| {
                let count = counts.entry(item.clone()).or_default();
                *count += 1;
                ((item, *count - 1), text)
            })
            .collect()
    }

    /// The text before the first segment.
    pub(crate) fn preamble(&self) -> &str {
        &self.preamble
    }

    /// Puts another text before the first segment.
    pub(crate) fn put_preamble(&mut self, text: &str) {
        self.text_bytes = self.text_bytes.saturating_sub(self.preamble.len()) + text.len();
        let read = reading::preamble(&self.group.name, text);
        self.group = read.spec;
        self.group_mistakes = read.mistakes;
        self.preamble = text.into();
    }

    /// What another text before the segments would say of the group, and whether it is well
    /// written.
    pub(crate) fn preamble_of(&self, text: &str) -> (GroupSpec, bool) {
        let read = reading::preamble(&self.group.name, text);
        (read.spec, read.mistakes.is_empty())
    }

    /// Puts another text in the place of a segment's.
    pub(crate) fn put_text(&mut self, id: NodeId, text: &str) {
        let Some(node) = self.nodes.get_mut(id as usize) else { return };
        let kind = match node.content {
            Content::Share(_) => Kind::Share,
            Content::Pattern(_) => Kind::Pattern,
            Content::Other(_) => Kind::Other,
            Content::Loose => Kind::Loose,
        };
        self.text_bytes = self.text_bytes.saturating_sub(node.text.len()) + text.len();
        node.content = Content::read(kind, text, &mut WordPool::default());
        node.text = text.into();
    }

    /// Puts a share's or a pattern's segment behind another.
    pub(crate) fn insert_item(&mut self, behind: NodeId, item: &Item, text: &str) -> NodeId {
        let kind = match item {
            Item::Share(_) => Kind::Share,
            Item::Pattern(_) => Kind::Pattern,
            Item::File | Item::Group => Kind::Other,
        };
        let content = Content::read(kind, text, &mut WordPool::default());
        self.insert(behind, text, content)
    }

    fn insert(&mut self, behind: NodeId, text: &str, content: Content) -> NodeId {
        let next = self.node(behind).map_or(self.first, |node| node.next);
        let order = self.order_between(behind, next);
        let node = Node { text: text.into(), content, previous: behind, next, order };
        let id = match self.free.pop() {
            Some(id) => id,
            None => self.nodes.len() as NodeId,
        };
        match self.nodes.get_mut(id as usize) {
            Some(place) => *place = node,
            None => self.nodes.push(node),
        }
        match self.nodes.get_mut(behind as usize) {
            Some(behind) => behind.next = id,
            None => self.first = id,
        }
        match self.nodes.get_mut(next as usize) {
            Some(next) => next.previous = id,
            None => self.last = id,
        }
        self.text_bytes += text.len();
        self.inserted = id;
        id
    }

    /// A number between those of two neighbours. Segments that come back one by one, in whichever
    /// order, come beside the last that came: most of the room is left on the other side.
    fn order_between(&mut self, behind: NodeId, next: NodeId) -> u64 {
        /// Between neighbours, when there is room.
        const STEP: u64 = 1 << 40;
        let ends = |file: &Self| {
            let low = file.node(behind).map_or(0, |node| node.order);
            let high = file.node(next).map(|node| node.order);
            (low, high)
        };
        let (low, high) = ends(self);
        let Some(high) = high else { return low.saturating_add(STEP) };
        if high - low < 2 {
            self.number_anew(STEP);
            let (low, high) = ends(self);
            return low + high.unwrap_or(low).saturating_sub(low) / 2;
        }
        let gap = high - low;
        let little = (gap / 1024).max(1);
        if behind == self.inserted { low + little } else { high - little }
    }

    fn number_anew(&mut self, step: u64) {
        let mut order = 0;
        let mut id = self.first;
        while let Some(node) = self.nodes.get_mut(id as usize) {
            order += step;
            node.order = order;
            id = node.next;
        }
    }

    /// A number that grows from segment to segment.
    pub(crate) fn order(&self, id: NodeId) -> u64 {
        self.node(id).map_or(0, |node| node.order)
    }

    /// Takes a segment out, and returns its text.
    pub(crate) fn remove(&mut self, id: NodeId) -> Box<str> {
        let Some(node) = self.nodes.get_mut(id as usize) else { return Box::default() };
        let gone =
            Node { text: "".into(), content: Content::Loose, previous: NONE, next: NONE, order: 0 };
        let node = std::mem::replace(node, gone);
        match self.nodes.get_mut(node.previous as usize) {
            Some(previous) => previous.next = node.next,
            None => self.first = node.next,
        }
        match self.nodes.get_mut(node.next as usize) {
            Some(next) => next.previous = node.previous,
            None => self.last = node.previous,
        }
        self.free.push(id);
        self.text_bytes = self.text_bytes.saturating_sub(node.text.len());
        node.text
    }

    /// Where a segment stands; `is_named` tells whether a segment is the one that its item's
    /// name finds.
    pub(crate) fn position_of(
        &self,
        id: NodeId,
        is_named: impl Fn(&Item, NodeId) -> bool,
    ) -> Position {
        let mut skip = 0;
        let mut at = self.node(id).map_or(NONE, |node| node.previous);
        while let Some(node) = self.node(at) {
            if let Some(item) = node.content.item().filter(|item| is_named(item, at)) {
                return Position { behind: item, skip };
            }
            skip += 1;
            at = node.previous;
        }
        Position { behind: Item::Group, skip }
    }

    /// The segment that is so many behind this one, or behind none, as long as none with a name
    /// comes between. [`NONE`] is before the first.
    pub(crate) fn behind(
        &self,
        id: Option<NodeId>,
        skip: u32,
        is_named: impl Fn(&Item, NodeId) -> bool,
    ) -> NodeId {
        let mut at = id.unwrap_or(NONE);
        for _ in 0..skip {
            let next = self.node(at).map_or(self.first, |node| node.next);
            let Some(node) = self.node(next) else { break };
            if node.content.item().is_some_and(|item| is_named(&item, next)) {
                break;
            }
            at = next;
        }
        at
    }

    /// The last segment.
    pub(crate) fn last(&self) -> NodeId {
        self.last
    }

    /// The text of a new share.
    pub(crate) fn text_for_share(&self, spec: &ShareSpec) -> String {
        self.begin(writing::share_text(spec))
    }

    /// The text of a new pattern.
    pub(crate) fn text_for_pattern(&self, spec: &PatternSpec) -> String {
        self.begin(writing::pattern_text(spec))
    }

    /// No empty line where nothing is before it.
    fn begin(&self, text: String) -> String {
        let is_first = self.preamble.is_empty() && self.first == NONE;
        if is_first { text.trim_start_matches('\n').to_owned() } else { text }
    }
}

/// The text of a share's segment with other values.
pub(crate) fn changed_share(text: &str, old: &ShareSpec, new: &ShareSpec) -> String {
    let values = (writing::share_values(old), writing::share_values(new));
    let changed = edited(text, "share", (&values.0, &values.1), (&old.rules, &new.rules));
    let is_right = |text: &String| {
        let read = reading::share(text);
        read.mistakes.is_empty() && read.spec == *new
    };
    changed.filter(is_right).unwrap_or_else(|| above(text) + &anew(&writing::share_text(new)))
}

/// The text of a pattern's segment with other values.
pub(crate) fn changed_pattern(text: &str, old: &PatternSpec, new: &PatternSpec) -> String {
    let values = (writing::pattern_values(old), writing::pattern_values(new));
    let changed = edited(text, "pattern", (&values.0, &values.1), (&[], &[]));
    let is_right = |text: &String| {
        let read = reading::pattern(text);
        read.mistakes.is_empty() && read.spec == *new
    };
    changed.filter(is_right).unwrap_or_else(|| above(text) + &anew(&writing::pattern_text(new)))
}

/// The text before a group's shares with other values.
pub(crate) fn changed_group(text: &str, old: &GroupSpec, new: &GroupSpec) -> String {
    let values = (writing::group_values(old), writing::group_values(new));
    let changed = {
        let mut document = Document::new(text);
        document.parse().and_then(|root| {
            let table = TableText { text, table: root.get_ref(), has_header: false };
            table.with(&values.0, &values.1, (&[], &[]))
        })
    };
    let is_right = |text: &String| {
        let read = reading::preamble(&new.name, text);
        read.mistakes.is_empty() && GroupSpec { patterns: Vec::new(), ..new.clone() } == read.spec
    };
    changed.filter(is_right).unwrap_or_else(|| above(text) + &writing::group_text(new))
}

/// The text of a group that is new.
pub(crate) fn new_group(spec: &GroupSpec) -> String {
    writing::group_text(spec)
}

fn anew(text: &str) -> String {
    text.trim_start_matches('\n').to_owned()
}

fn edited(
    text: &str,
    key: &str,
    (old, new): (&writing::Values<'_>, &writing::Values<'_>),
    rules: (&[steadfast_shares::RuleSpec], &[steadfast_shares::RuleSpec]),
) -> Option<String> {
    let mut document = Document::new(text);
    let root = document.parse()?;
    let table = reading::header_table(&document, &root, key)?;
    TableText { text, table: table.entries, has_header: true }.with(old, new, rules)
}

/// The comments and empty lines that a text begins with.
fn above(text: &str) -> String {
    let is_above = |line: &&str| line.trim().is_empty() || line.trim_start().starts_with('#');
    text.split_inclusive('\n').take_while(is_above).collect()
}

fn newlines(text: &str) -> usize {
    text.bytes().filter(|byte| *byte == b'\n').count()
}

fn moved(mistake: &ConfigurationError, lines: usize) -> ConfigurationError {
    let mut mistake = mistake.clone();
    mistake.place.line += lines;
    mistake
}
