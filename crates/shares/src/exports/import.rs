//! From exports(5) to operations.

use super::text::{Client, Entry, entries};
use super::{entry_defaults, precedence};
use crate::clients::PatternError;
use crate::compile::{Field, Inherited};
use crate::configuration::{ConfigurationError, Place, Placed, TEXT_BYTES_MAX};
use crate::coverage::Coverage;
use crate::manage::{GroupSpec, Mistake, Operation, RuleSpec, ShareSpec};
use crate::model::ClientPattern;
use crate::options::{NOT_SERVED, ShareOptions, shown, subject};
use crate::suggestion::nearest;

/// Options that can be left out, with what that means.
const LEFT_OUT: [(&str, &str); 14] = [
    ("async", "is not taken over: every acknowledged change is stable here"),
    ("subtree_check", "is not taken over: a handle tells its share here"),
    ("nohide", "is not taken over: write crossmnt on the outer share to have it seen there"),
    ("hide", "is not needed: it is so unless crossmnt is given"),
    ("no_acl", "is not taken over: ACLs are served where the file system has them"),
    ("acl", "is not needed: ACLs are served where the file system has them"),
    ("fsid", "is not taken over: handles have the share's own id, and clients mount anew"),
    ("no_pnfs", "is not needed: layouts are not served"),
    ("nordirplus", "is not taken over: READDIRPLUS is served"),
    ("security_label", "is not taken over: labels are not served"),
    ("auth_nlm", "is not taken over: locks over NLM are not served"),
    ("no_auth_nlm", "is not taken over: locks over NLM are not served"),
    ("insecure_locks", "is not taken over: locks over NLM are not served"),
    ("secure_locks", "is not taken over: locks over NLM are not served"),
];

/// Options that ask for what happens here anyway.
const ALWAYS_SO: [&str; 6] =
    ["sync", "no_subtree_check", "wdelay", "no_wdelay", "rdirplus", "xprtsec=none"];

/// Options that are understood.
const WORDS: [&str; 17] = [
    "rw",
    "ro",
    "root_squash",
    "no_root_squash",
    "all_squash",
    "no_all_squash",
    "secure",
    "insecure",
    "crossmnt",
    "nocrossmnt",
    "mp",
    "mp=",
    "mountpoint",
    "mountpoint=",
    "anonuid=",
    "anongid=",
    "sec=",
];

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
    path: String,
    place: String,
    clients: Vec<Entitled>,
    is_broken: bool,
}

/// A client of a share.
struct Entitled {
    pattern: ClientPattern,
    options: ShareOptions,
    /// Where it was written: in which file, and there.
    place: (usize, Place),
}

#[derive(Default)]
struct Import<'a> {
    /// The file that is read, and its number.
    file: (usize, &'a str),
    mistakes: Vec<((usize, Place), Mistake)>,
    warnings: Vec<((usize, Place), Mistake)>,
    gathered: Vec<Gathered>,
}

/// Makes operations of texts, each with its file's name, that add all their shares to a group.
/// It is made if it is new; `inherited` is what shares of it inherit, so that what they get says
/// what differs.
pub fn import(
    texts: &[(&str, &str)],
    group: &str,
    is_new: bool,
    inherited: &Inherited,
) -> Imported {
    let mut import = Import::default();
    for (number, (file, text)) in texts.iter().enumerate() {
        import.file = (number, file);
        let start = Place { line: 1, column: 1 };
        if text.len() > TEXT_BYTES_MAX {
            import.refuse(start, format!("the file is longer than {TEXT_BYTES_MAX} bytes"), None);
            continue;
        }
        let (entries, errors) = entries(text);
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
    for share in gathered.into_iter().filter(|share| !share.is_broken) {
        imported.places.push(share.place.clone());
        let share = spec(share, &inherited.options);
        imported.operations.push(Operation::AddShare { group: group.to_owned(), share });
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
        let mistake = self.mistake(place, what, suggestion);
        self.mistakes.push(((self.file.0, place), mistake));
    }

    fn warn(&mut self, place: Place, what: String) {
        let mistake = self.mistake(place, what, None);
        self.warnings.push(((self.file.0, place), mistake));
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
            // `host (rw)` is a host with the defaults, and everybody with `rw`.
            if let Some(before) = before
                && client.name.value.is_empty()
                && !before.has_brackets
            {
                let what = format!(
                    "the space between {} and its options gives them to everybody",
                    shown(&before.name.value)
                );
                self.warn(client.name.place, what);
            }
            before = Some(client);
            if let Some(known) = self.client(client) {
                clients.push((client.name.place, known));
            }
        }
        if entry.clients.is_empty() && !entry.is_broken {
            let what = format!("{} names no clients, so everybody may read it", shown(&path));
            self.warn(place, what);
            clients.push((place, (ClientPattern::Any, entry_defaults())));
        }
        let is_broken = entry.is_broken || self.mistakes.len() > mistakes;
        let known = self.gathered.iter().rposition(|known| known.path == share.path);
        let at = known.unwrap_or(self.gathered.len());
        if known.is_none() {
            let (path, place) = (share.path, self.told(place));
            self.gathered.push(Gathered { path, place, clients: Vec::new(), is_broken: false });
        }
        for (place, (pattern, options)) in clients {
            let known = self.gathered.get(at).map_or(&[][..], |share| &share.clients);
            if known.iter().any(|other| other.pattern == pattern) {
                let what = format!(
                    "{} has an entry for {} already, and that one counts",
                    shown(&path),
                    shown(&pattern.to_string())
                );
                self.warn(place, what);
            } else if let Some(share) = self.gathered.get_mut(at) {
                share.clients.push(Entitled { pattern, options, place: (self.file.0, place) });
            }
        }
        if let Some(share) = self.gathered.get_mut(at) {
            share.is_broken |= is_broken;
        }
    }

    /// Puts a share's clients into the order in which exports(5) asks them, without those that are
    /// never asked there, and has them agree about what holds for a share as a whole.
    fn put_in_order(&mut self, share: &mut Gathered, texts: &[(&str, &str)]) {
        let path = shown(&share.path);
        share.clients.sort_by_key(|client| precedence(&client.pattern));
        let mut asked: Vec<Entitled> = Vec::with_capacity(share.clients.len());
        let mut networks = Coverage::default();
        for client in std::mem::take(&mut share.clients) {
            if let Some((by, _)) = networks.covering(&client.pattern) {
                let what = format!(
                    "{path} has the network {} before {}, and that one counts for all of it",
                    shown(&by.to_string()),
                    shown(&client.pattern.to_string())
                );
                self.warn_at(client.place, texts, what);
                continue;
            }
            networks.add(&client.pattern, Field::Client(asked.len()));
            asked.push(client);
        }
        share.clients = asked;
        let crosses = |client: &&Entitled| client.options.crosses_mounts;
        let first = share.clients.iter().find(crosses).map(|client| client.place);
        if let Some(place) = first
            && !share.clients.iter().all(|client| client.options.crosses_mounts)
        {
            let what = format!(
                "crossmnt holds for a share as a whole here: all clients of {path} are given it"
            );
            self.warn_at(place, texts, what);
            share.clients.iter_mut().for_each(|client| client.options.crosses_mounts = true);
        }
        self.agree_about_mounts(share, texts);
    }

    /// `mp` of some clients holds for all: nobody gets more than was meant for him.
    fn agree_about_mounts(&mut self, share: &mut Gathered, texts: &[(&str, &str)]) {
        let mut all = Vec::new();
        for mount in share.clients.iter().flat_map(|client| &client.options.required_mounts) {
            if !all.contains(mount) {
                all.push(mount.clone());
            }
        }
        let mut clients = share.clients.iter();
        let others = clients.find(|client| client.options.required_mounts != all);
        if let Some(place) = others.map(|client| client.place) {
            let path = shown(&share.path);
            let what = format!("mp holds for a share as a whole here: for all clients of {path}");
            self.warn_at(place, texts, what);
            for client in &mut share.clients {
                client.options.required_mounts.clone_from(&all);
            }
        }
    }

    /// Warns of something in a file that was read earlier.
    fn warn_at(&mut self, place: (usize, Place), texts: &[(&str, &str)], what: String) {
        let file = texts.get(place.0).map_or("", |(name, _)| name);
        let told = format!("{file}:{}", place.1);
        let mistake = Mistake { operation: None, place: told, what, suggestion: None };
        self.warnings.push((place, mistake));
    }

    fn client(&mut self, client: &Client) -> Option<(ClientPattern, ShareOptions)> {
        let pattern = self.pattern(&client.name);
        let options = self.options(client);
        Some((pattern?, options?))
    }

    fn pattern(&mut self, name: &Placed<String>) -> Option<ClientPattern> {
        let text = name.value.as_str();
        let flavors = ["gss/krb5", "gss/krb5i", "gss/krb5p"];
        if flavors.contains(&text) {
            let what = format!(
                "{} as a client is not understood: write sec={} for the clients that are meant",
                shown(text),
                text.trim_start_matches("gss/")
            );
            self.refuse(name.place, what, None);
            return None;
        }
        if text.contains('[') && !text.starts_with('[') {
            let what = format!("{} has a set of characters, which is not understood", shown(text));
            self.refuse(name.place, what, None);
            return None;
        }
        let plain = text.trim_start_matches('[').replacen(']', "", 1);
        match plain.as_str() {
            "" => return Some(ClientPattern::Any),
            plain => match plain.parse() {
                Ok(pattern) => return Some(pattern),
                Err(PatternError { what, suggestion }) => {
                    // Bits beyond a network's length count for nothing there.
                    let network = suggestion.as_deref().and_then(|text| text.parse().ok());
                    if let Some(network) = network {
                        self.warn(name.place, format!("{what}: they are left out"));
                        return Some(network);
                    }
                    self.refuse(name.place, what, suggestion);
                }
            },
        }
        None
    }

    fn options(&mut self, client: &Client) -> Option<ShareOptions> {
        let mut words: Vec<(String, Place, bool)> = Vec::new();
        let all = client.defaults.iter().map(|word| (word, false));
        let own = client.options.iter().map(|word| (word, true));
        let mistakes = self.mistakes.len();
        for (word, is_own) in all.chain(own) {
            let Some(text) = self.word(word) else { continue };
            // Of words that contradict each other the last counts, since the last `sec=`.
            let since = words.iter().rposition(|(word, _, _)| word.starts_with("sec="));
            let start = since.map_or(0, |since| since + 1);
            let about = subject(&text);
            let other = words
                .iter()
                .enumerate()
                .skip(start)
                .find(|(_, (known, _, _))| about.is_some() && subject(known) == about);
            if let Some((index, (known, _, was_own))) = other {
                if known != &text && *was_own == is_own {
                    let what = format!("{} before it counts for nothing", shown(known));
                    self.warn(word.place, what);
                }
                words.remove(index);
            }
            words.push((text, word.place, is_own));
        }
        let texts: Vec<&str> = words.iter().map(|(word, _, _)| word.as_str()).collect();
        let (options, errors) = entry_defaults().with(&texts);
        for (index, error) in errors {
            let place = words.get(index).map_or(client.name.place, |(_, place, _)| *place);
            self.refuse(place, error.what, error.suggestion);
        }
        (self.mistakes.len() == mistakes).then_some(options)
    }

    /// A word that means something here.
    fn word(&mut self, word: &Placed<String>) -> Option<String> {
        let text = word.value.as_str();
        let name = text.split('=').next().unwrap_or(text);
        if ALWAYS_SO.contains(&text) {
            return None;
        }
        if let Some((_, meaning)) = LEFT_OUT.iter().find(|(known, _)| *known == name) {
            self.warn(word.place, format!("{} {meaning}", shown(text)));
            return None;
        }
        if name == "pnfs" {
            self.warn(word.place, "\"pnfs\" is not taken over: layouts are not served".to_owned());
            return None;
        }
        if let Some((_, why)) = NOT_SERVED.iter().find(|(known, _)| *known == name) {
            self.refuse(
                word.place,
                format!("the option {} is not served: {why}", shown(text)),
                None,
            );
            return None;
        }
        let is_known = WORDS
            .iter()
            .any(|known| *known == text || known.ends_with('=') && text.starts_with(known));
        if !is_known {
            let suggestion = nearest(text, WORDS.into_iter().chain(ALWAYS_SO)).map(String::from);
            self.refuse(word.place, format!("unknown option {}", shown(text)), suggestion);
            return None;
        }
        // Negative ids are those that they are as 32 bits: -2 is nobody on some systems.
        match text.split_once("=-") {
            Some((name @ ("anonuid" | "anongid"), number)) => match number.parse::<u32>() {
                Ok(number) if number > 1 => Some(format!("{name}={}", number.wrapping_neg())),
                _ => Some(text.to_owned()),
            },
            _ => Some(text.to_owned()),
        }
    }
}

/// The share: with its clients in a list if all may do the same, else with rules.
fn spec(gathered: Gathered, inherited: &ShareOptions) -> ShareSpec {
    let mut share = ShareSpec { path: gathered.path, ..ShareSpec::default() };
    let Some(Entitled { options: first, .. }) = gathered.clients.first() else { return share };
    if gathered.clients.iter().all(|client| client.options == *first) {
        share.options = first.words(inherited);
        share.clients = gathered.clients.iter().map(|client| client.pattern.to_string()).collect();
        return share;
    }
    let common = ShareOptions {
        crosses_mounts: first.crosses_mounts,
        required_mounts: first.required_mounts.clone(),
        ..inherited.clone()
    };
    share.options = common.words(inherited);
    let mut last: Option<&ShareOptions> = None;
    for Entitled { pattern, options, .. } in &gathered.clients {
        if last.replace(options) != Some(options) {
            let options = options.words(&common);
            share.rules.push(RuleSpec { clients: Vec::new(), options });
        }
        if let Some(rule) = share.rules.last_mut() {
            rule.clients.push(pattern.to_string());
        }
    }
    share
}
