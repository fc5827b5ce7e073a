//! From exports(5) to operations.
//!
//! What exportfs(8) refuses is refused, and nobody gets more than there: `tests/exportfs.rs` holds
//! both against each other.

use std::collections::HashMap;

use steadfast_shares::{
    ClientPattern, Coverage, Field, Inherited, PatternError, ShareOptions, shown, spans_mapped,
};

use super::exportent::{Exportent, Word};
use super::precedence;
use super::text::{Client, Entry, Text, entries};
use crate::configuration::{ConfigurationError, Place, Placed, TEXT_BYTES_MAX};
use crate::entitled::{Entitled, share_of};
use crate::manage::{GroupSpec, Mistake, Operation, ShareSpec};

/// Paths below a root of NFSv4 whose new names are told; more are too long a line.
const MOUNTS_TOLD_MAX: usize = 8;

/// What texts of exports(5) come down to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Imported {
    /// What has to be done. Entries with mistakes are left out of it, the whole path: without one
    /// of its clients others might get what they were not to have.
    pub operations: Vec<Operation>,
    /// Where each of them was written, `FILE:LINE:COLUMN`; nowhere for the group.
    pub places: Vec<String>,
    /// What is wrong.
    pub mistakes: Vec<Mistake>,
    /// What is not taken over as it was, by name.
    pub warnings: Vec<Mistake>,
}

/// A share as it is put together.
struct Gathered {
    /// Without symbolic links.
    path: String,
    /// Names of it with symbolic links, by which clients may mount it too.
    other_paths: Vec<String>,
    place: String,
    clients: Vec<WrittenClient>,
    is_broken: bool,
    /// Where `fsid=0` was written: in which file, and there.
    root: Option<(usize, Place)>,
}

/// A client of a share.
struct WrittenClient {
    who: Entitled,
    /// In which order it is asked: see [`precedence`].
    precedence: u8,
    /// Where it was written: in which file, and there.
    place: (usize, Place),
}

struct Import<'a> {
    /// The file that is read, and its number.
    file: (usize, &'a str),
    /// Where a path leads to, if that is another one.
    resolve: &'a dyn Fn(&str) -> Option<String>,
    /// Netgroups, as they were first written.
    netgroups: HashMap<String, String>,
    mistakes: Vec<((usize, Place), Mistake)>,
    warnings: Vec<((usize, Place), Mistake)>,
    gathered: Vec<Gathered>,
    /// Where `fsid=0` was first written in the entry that is read.
    root: Option<(usize, Place)>,
}

/// Makes operations of texts, each with its file's name, that add all their shares to a group.
/// It is made if it is new; `inherited` is what shares of it inherit, so that what they get says
/// what differs. `resolve` tells where a path leads that has symbolic links: as exportfs(8) does, all
/// lines of one directory are taken together, and clients may mount it by each of these names.
pub fn import(
    texts: &[(&str, &str)],
    group: &str,
    is_new: bool,
    inherited: &Inherited,
    resolve: &dyn Fn(&str) -> Option<String>,
) -> Imported {
    let mut import = Import {
        file: (0, ""),
        resolve,
        netgroups: HashMap::new(),
        mistakes: Vec::new(),
        warnings: Vec::new(),
        gathered: Vec::new(),
        root: None,
    };
    for (number, (file, text)) in texts.iter().enumerate() {
        import.file = (number, file);
        let start = Place { line: 1, column: 1 };
        if text.len() > TEXT_BYTES_MAX {
            import.refuse(start, format!("the file is longer than {TEXT_BYTES_MAX} bytes"), None);
            continue;
        }
        let Text { entries, errors } = entries(text);
        for ConfigurationError { place, what, suggestion } in errors {
            import.refuse(place, what, suggestion);
        }
        for entry in entries {
            import.entry(entry);
        }
    }
    let mut gathered = std::mem::take(&mut import.gathered);
    for share in gathered.iter_mut().filter(|share| !share.is_broken) {
        import.put_in_order(share, texts);
    }
    import.warn_of_roots(&gathered, texts);
    let in_order = |mut told: Vec<((usize, Place), Mistake)>| {
        told.sort_by_key(|(place, _)| *place);
        told.into_iter().map(|(_, mistake)| mistake).collect()
    };
    let Import { mistakes, warnings, .. } = import;
    let mut imported = Imported {
        mistakes: in_order(mistakes),
        warnings: in_order(warnings),
        ..Imported::default()
    };
    if is_new && gathered.iter().any(|share| !share.is_broken) {
        let group = GroupSpec { name: group.to_owned(), ..GroupSpec::default() };
        imported.operations.push(Operation::CreateGroup { group });
        imported.places.push(String::new());
    }
    for mut share in gathered.into_iter().filter(|share| !share.is_broken) {
        let (place, other_paths) = (share.place.clone(), std::mem::take(&mut share.other_paths));
        let clients: Vec<_> = share.clients.into_iter().map(|client| client.who).collect();
        let spec = ShareSpec { path: share.path, ..ShareSpec::default() };
        let share = share_of(spec, &clients, &inherited.options);
        let others = other_paths.into_iter().map(|path| {
            let directory = Some(share.path.clone());
            ShareSpec { path, directory, ..share.clone() }
        });
        for share in std::iter::once(share.clone()).chain(others) {
            imported.places.push(place.clone());
            imported.operations.push(Operation::AddShare { group: group.to_owned(), share });
        }
    }
    imported
}

impl Import<'_> {
    fn mistake(&self, place: Place, what: String, suggestion: Option<String>) -> Mistake {
        Mistake { operation: None, place: self.told(place), what, suggestion }
    }

    fn told(&self, place: Place) -> String {
        format!("{}:{place}", self.file.1)
    }

    fn refuse(&mut self, place: Place, what: String, suggestion: Option<String>) {
        let mistake = ((self.file.0, place), self.mistake(place, what, suggestion));
        // What stands before clients is read once for each.
        if !self.mistakes.contains(&mistake) {
            self.mistakes.push(mistake);
        }
    }

    fn warn(&mut self, place: Place, what: String) {
        let warning = ((self.file.0, place), self.mistake(place, what, None));
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    fn entry(&mut self, entry: Entry) {
        let mistakes = self.mistakes.len();
        let Placed { value: path, place } = entry.path;
        let mut share = ShareSpec { path: path.clone(), ..ShareSpec::default() };
        if !entry.is_broken {
            for mistake in share.check() {
                let what = mistake.what.told(|field| field.to_string());
                self.refuse(place, what, mistake.suggestion);
            }
        }
        let mut clients = Vec::new();
        let mut before: Option<&Client> = None;
        for client in &entry.clients {
            self.warn_of_everybody(&path, place, before, client);
            before = Some(client);
            if let Some((pattern, precedence, options)) = self.client(client) {
                let place = (self.file.0, client.name.place);
                let who = Entitled { pattern, options };
                clients.push(WrittenClient { who, precedence, place });
            }
        }
        let is_broken = entry.is_broken || self.mistakes.len() > mistakes;
        let written = share.path;
        let path = (self.resolve)(&written).unwrap_or_else(|| written.clone());
        let known = self.gathered.iter().rposition(|known| known.path == path);
        let at = known.unwrap_or(self.gathered.len());
        if known.is_none() {
            let (path, place) = (path.clone(), self.told(place));
            let (other_paths, clients, is_broken) = (Vec::new(), Vec::new(), false);
            let new = Gathered { path, other_paths, place, clients, is_broken, root: None };
            self.gathered.push(new);
        }
        let root = self.root.take();
        let Some(share) = self.gathered.get_mut(at) else { return };
        share.root = share.root.or(root);
        if path != written && !share.other_paths.contains(&written) {
            share.other_paths.push(written);
        }
        share.is_broken |= is_broken;
        share.clients.extend(clients);
    }

    /// Warns where everybody is let in by what is easily written and seldom meant.
    fn warn_of_everybody(
        &mut self,
        path: &str,
        place: Place,
        before: Option<&Client>,
        client: &Client,
    ) {
        if !client.name.value.is_empty() {
            return;
        }
        match before {
            _ if client.is_implied => {
                let what = match (before, path.contains('(')) {
                    (Some(_), _) => {
                        "the options at the end of the line are followed by no client, so they are \
                         everybody's"
                            .to_owned()
                    }
                    (None, true) => format!(
                        "{} names no clients, so everybody may use it: is the space before the \
                         bracket missing?",
                        shown(path)
                    ),
                    (None, false) => {
                        let names = format!("{} names no clients", shown(path));
                        if client.defaults.is_empty() {
                            format!("{names}, so everybody may read it")
                        } else {
                            format!("{names}, so its options are everybody's")
                        }
                    }
                };
                self.warn(if before.is_some() { client.name.place } else { place }, what);
            }
            // `host (rw)` is a host with the defaults, and everybody with `rw`.
            Some(before) if !before.has_brackets => {
                let what = format!(
                    "the space between {} and its options gives them to everybody",
                    shown(&before.name.value)
                );
                self.warn(client.name.place, what);
            }
            _ => {}
        }
    }

    /// Puts a share's clients into the order in which exports(5) asks them, without those that are
    /// never asked there, and has them agree about what holds for a share as a whole.
    fn put_in_order(&mut self, share: &mut Gathered, texts: &[(&str, &str)]) {
        let path = shown(&share.path);
        share.clients.sort_by_key(|client| client.precedence);
        let mut asked: Vec<WrittenClient> = Vec::with_capacity(share.clients.len());
        let mut seen = Coverage::default();
        for client in std::mem::take(&mut share.clients) {
            if let Some((by, _)) = seen.covering(&client.who.pattern) {
                let pattern = shown(&client.who.pattern.to_string());
                let what = if by == client.who.pattern {
                    format!("{path} has an entry for {pattern} already, and that one counts")
                } else {
                    let by = shown(&by.to_string());
                    format!("{path} has {by} before {pattern}, and that one counts for all of it")
                };
                self.warn_at(client.place, texts, what);
                continue;
            }
            seen.add(&client.who.pattern, Field::Client(asked.len()));
            asked.push(client);
        }
        share.clients = asked;
        let crosses = |client: &WrittenClient| client.who.options.crosses_mounts;
        let first = share.clients.iter().find(|client| crosses(client)).map(|client| client.place);
        if let Some(place) = first
            && !share.clients.iter().all(crosses)
        {
            let what = format!(
                "crossmnt holds for a share as a whole here: no client of {path} gets it, since some \
                 have not"
            );
            self.warn_at(place, texts, what);
            share.clients.iter_mut().for_each(|client| client.who.options.crosses_mounts = false);
        }
        self.agree_about_mounts(share, texts);
    }

    /// `mp` of some clients holds for all: nobody gets more than was meant for him.
    fn agree_about_mounts(&mut self, share: &mut Gathered, texts: &[(&str, &str)]) {
        let mut all = Vec::new();
        for mount in share.clients.iter().flat_map(|client| &client.who.options.required_mounts) {
            if !all.contains(mount) {
                all.push(mount.clone());
            }
        }
        let mut clients = share.clients.iter();
        let others = clients.find(|client| client.who.options.required_mounts != all);
        if let Some(place) = others.map(|client| client.place) {
            let path = shown(&share.path);
            let what = format!("mp holds for a share as a whole here: for all clients of {path}");
            self.warn_at(place, texts, what);
            for client in &mut share.clients {
                client.who.options.required_mounts.clone_from(&all);
            }
        }
    }

    /// Warns where `fsid=0` made a directory the root that clients of NFSv4 saw: their mounts name other paths now.
    fn warn_of_roots(&mut self, gathered: &[Gathered], texts: &[(&str, &str)]) {
        for share in gathered.iter().filter(|share| !share.is_broken) {
            let Some(place) = share.root else { continue };
            let root = share.path.as_str();
            let mut mounts = vec![("/", root)];
            mounts.extend(gathered.iter().filter(|other| !other.is_broken).filter_map(|other| {
                let below = other.path.strip_prefix(root)?;
                below.starts_with('/').then_some((below, other.path.as_str()))
            }));
            // The path of each share was the same below `/`.
            let mut what = "\"fsid=0\" is not taken over: handles have the share's own id, and clients mount anew"
                .to_owned();
            if root != "/" {
                let lines = mounts.iter().take(MOUNTS_TOLD_MAX);
                let lines: Vec<String> =
                    lines.map(|(old, new)| format!("HOST:{new} for HOST:{old}")).collect();
                what.push_str(", those of NFSv4 by the whole path: ");
                what.push_str(&lines.join(", "));
                if let Some(more) = mounts.len().checked_sub(MOUNTS_TOLD_MAX).filter(|n| *n > 0) {
                    what = format!("{what}, and {more} more");
                }
            }
            self.warn_at(place, texts, what);
        }
    }

    /// Warns of something in a file that was read earlier.
    fn warn_at(&mut self, place: (usize, Place), texts: &[(&str, &str)], what: String) {
        let file = texts.get(place.0).map_or("", |(name, _)| name);
        let told = format!("{file}:{}", place.1);
        let mistake = Mistake { operation: None, place: told, what, suggestion: None };
        self.warnings.push((place, mistake));
    }

    fn client(&mut self, client: &Client) -> Option<(ClientPattern, u8, ShareOptions)> {
        let pattern = self.pattern(&client.name);
        let options = self.options(client);
        let pattern = pattern?;
        let is_network = client.name.value.contains('/');
        Some((pattern.clone(), precedence(&pattern, is_network), options?))
    }

    fn pattern(&mut self, name: &Placed<String>) -> Option<ClientPattern> {
        let text = name.value.as_str();
        if text.is_empty() {
            return Some(ClientPattern::Any);
        }
        if let Some(flavor) = text.strip_prefix("gss/") {
            let what = format!(
                "{} as a client is not understood: write sec={flavor} for the clients that are meant",
                shown(text)
            );
            self.refuse(name.place, what, None);
            return None;
        }
        if text.starts_with('[') && text.contains(':') {
            let what = "is a set of characters to exportfs(8): addresses are in no brackets there";
            self.refuse(name.place, format!("{} {what}", shown(text)), None);
            return None;
        }
        if spans_mapped(text) {
            let what = "is IPv4 written as IPv6, which no client has there: write it as IPv4";
            self.refuse(name.place, format!("{} {what}", shown(text)), None);
            return None;
        }
        let pattern = match text.parse() {
            Ok(pattern) => pattern,
            Err(PatternError { what, suggestion }) => {
                // Bits beyond a network's length count for nothing there.
                let network = suggestion.as_deref().and_then(|text| text.parse().ok());
                let Some(network) = network else {
                    self.refuse(name.place, what, suggestion);
                    return None;
                };
                self.warn(name.place, format!("{what}: they are left out"));
                network
            }
        };
        if let ClientPattern::Netgroup(netgroup) = &pattern {
            let first = self.netgroups.entry(netgroup.as_str().to_ascii_lowercase());
            let first = first.or_insert_with(|| netgroup.as_str().to_owned());
            if first != netgroup.as_str() {
                let what = format!(
                    "exportfs(8) takes {} for {}, which differs in capitals alone",
                    shown(text),
                    shown(&format!("@{first}"))
                );
                self.refuse(name.place, what, None);
                return None;
            }
        }
        if let Some(what) = pattern.matches_nobody() {
            self.warn(name.place, what);
        }
        if matches!(pattern, ClientPattern::Network { prefix_bits: 0, .. }) {
            let what = "is taken for all addresses of its kind; exportfs(8) of some builds takes it \
                        for one";
            self.warn(name.place, format!("{} {what}", shown(text)));
        }
        Some(pattern)
    }

    fn options(&mut self, client: &Client) -> Option<ShareOptions> {
        let mistakes = self.mistakes.len();
        let mut entry = Exportent::default();
        for list in client.defaults.iter().chain(std::iter::once(&client.options)) {
            entry.begin_list();
            for word in list {
                match entry.apply(&word.value) {
                    Ok(Word::Taken) => {}
                    Ok(Word::Overrides(known)) => {
                        let what = format!("{} before it counts for nothing", shown(&known));
                        self.warn(word.place, what);
                    }
                    Ok(Word::LeftOut(what)) => self.warn(word.place, what),
                    Ok(Word::Root) => {
                        self.root.get_or_insert((self.file.0, word.place));
                    }
                    Err(error) => self.refuse(word.place, error.what, error.suggestion),
                }
            }
        }
        if self.mistakes.len() > mistakes {
            return None;
        }
        if entry.has_words_without_effect() {
            let what = "some of what is said of access does not hold for the flavours of an earlier \
                        sec=: say it after that, in the same list";
            self.warn(client.name.place, what.to_owned());
        }
        match entry.options() {
            Ok(options) => Some(options),
            Err(error) => {
                let place = entry_place(client);
                self.refuse(place, error.what, error.suggestion);
                None
            }
        }
    }
}

/// Where a client's options are, or those before it, to tell what is wrong with them as a whole.
fn entry_place(client: &Client) -> Place {
    let lists = client.defaults.iter().chain(std::iter::once(&client.options));
    let mut words = lists.flatten();
    let sec = words.find(|word| word.value.starts_with("sec="));
    sec.map_or(client.name.place, |word| word.place)
}
