//! From the blocks of `ganesha.conf` to operations.

use std::collections::HashSet;

use steadfast_shares::{
    ClientPattern, Coverage, Field, Inherited, PatternError, ShareOptions, nearest, shown,
};

use super::permissions::{self, AccessType, Permissions, boolean, mistake, number, word, words};
use super::text::{Item, Value, read};
use super::words::{BLOCKS, LOCAL, OF_EXPORT};
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
    if !can_go_on {
        import.found.clear();
    }
    import.imported(group, is_new, &inherited.options)
}

/// A share of an export.
struct Found {
    share: ShareSpec,
    clients: Vec<Entitled>,
    place: String,
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
    ids: HashSet<u32>,
    /// Paths of shares.
    paths: HashSet<String>,
    found: Vec<Found>,
    mistakes: Vec<Mistake>,
    warnings: Vec<Mistake>,
}

impl Import {
    fn imported(self, group: &str, is_new: bool, inherited: &ShareOptions) -> Imported {
        let mut imported =
            Imported { mistakes: self.mistakes, warnings: self.warnings, ..Imported::default() };
        if is_new && !self.found.is_empty() {
            let group = GroupSpec { name: group.to_owned(), ..GroupSpec::default() };
            imported.operations.push(Operation::CreateGroup { group });
            imported.places.push(String::new());
        }
        for Found { share, clients, place } in self.found {
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
        let mistake = self.told(error.place, error.what, error.suggestion);
        if !self.mistakes.contains(&mistake) {
            self.mistakes.push(mistake);
        }
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
                let is_meant =
                    |item: &&Item| item.name.value.eq_ignore_ascii_case("mount_path_pseudo");
                match inner.iter().find(is_meant).map(boolean) {
                    Some(Ok(is_so)) => self.mounts_by_pseudo = is_so,
                    Some(Err(error)) => self.refuse(error),
                    None => {}
                }
            }
        }
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
                match words(item) {
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
        // There a pattern is held against the address as text, too.
        let is_wildcard = text.contains(['*', '?', '[']);
        if is_wildcard && text.bytes().all(|b| b.is_ascii_digit() || b".*?[]!-:".contains(&b)) {
            let what = format!("{} is for addresses: write it as a network", shown(text));
            self.refuse(ConfigurationError { place: word.place, what, suggestion: None });
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
        let before = self.mistakes.len();
        let mut export = Export::default();
        for item in items {
            if let Err(error) = self.take_of_export(&mut export, item) {
                self.refuse(error);
            }
        }
        if let Err(error) = self.check_ids(block, &export) {
            self.refuse(error);
        }
        let Some(path) = export.path.clone() else {
            return self.refuse(mistake(block, "EXPORT has no Path".to_owned()));
        };
        match self.is_of_directory(block, &export) {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => return self.refuse(error),
        }
        let clients = self.clients(block, &export);
        if clients.is_empty() {
            return;
        }
        let paths = self.paths(&export, &path);
        // Of an export with a mistake nobody gets anything: without it others might get more.
        if self.mistakes.len() > before {
            return;
        }
        for share in paths {
            let (clients, place) = (clients.clone(), format!("{}:{}", self.file, path.place));
            self.found.push(Found { share, clients, place });
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
        if !self.ids.insert(value) {
            let what = format!("another export has the Export_Id {value}");
            return Err(ConfigurationError { place, what, suggestion: None });
        }
        Ok(())
    }

    /// Whether a directory of this host is exported; what only leads to other exports is left out.
    fn is_of_directory(
        &mut self,
        block: &Item,
        export: &Export,
    ) -> Result<bool, ConfigurationError> {
        let Some(Placed { value: name, place }) = &export.back_end else {
            return Err(mistake(block, "EXPORT has no FSAL".to_owned()));
        };
        if name.eq_ignore_ascii_case("PSEUDO") {
            let what = "the export of FSAL PSEUDO is not needed: NFSv4 shows the directories that lead to shares";
            self.warn(*place, what.to_owned());
            return Ok(false);
        }
        if !LOCAL.iter().any(|local| local.eq_ignore_ascii_case(name)) {
            let what = format!(
                "FSAL {} does not keep its files in a directory of this host: only {} can be taken over",
                shown(name),
                LOCAL.join(" and ")
            );
            return Err(ConfigurationError { place: *place, what, suggestion: None });
        }
        Ok(true)
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
            let Some(options) = self.options(place, &permissions) else { continue };
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
        let everybody = self.options(block.name.place, &all);
        if seen.covering(&ClientPattern::Any).is_none() {
            entitled
                .extend(everybody.map(|options| Entitled { pattern: ClientPattern::Any, options }));
        }
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
        let versions = export.permissions.or(&self.defaults).versions.unwrap_or([true, true]);
        if versions == [false, false] {
            self.warn(path.place, "Protocols names no NFS: it is left out".to_owned());
            return Vec::new();
        }
        if let [by_3, by_4] = versions
            && by_3 != by_4
        {
            let (only, other) = if by_3 { (3, 4) } else { (4, 3) };
            let what =
                format!("it is for NFSv{only} only there; here NFSv{other} serves it as well");
            self.warn(path.place, what);
        }
        let mut paths = Vec::new();
        if versions[0] && !self.mounts_by_pseudo {
            paths.push(path);
        }
        if let Some(pseudo) = &export.pseudo
            && (versions[1] || self.mounts_by_pseudo)
            && pseudo.value != path.value
        {
            paths.push(pseudo);
        } else if !paths.iter().any(|known| known.value == path.value) {
            paths.push(path);
        }
        paths.into_iter().filter_map(|mounted| self.share(mounted, path)).collect()
    }

    /// A share under one of its paths.
    fn share(&mut self, mounted: &Placed<String>, path: &Placed<String>) -> Option<ShareSpec> {
        if mounted.value == "/" && path.value != "/" {
            let what = format!(
                "Pseudo = \"/\" is not taken over: clients of NFSv4 mount {}, or / to see every share",
                shown(&path.value)
            );
            self.warn(mounted.place, what);
            return None;
        }
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
        if !mistakes.is_empty() {
            return None;
        }
        if !self.paths.insert(share.path.clone()) {
            let what = format!(
                "another export is mounted by {} already, and that one counts",
                shown(&share.path)
            );
            self.warn(mounted.place, what);
            return None;
        }
        Some(share)
    }
}

/// The back end of an export; of one that stands upon another, the lowest.
fn back_end(item: &Item) -> Result<Placed<String>, ConfigurationError> {
    let Value::Block(items) = &item.value else {
        return Err(mistake(item, "FSAL is a block".to_owned()));
    };
    let below = items.iter().find(|inner| inner.name.value.eq_ignore_ascii_case("FSAL"));
    if let Some(below) = below {
        return back_end(below);
    }
    let name = items.iter().find(|inner| inner.name.value.eq_ignore_ascii_case("Name"));
    match name {
        Some(name) => word(name).cloned(),
        None => Err(mistake(item, "FSAL has no Name".to_owned())),
    }
}
