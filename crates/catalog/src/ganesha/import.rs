//! From the blocks of `ganesha.conf` to operations.

use std::collections::{HashMap, HashSet};

use steadfast_shares::{
    ClientPattern, Coverage, Field, Inherited, PatternError, ShareOptions, nearest, shown,
    spans_mapped,
};

use super::permissions::{
    self, AccessType, Permissions, boolean, is_within, mistake, number, unquoted,
    versions_of_server, word, words,
};
use super::text::{Included, Item, Value, Words, read};
use super::words::{BLOCKS, HARMLESS, LOCAL, OF_EXPORT, REFUSED, STACKED};
use crate::configuration::{ConfigurationError, Place, Placed};
use crate::entitled::{Entitled, share_of};
use crate::exports::Imported;
use crate::manage::{GroupSpec, Mistake, Operation, ShareSpec};

/// Makes operations of texts, each with its file's name, that add all their exports to a group. It is made if it
/// is new; `inherited` is what shares of it inherit, so that what they get says what differs.
///
/// The files of `%include` have to be among the texts. An export is a share under its `Path`, by which clients of
/// NFSv3 mount it, and under its `Pseudo`, by which those of NFSv4 do.
pub fn import(
    texts: &[(&str, &str)],
    group: &str,
    is_new: bool,
    inherited: &Inherited,
) -> Imported {
    let mut import = Import::default();
    let read: Vec<_> = texts.iter().map(|(file, text)| (*file, read(text))).collect();
    for (file, text) in &read {
        (*file).clone_into(&mut import.file);
        for error in &text.errors {
            import.refuse(error.clone());
        }
        for Included { directive, name } in &text.included {
            let is_there =
                texts.iter().any(|(file, _)| std::path::Path::new(file).ends_with(&name.value));
            if directive == "%url" || (directive == "%include" && !is_there) {
                let name_told = shown(&name.value);
                let what = format!(
                    "the file of {directive} {name_told} is not among those that are imported"
                );
                import.refuse(ConfigurationError { place: name.place, what, suggestion: None });
            }
        }
        import.take_what_is_for_all(&text.items);
    }
    // Without what holds for all, somebody might get more.
    let can_go_on = import.mistakes.is_empty();
    for (file, text) in &read {
        (*file).clone_into(&mut import.file);
        for item in &text.items {
            import.block(item);
        }
    }
    if can_go_on && !import.is_lost {
        import.refuse_ambiguous_directories();
    } else {
        import.found.clear();
    }
    import.imported(group, is_new, &inherited.options)
}

/// A share of an export.
struct Found {
    share: ShareSpec,
    clients: Vec<Entitled>,
    place: String,
    /// The directory.
    path: String,
}

/// A directory that is exported, whether it becomes a share or not.
struct Claim {
    place: (String, Place),
    /// Who may use it, in the order in which they are asked; `None` if that could not be understood.
    clients: Option<Vec<Entitled>>,
    /// Whether clients of NFSv3 mount it by its path.
    is_mounted_by_path: bool,
}

/// A `CLIENT` block.
struct Client {
    patterns: Vec<(Placed<String>, ClientPattern)>,
    permissions: Permissions,
}

/// An `EXPORT` block as it is read.
#[derive(Default)]
struct Export {
    id: Option<Placed<u32>>,
    path: Option<Placed<String>>,
    pseudo: Option<Placed<String>>,
    back_end: Option<Placed<String>>,
    permissions: Permissions,
    clients: Vec<Client>,
}

#[derive(Default)]
struct Import {
    /// The file that is read.
    file: String,
    /// `EXPORT_DEFAULTS`
    defaults: Permissions,
    default_clients: Vec<Client>,
    has_defaults: bool,
    /// `mount_path_pseudo`: clients of NFSv3 mount by `Pseudo`, too.
    mounts_by_pseudo: bool,
    /// Which of versions 3 and 4 are served at all.
    versions: Option<[bool; 2]>,
    ids: HashSet<u32>,
    /// Places in the pseudo file system.
    pseudos: HashSet<String>,
    claims: HashMap<String, Vec<Claim>>,
    /// Whether an export could not be told from others, so that nothing can be said of any.
    is_lost: bool,
    /// Paths of shares.
    paths: HashSet<String>,
    found: Vec<Found>,
    mistakes: Vec<Mistake>,
    warnings: Vec<Mistake>,
}

impl Import {
    fn imported(mut self, group: &str, is_new: bool, inherited: &ShareOptions) -> Imported {
        let mut seen: Vec<Mistake> = Vec::new();
        for mistake in std::mem::take(&mut self.mistakes) {
            if !seen.contains(&mistake) {
                seen.push(mistake);
            }
        }
        let mut imported =
            Imported { mistakes: seen, warnings: self.warnings, ..Imported::default() };
        if is_new && !self.found.is_empty() {
            let group = GroupSpec { name: group.to_owned(), ..GroupSpec::default() };
            imported.operations.push(Operation::CreateGroup { group });
            imported.places.push(String::new());
        }
        for Found { share, clients, place, .. } in self.found {
            let share = share_of(share, &clients, inherited);
            imported.operations.push(Operation::AddShare { group: group.to_owned(), share });
            imported.places.push(place);
        }
        imported
    }

    fn told(&self, place: Place, what: String, suggestion: Option<String>) -> Mistake {
        Mistake { operation: None, place: format!("{}:{place}", self.file), what, suggestion }
    }

    fn refuse(&mut self, error: ConfigurationError) {
        // Also one that was told before: each export that has a mistake is counted as not understood.
        self.mistakes.push(self.told(error.place, error.what, error.suggestion));
    }

    fn warn(&mut self, place: Place, what: String) {
        let warning = self.told(place, what, None);
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }

    /// What holds for all exports, wherever it is written.
    fn take_what_is_for_all(&mut self, items: &[Item]) {
        for item in items {
            let Value::Block(inner) = &item.value else { continue };
            if item.name.value.eq_ignore_ascii_case("EXPORT_DEFAULTS") {
                self.take_defaults(item, inner);
            } else if item.name.value.eq_ignore_ascii_case("NFS_CORE_PARAM") {
                for item in inner {
                    self.take_of_core(item).unwrap_or_else(|error| self.refuse(error));
                }
            }
        }
    }

    fn take_of_core(&mut self, item: &Item) -> Result<(), ConfigurationError> {
        match item.name.value.to_ascii_lowercase().as_str() {
            "mount_path_pseudo" => self.mounts_by_pseudo = boolean(item)?,
            "protocols" | "nfs_protocols" => self.versions = Some(versions_of_server(item)?),
            _ => {}
        }
        Ok(())
    }

    fn take_defaults(&mut self, block: &Item, items: &[Item]) {
        if std::mem::replace(&mut self.has_defaults, true) {
            self.refuse(mistake(block, "there is an EXPORT_DEFAULTS already".to_owned()));
            return;
        }
        let mut defaults = Permissions::default();
        let mut clients = Vec::new();
        for item in items {
            if let Some(outcome) = defaults.take(item) {
                outcome.unwrap_or_else(|error| self.refuse(error));
            } else if item.name.value.eq_ignore_ascii_case("CLIENT") {
                clients.extend(self.client(item));
            } else {
                self.leave_out(item);
            }
        }
        (self.defaults, self.default_clients) = (defaults, clients);
    }

    fn block(&mut self, item: &Item) {
        let Item { name, value } = item;
        let Value::Block(items) = value else {
            self.refuse(mistake(item, format!("{} stands in no block", shown(&name.value))));
            return;
        };
        if name.value.eq_ignore_ascii_case("EXPORT") {
            return self.export(item, items);
        }
        if name.value.eq_ignore_ascii_case("EXPORT_DEFAULTS") {
            return;
        }
        let known = BLOCKS.iter().find(|(known, _)| known.eq_ignore_ascii_case(&name.value));
        let Some((known, instead)) = known else {
            let names =
                ["EXPORT", "EXPORT_DEFAULTS"].into_iter().chain(BLOCKS.map(|(name, _)| name));
            self.refuse(ConfigurationError {
                place: name.place,
                what: format!("unknown block {}", shown(&name.value)),
                suggestion: nearest(&name.value, names).map(String::from),
            });
            return;
        };
        for item in items {
            let refused = REFUSED.iter().find(|(block, parameter, _)| {
                block.eq_ignore_ascii_case(&name.value)
                    && parameter.eq_ignore_ascii_case(&item.name.value)
            });
            if let Some((block, parameter, instead)) = refused
                && !is_harmless(item)
            {
                self.is_lost = true;
                let what = format!("{parameter} of {block} cannot be said here: {instead}");
                self.refuse(mistake(item, what));
            }
        }
        self.warn(name.place, format!("{known} is not taken over. Here it is: {instead}"));
    }

    /// A parameter that is no right: left out if it is known.
    fn leave_out(&mut self, item: &Item) {
        let name = &item.name;
        let known = OF_EXPORT.iter().find(|(known, _)| known.eq_ignore_ascii_case(&name.value));
        if let Some((known, meaning)) = known {
            self.warn(name.place, format!("{known} {meaning}"));
            return;
        }
        let own = ["Export_Id", "Path", "Pseudo", "Clients", "CLIENT", "FSAL"];
        let names = OF_EXPORT.map(|(name, _)| name);
        let names = names.into_iter().chain(permissions::NAMES).chain(own);
        self.refuse(ConfigurationError {
            place: name.place,
            what: format!("unknown parameter {}", shown(&name.value)),
            suggestion: nearest(&name.value, names).map(String::from),
        });
    }

    /// Reads a `CLIENT` block. Of one with a mistake nothing is taken.
    fn client(&mut self, block: &Item) -> Option<Client> {
        let Value::Block(items) = &block.value else {
            self.refuse(mistake(block, "CLIENT is a block".to_owned()));
            return None;
        };
        let before = self.mistakes.len();
        let mut permissions = Permissions::default();
        let mut patterns = Vec::new();
        for item in items {
            if let Some(outcome) = permissions.take(item) {
                outcome.unwrap_or_else(|error| self.refuse(error));
            } else if item.name.value.eq_ignore_ascii_case("Clients") {
                match unquoted(item).and_then(|()| words(item)) {
                    Ok(words) => {
                        for word in words {
                            let pattern = self.pattern(word);
                            patterns.extend(pattern.map(|pattern| (word.clone(), pattern)));
                        }
                    }
                    Err(error) => self.refuse(error),
                }
            } else {
                self.leave_out(item);
            }
        }
        if patterns.is_empty() && self.mistakes.len() == before {
            self.refuse(mistake(block, "CLIENT names no Clients".to_owned()));
        }
        (self.mistakes.len() == before).then_some(Client { patterns, permissions })
    }

    fn pattern(&mut self, word: &Placed<String>) -> Option<ClientPattern> {
        let text = word.value.as_str();
        if matches!(text, "*" | "0.0.0.0") {
            return Some(ClientPattern::Any);
        }
        if spans_mapped(text) {
            let what =
                format!("{} is IPv4 written as IPv6, which no client has there", shown(text));
            self.refuse(ConfigurationError { place: word.place, what, suggestion: None });
            return None;
        }
        let refuse =
            |what: String| ConfigurationError { place: word.place, what, suggestion: None };
        // There a pattern is held against the address as text, too.
        let is_wildcard = text.contains(['*', '?', '[']);
        if is_wildcard && text.bytes().all(|b| b.is_ascii_digit() || b".*?[]!-:".contains(&b)) {
            let what = format!("{} is for addresses: write it as a network", shown(text));
            self.refuse(refuse(what));
            return None;
        }
        let length = text.split_once('/').map(|(_, length)| length);
        if length.is_some_and(|length| !(1..=99).contains(&number(length).unwrap_or(0))) {
            self.refuse(refuse(format!("{} is no network there", shown(text))));
            return None;
        }
        let pattern: ClientPattern = match text.parse() {
            Ok(pattern) => pattern,
            Err(PatternError { what, suggestion }) => {
                // Bits beyond a network's length count for nothing there.
                let network = suggestion.as_deref().and_then(|text| text.parse().ok());
                let Some(network) = network else {
                    self.refuse(ConfigurationError { place: word.place, what, suggestion });
                    return None;
                };
                self.warn(word.place, format!("{what}: they are left out"));
                network
            }
        };
        if let Some(what) = pattern.matches_nobody() {
            self.warn(word.place, what);
        }
        Some(pattern)
    }

    fn export(&mut self, block: &Item, items: &[Item]) {
        if items.iter().any(|item| back_end(item).is_ok_and(|name| name.value == "PSEUDO")) {
            return self.export_of_pseudo_root(block, items);
        }
        let before = self.mistakes.len();
        let mut export = Export::default();
        for item in items {
            if let Err(error) = self.take_of_export(&mut export, item) {
                self.refuse(error);
            }
        }
        if self.mistakes.len() == before
            && let Err(error) =
                self.check_ids(block, &export).and_then(|()| is_of_directory(block, &export))
        {
            self.refuse(error);
        }
        let Some(path) = export.path.clone() else {
            self.is_lost = true;
            return self.refuse(mistake(block, "EXPORT has no Path".to_owned()));
        };
        let clients = self.clients(block, &export);
        let paths =
            if self.mistakes.len() == before { self.paths(&export, &path) } else { Vec::new() };
        let mut directory = ShareSpec { path: path.value.clone(), ..ShareSpec::default() };
        directory.check();
        if export.pseudo.is_none() && self.claims.contains_key(&directory.path) {
            let told = shown(&path.value);
            let what = format!("another export has the Path {told}, and this one has no Pseudo");
            self.refuse(ConfigurationError { place: path.place, what, suggestion: None });
        }
        // Of an export with a mistake nobody gets anything: without it others might get more.
        let is_understood = self.mistakes.len() == before;
        let claim = Claim {
            place: (self.file.clone(), path.place),
            clients: is_understood.then(|| clients.clone()),
            is_mounted_by_path: paths.iter().any(|share| share.directory.is_none()),
        };
        self.claims.entry(directory.path.clone()).or_default().push(claim);
        if !is_understood || clients.is_empty() {
            return;
        }
        for share in paths {
            if !self.paths.insert(share.path.clone()) {
                let what = format!(
                    "another export is mounted by {} already, and that one counts",
                    shown(&share.path)
                );
                self.warn(path.place, what);
                continue;
            }
            let (clients, place) = (clients.clone(), format!("{}:{}", self.file, path.place));
            self.found.push(Found { share, clients, place, path: directory.path.clone() });
        }
    }

    /// What only leads to other exports is left out, unless it keeps somebody from them.
    fn export_of_pseudo_root(&mut self, block: &Item, items: &[Item]) {
        for item in items {
            let is_named = |name: &str| item.name.value.eq_ignore_ascii_case(name);
            let is_closed = is_named("Access_Type")
                && word(item).is_ok_and(|word| word.value.eq_ignore_ascii_case("None"));
            let is_narrow = ["CLIENT", "SecType", "PrivilegedPort"].into_iter().any(is_named);
            if is_closed || (is_narrow && !is_harmless(item)) {
                self.is_lost = true;
                let what = format!(
                    "{} of FSAL PSEUDO cannot be said here: every client sees the directories that lead to its shares",
                    item.name.value
                );
                self.refuse(mistake(item, what));
            }
        }
        let what = "the export of FSAL PSEUDO is not needed: NFSv4 shows the directories that lead to shares";
        self.warn(block.name.place, what.to_owned());
    }

    /// Who comes to a directory by the share of one above it has the rights of that share. So directories that are
    /// exported with other rights than one above them, or than the same by NFSv3, are refused, both of them.
    fn refuse_ambiguous_directories(&mut self) {
        let claims = std::mem::take(&mut self.claims);
        let mut refused = HashSet::new();
        let mut mistakes = Vec::new();
        let rights = |claim: &Claim| claim.clients.clone();
        for (path, own) in &claims {
            let above = std::path::Path::new(path).ancestors().skip(1);
            let above = above.filter_map(|path| path.to_str());
            for (outer, others) in above.filter_map(|path| claims.get_key_value(path)) {
                let differs = own.iter().chain(others).any(|claim| rights(claim).is_none())
                    || own
                        .iter()
                        .any(|own| others.iter().any(|other| rights(own) != rights(other)));
                if differs {
                    refused.extend([path.clone(), outer.clone()]);
                    let what = format!(
                        "it is within {}, which is exported with other rights, or one of both was not understood: who may use that would have it with \
                         those. Leave one of them out, or share a file system of its own",
                        shown(outer)
                    );
                    mistakes.extend(own.iter().map(|claim| (claim.place.clone(), what.clone())));
                }
            }
            let mut by_path = own.iter().filter(|claim| claim.is_mounted_by_path);
            if let Some(first) = by_path.next()
                && let Some(other) = by_path.find(|other| rights(other) != rights(first))
            {
                refused.insert(path.clone());
                let what = format!(
                    "another export of {} has other rights, and clients of NFSv3 get one of them: give one of them \
                     Protocols = 4",
                    shown(path)
                );
                mistakes.push((other.place.clone(), what));
            }
        }
        self.found.retain(|found| !refused.contains(&found.path));
        mistakes.sort();
        mistakes.dedup();
        for ((file, place), what) in mistakes {
            self.file = file;
            self.refuse(ConfigurationError { place, what, suggestion: None });
        }
    }

    fn take_of_export(
        &mut self,
        export: &mut Export,
        item: &Item,
    ) -> Result<(), ConfigurationError> {
        if let Some(outcome) = export.permissions.take(item) {
            return outcome;
        }
        let twice = || mistake(item, format!("{} is set twice", item.name.value));
        let once = |is_new: bool| if is_new { Ok(()) } else { Err(twice()) };
        match item.name.value.to_ascii_lowercase().as_str() {
            "export_id" => {
                unquoted(item)?;
                let Placed { value, place } = word(item)?.clone();
                let id = number(&value).filter(|id| u16::try_from(*id).is_ok());
                let Some(value) = id else {
                    let what =
                        format!("Export_Id needs a number up to 65535, not {}", shown(&value));
                    return Err(ConfigurationError { place, what, suggestion: None });
                };
                once(export.id.replace(Placed { value, place }).is_none())
            }
            "path" => once(export.path.replace(word(item)?.clone()).is_none()),
            "pseudo" => once(export.pseudo.replace(word(item)?.clone()).is_none()),
            "client" => {
                export.clients.extend(self.client(item));
                Ok(())
            }
            "fsal" => once(export.back_end.replace(back_end(item)?).is_none()),
            _ => {
                self.leave_out(item);
                Ok(())
            }
        }
    }

    fn check_ids(&mut self, block: &Item, export: &Export) -> Result<(), ConfigurationError> {
        let Some(Placed { value, place }) = export.id else {
            return Err(mistake(block, "EXPORT has no Export_Id".to_owned()));
        };
        let is_root = export.pseudo.as_ref().is_some_and(|pseudo| pseudo.value == "/");
        let says_4 = export.permissions.versions.is_some_and(|[_, by_4]| by_4);
        if value == 0 && !(is_root && says_4) {
            let what = "Export_Id 0 is for Pseudo = / with Protocols = 4 alone".to_owned();
            return Err(ConfigurationError { place, what, suggestion: None });
        }
        if says_4 && export.pseudo.is_none() {
            let what = "without Pseudo it is not served there, as it says Protocols = 4".to_owned();
            return Err(ConfigurationError { place, what, suggestion: None });
        }
        if let Some(Placed { value, place }) = &export.pseudo
            && !self.pseudos.insert(value.clone())
        {
            let (place, what) = (*place, format!("another export has the Pseudo {}", shown(value)));
            return Err(ConfigurationError { place, what, suggestion: None });
        }
        if !self.ids.insert(value) {
            let what = format!("another export has the Export_Id {value}");
            return Err(ConfigurationError { place, what, suggestion: None });
        }
        Ok(())
    }

    /// Who may use an export, in the order in which they are asked.
    fn clients(&mut self, block: &Item, export: &Export) -> Vec<Entitled> {
        let all = export.permissions.or(&self.defaults);
        let blocks = if export.clients.is_empty() {
            std::mem::take(&mut self.default_clients)
        } else {
            Vec::new()
        };
        let named = if export.clients.is_empty() { &blocks } else { &export.clients };
        let mut entitled = Vec::new();
        let mut seen = Coverage::default();
        for client in named {
            let permissions = client.permissions.or(&all);
            let place = client.patterns.first().map_or(block.name.place, |(word, _)| word.place);
            let Some(mut options) = self.options(place, &permissions) else { continue };
            match (self.versions_of(&permissions), self.versions_of(&all)) {
                ([false, false], _) => {
                    options = options.changed(|access| access.is_denied = true);
                }
                (own, all) if own != all => {
                    let what = "versions are the same for all clients of a share here: Protocols of a CLIENT";
                    self.refuse(ConfigurationError {
                        place,
                        what: what.to_owned(),
                        suggestion: None,
                    });
                }
                _ => {}
            }
            for (word, pattern) in &client.patterns {
                if let Some((by, _)) = seen.covering(pattern) {
                    let by = shown(&by.to_string());
                    let what =
                        format!("{} counts for nothing: {by} is before it", shown(&word.value));
                    self.warn(word.place, what);
                    continue;
                }
                seen.add(pattern, Field::Client(entitled.len()));
                entitled.push(Entitled { pattern: pattern.clone(), options: options.clone() });
            }
        }
        // Whoever is in no block has what the export says.
        if seen.covering(&ClientPattern::Any).is_none() {
            let everybody = self.options(block.name.place, &all);
            let pattern = ClientPattern::Any;
            entitled.extend(everybody.map(|options| Entitled { pattern, options }));
        }
        self.refuse_uncertain_limits(block, &entitled);
        if export.clients.is_empty() {
            self.default_clients = blocks;
        }
        // Who comes last and gets nothing need not be named.
        while entitled.last().is_some_and(|last| last.options.access.is_denied) {
            entitled.pop();
        }
        if entitled.is_empty() {
            let what = "nobody may use it, so it is left out: Access_Type is None, which it is if it is not set";
            self.warn(block.name.place, what.to_owned());
        }
        entitled
    }

    /// Who is one of a group by his name may not be one here, where names have to be those of addresses both ways. Then
    /// he gets what comes later, which must not be more.
    fn refuse_uncertain_limits(&mut self, block: &Item, entitled: &[Entitled]) {
        for (at, client) in entitled.iter().enumerate() {
            let is_uncertain =
                matches!(client.pattern, ClientPattern::Domain(_) | ClientPattern::Netgroup(_));
            let mut later = entitled.iter().skip(at + 1);
            if is_uncertain && later.any(|later| !is_within(&later.options, &client.options)) {
                let what = format!(
                    "{} gets less than clients after it, and a host whose name is not certain would get that: name \
                     networks or addresses",
                    shown(&client.pattern.to_string())
                );
                self.refuse(mistake(block, what));
            }
        }
    }

    /// By which of versions 3 and 4 it is served.
    fn versions_of(&self, permissions: &Permissions) -> [bool; 2] {
        let [all_3, all_4] = self.versions.unwrap_or([true, true]);
        let [by_3, by_4] = permissions.versions.unwrap_or([true, true]);
        [by_3 && all_3, by_4 && all_4]
    }

    fn options(&mut self, place: Place, permissions: &Permissions) -> Option<ShareOptions> {
        if permissions.squashes_root_id() {
            let what = "Squash = RootId becomes root_squash: root's groups are taken from him, too";
            self.warn(place, what.to_owned());
        }
        let is_served = permissions.access.is_some_and(|access| access != AccessType::None);
        if is_served && permissions.has_all_transports == Some(false) {
            let what = "Transports is not taken over: shares are served over TCP, and by NFSv3 over UDP, unless \
                        `udp = false` in [server]";
            self.warn(place, what.to_owned());
        }
        match permissions.options() {
            Ok(options) => Some(options),
            Err(what) => {
                self.refuse(ConfigurationError { place, what, suggestion: None });
                None
            }
        }
    }

    /// The shares that an export becomes: one for each path that clients mount it by.
    fn paths(&mut self, export: &Export, path: &Placed<String>) -> Vec<ShareSpec> {
        let versions = self.versions_of(&export.permissions.or(&self.defaults));
        if versions == [false, false] {
            self.warn(path.place, "Protocols names no NFS: it is left out".to_owned());
            return Vec::new();
        }
        let needs_pseudo = self.mounts_by_pseudo || versions == [false, true];
        if needs_pseudo && export.pseudo.is_none() {
            let what = "without Pseudo it is not served there".to_owned();
            self.refuse(ConfigurationError { place: path.place, what, suggestion: None });
            return Vec::new();
        }
        let by_4 = versions[1] && export.pseudo.is_some();
        if versions[0] != by_4 {
            let (only, other) = if by_4 { (4, 3) } else { (3, 4) };
            let what =
                format!("it is for NFSv{only} only there; here NFSv{other} serves it as well");
            self.warn(path.place, what);
        }
        let mut paths = Vec::new();
        if versions[0] && !self.mounts_by_pseudo {
            paths.push(path);
        }
        match &export.pseudo {
            Some(pseudo) if pseudo.value == "/" && path.value != "/" => {
                let what = format!(
                    "Pseudo = \"/\" is not taken over: clients of NFSv4 mount {}, or / to see every share",
                    shown(&path.value)
                );
                self.warn(pseudo.place, what);
            }
            Some(pseudo) if pseudo.value != path.value && (by_4 || self.mounts_by_pseudo) => {
                paths.push(pseudo);
            }
            _ => {}
        }
        if paths.is_empty() {
            paths.push(path);
        }
        paths.into_iter().filter_map(|mounted| self.share(mounted, path)).collect()
    }

    /// A share under one of its paths.
    fn share(&mut self, mounted: &Placed<String>, path: &Placed<String>) -> Option<ShareSpec> {
        let mut share = ShareSpec {
            path: mounted.value.clone(),
            directory: (mounted.value != path.value).then(|| path.value.clone()),
            ..ShareSpec::default()
        };
        let mistakes = share.check();
        for mistake in &mistakes {
            let what = mistake.what.told(|field| field.to_string());
            let suggestion = mistake.suggestion.clone();
            self.refuse(ConfigurationError { place: mounted.place, what, suggestion });
        }
        mistakes.is_empty().then_some(share)
    }
}

/// Whether a parameter that may keep somebody out does not.
fn is_harmless(item: &Item) -> bool {
    match &item.value {
        Value::Words(Words { words, .. }) => words
            .iter()
            .all(|word| HARMLESS.iter().any(|harmless| harmless.eq_ignore_ascii_case(&word.value))),
        Value::Block(_) => false,
    }
}

/// Fails unless a directory of this host is exported.
fn is_of_directory(block: &Item, export: &Export) -> Result<(), ConfigurationError> {
    let Some(Placed { value: name, place }) = &export.back_end else {
        return Err(mistake(block, "EXPORT has no FSAL".to_owned()));
    };
    if LOCAL.iter().any(|local| local.eq_ignore_ascii_case(name)) {
        return Ok(());
    }
    let what = format!(
        "FSAL {} does not keep its files in a directory of this host: only {} can be taken over",
        shown(name),
        LOCAL.join(" and ")
    );
    Err(ConfigurationError { place: *place, what, suggestion: None })
}

/// The back end of an export; of one that stands upon another, the lowest.
fn back_end(item: &Item) -> Result<Placed<String>, ConfigurationError> {
    let is_named = |item: &Item, name: &str| item.name.value.eq_ignore_ascii_case(name);
    let Value::Block(items) = &item.value else {
        return Err(mistake(item, "FSAL is a block".to_owned()));
    };
    if !is_named(item, "FSAL") {
        return Err(mistake(item, "no FSAL".to_owned()));
    }
    let mut names = items.iter().filter(|inner| is_named(inner, "Name"));
    let (name, other) = (names.next().map(word).transpose()?, names.next());
    let Some(name) = name.filter(|_| other.is_none()) else {
        return Err(mistake(item, "FSAL needs one Name".to_owned()));
    };
    let mut name = name.clone();
    name.value.make_ascii_uppercase();
    let Some(below) = items.iter().find(|inner| is_named(inner, "FSAL")) else { return Ok(name) };
    if !STACKED.contains(&name.value.as_str()) {
        let what = format!("FSAL {} upon another cannot be taken over", shown(&name.value));
        return Err(ConfigurationError { place: name.place, what, suggestion: None });
    }
    back_end(below)
}
