//! From words to rules: what a share's options, clients and rules mean together with what it
//! inherits.
//!
//! Shares that say the same have one [`RuleSet`] together ([`RuleBook`]), and their words are read
//! once: fifteen thousand shares of a group cost one list of clients.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use hashbrown::HashTable;

use crate::clients::ClientPattern;
use crate::coverage::Coverage;
use crate::options::{ClientLists, ShareOptions};
use crate::quoted::shown;
use crate::rules::{ClientRule, RuleSet};
use crate::size::Size;
use crate::words::{KeptWords, RuleSpec, Words};

/// A place within a share, a group or a pattern as it is written. Shown as `rule[0].clients[1]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Field {
    /// The whole.
    Whole,
    /// A key.
    Key(&'static str),
    /// An option word.
    Option(usize),
    /// A client of the list.
    Client(usize),
    /// A rule.
    Rule(usize),
    /// An option word of a rule.
    RuleOption(usize, usize),
    /// A client of a rule.
    RuleClient(usize, usize),
}

impl std::fmt::Display for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole => Ok(()),
            Self::Key(key) => f.write_str(key),
            Self::Option(index) => write!(f, "options[{index}]"),
            Self::Client(index) => write!(f, "clients[{index}]"),
            Self::Rule(rule) => write!(f, "rule[{rule}]"),
            Self::RuleOption(rule, index) => write!(f, "rule[{rule}].options[{index}]"),
            Self::RuleClient(rule, index) => write!(f, "rule[{rule}].clients[{index}]"),
        }
    }
}

/// What is wrong with a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldMistake {
    /// Where.
    pub field: Field,
    /// What.
    pub what: Problem,
    /// What was probably meant.
    pub suggestion: Option<String>,
}

/// What may be wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// In words.
    Said(String),
    /// A client that has an earlier rule.
    Covered {
        /// The client.
        pattern: String,
        /// That rule's client.
        by: String,
        /// Where that is.
        at: Field,
    },
}

impl Problem {
    /// In words, with other fields told as `tell` does.
    pub fn told(&self, tell: impl Fn(Field) -> String) -> String {
        match self {
            Self::Said(what) => what.clone(),
            Self::Covered { pattern, by, at } => format!(
                "{} can never match: {} at {} covers it, and the first match decides",
                shown(pattern),
                shown(by),
                tell(*at)
            ),
        }
    }
}

impl FieldMistake {
    /// One that is told in words.
    pub fn new(field: Field, what: impl Into<String>) -> Self {
        Self { field, what: Problem::Said(what.into()), suggestion: None }
    }
}

/// What a share has if it does not say otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inherited {
    /// Its options.
    pub options: ShareOptions,
    /// Who may use it.
    pub clients: Vec<ClientPattern>,
    /// `clients` as they were written.
    pub client_words: Vec<String>,
    /// Plug-ins that serve it; none for NFS alone.
    pub protocols: Vec<String>,
}

impl Inherited {
    /// What is inherited by those within: these words, and this where they say nothing.
    pub fn with(
        &self,
        options: &[String],
        clients: &[String],
        protocols: &[String],
    ) -> (Self, Vec<FieldMistake>) {
        let mut mistakes = Vec::new();
        let (options, own_lists) =
            read_options(&self.options, options, Field::Option, &mut mistakes);
        let mut inner = Self { options, ..self.clone() };
        if !clients.is_empty() {
            inner.clients = read_clients(clients, Field::Client, &mut mistakes);
            client_words_of(clients, &mut inner.client_words);
            if !own_lists {
                inner.options.lists.access.clear();
            }
        } else if own_lists {
            inner.clients.clear();
            inner.client_words.clear();
        }
        if !protocols.is_empty() {
            inner.protocols = protocols.to_vec();
        }
        (inner, mistakes)
    }
}

fn client_words_of(clients: &[String], words: &mut Vec<String>) {
    words.clear();
    words.extend_from_slice(clients);
}

/// What words mean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compiled {
    /// Who may do what.
    pub rules: Arc<RuleSet>,
    /// Whether file systems mounted below the directory are served too.
    pub crosses_mounts: bool,
    /// Where something has to be mounted; the empty path is the share's directory.
    pub required_mounts: Arc<[Arc<str>]>,
    /// How much it may have of its file system.
    pub size: Option<Size>,
}

/// Sets of rules that shares have together.
#[derive(Clone, Debug, Default)]
pub struct RuleBook {
    hasher: RandomState,
    recipes: HashTable<Recipe>,
    sets: HashTable<Arc<RuleSet>>,
}

/// Words that were read, and what they mean.
#[derive(Clone, Debug)]
struct Recipe {
    hash: u64,
    inherited: Arc<Inherited>,
    words: Arc<KeptWords>,
    outcome: Result<Compiled, Arc<[FieldMistake]>>,
}

impl RuleBook {
    /// Recipes that are kept though no share may use them any more.
    const SPARE_MAX: usize = 4096;

    /// The meaning of a share's words, or all mistakes in them.
    pub fn compile(
        &mut self,
        inherited: &Arc<Inherited>,
        words: Words<'_>,
    ) -> Result<Compiled, Arc<[FieldMistake]>> {
        self.compile_kept(inherited, &Arc::new(words.into())).0
    }

    /// As [`RuleBook::compile`]; with the words as they are kept here, for others who keep them.
    pub fn compile_kept(
        &mut self,
        inherited: &Arc<Inherited>,
        words: &Arc<KeptWords>,
    ) -> (Result<Compiled, Arc<[FieldMistake]>>, Arc<KeptWords>) {
        let hash = self.hasher.hash_one((Arc::as_ptr(inherited) as usize, words));
        let known = self.recipes.find(hash, |recipe| {
            recipe.hash == hash
                && Arc::ptr_eq(&recipe.inherited, inherited)
                && recipe.words == *words
        });
        if let Some(recipe) = known {
            return (recipe.outcome.clone(), Arc::clone(&recipe.words));
        }
        let outcome = compile(inherited, words.words()).map(|(rules, options)| Compiled {
            rules: self.shared(rules),
            crosses_mounts: options.crosses_mounts,
            required_mounts: options.required_mounts.into(),
            size: options.size,
        });
        if self.recipes.len() >= Self::SPARE_MAX {
            self.forget_unused();
        }
        let recipe = Recipe {
            hash,
            inherited: Arc::clone(inherited),
            words: Arc::clone(words),
            outcome: outcome.clone(),
        };
        self.recipes.insert_unique(hash, recipe, |recipe| recipe.hash);
        (outcome, Arc::clone(words))
    }

    /// The one set of these rules.
    fn shared(&mut self, rules: Vec<ClientRule>) -> Arc<RuleSet> {
        let hash = self.hasher.hash_one(&*rules);
        if let Some(set) = self.sets.find(hash, |set| *set.rules() == *rules) {
            return Arc::clone(set);
        }
        let set = Arc::new(RuleSet::new(rules));
        let hasher = &self.hasher;
        self.sets.insert_unique(hash, Arc::clone(&set), |set| hasher.hash_one(set.rules()));
        set
    }

    /// Lets go of what no share uses. The recipes of many shares that all differ are let go too:
    /// they are of no use to others.
    fn forget_unused(&mut self) {
        self.recipes.clear();
        self.sets.retain(|set| Arc::strong_count(set) > 1);
    }

    /// How many different sets there are.
    pub fn sets(&self) -> usize {
        self.sets.len()
    }
}

/// Reads a share's words. Its rules in the order in which they are asked: those that options
/// name (`none=`, `root=`, `rw=` and `ro=`), `[[share.rule]]`, and its clients.
fn compile(
    inherited: &Inherited,
    words: Words<'_>,
) -> Result<(Vec<ClientRule>, ShareOptions), Arc<[FieldMistake]>> {
    let mut mistakes = Vec::new();
    let (mut options, own_lists) =
        read_options(&inherited.options, words.options, Field::Option, &mut mistakes);
    let names_clients = !words.clients.is_empty() || !words.rules.is_empty();
    if names_clients && !own_lists {
        options.lists.access.clear();
    }
    let own = read_clients(words.clients, Field::Client, &mut mistakes);
    let is_inheriting = !names_clients && !own_lists;
    let clients = if is_inheriting { &inherited.clients } else { &own };
    if is_inheriting && clients.is_empty() && options.lists.access.is_empty() {
        mistakes.push(FieldMistake::new(
            Field::Whole,
            "the share has no clients: nobody could mount it; write clients = [\"*\"] to let \
             everybody in",
        ));
    }
    let too_many = |field| {
        let what = format!("the share has more than {} clients", RuleSet::RULES_MAX);
        FieldMistake::new(field, what)
    };
    let lists = &options.lists;
    if lists.none.len() + lists.root.len() + lists.access.len() > RuleSet::RULES_MAX {
        mistakes.push(too_many(Field::Key("options")));
        return Err(mistakes.into());
    }
    let mut rules = Rules { rules: from_lists(&options), coverage: Coverage::default() };
    options.lists = ClientLists::default();
    for (index, rule) in words.rules.iter().enumerate() {
        read_rule(&options, index, rule, &mut rules, &mut mistakes);
    }
    rules.add(clients, &options, Field::Client, &mut mistakes);
    if rules.rules.len() > RuleSet::RULES_MAX {
        // Not of the whole: that would be taken for there being none.
        mistakes.push(too_many(Field::Key("clients")));
    }
    if mistakes.is_empty() { Ok((rules.rules, options)) } else { Err(mistakes.into()) }
}

/// `[[share.rule]]`: options beside those of the share, for some clients.
fn read_rule(
    share_options: &ShareOptions,
    index: usize,
    rule: &RuleSpec,
    rules: &mut Rules,
    mistakes: &mut Vec<FieldMistake>,
) {
    let place = |option| Field::RuleOption(index, option);
    let (options, _) = read_options(share_options, &rule.options, place, mistakes);
    let at = |what: &str| {
        let option = rule.options.iter().position(|word| word.contains(what));
        option.map_or(Field::Rule(index), place)
    };
    if options.crosses_mounts != share_options.crosses_mounts {
        let what = "crossmnt holds for a share as a whole: write it there";
        mistakes.push(FieldMistake::new(at("crossmnt"), what));
    }
    if options.required_mounts != share_options.required_mounts {
        let what = "mp holds for a share as a whole: write it there";
        mistakes.push(FieldMistake::new(at("m"), what));
    }
    if options.size != share_options.size {
        let what = "size holds for a share as a whole: write it there";
        mistakes.push(FieldMistake::new(at("size"), what));
    }
    if options.lists != ClientLists::default() {
        let what = "lists of clients belong to a share's options: this rule has `clients`";
        mistakes.push(FieldMistake::new(at("="), what));
    }
    if rule.clients.is_empty() {
        mistakes.push(FieldMistake::new(Field::Rule(index), "the rule has no clients"));
    }
    let place = |client| Field::RuleClient(index, client);
    let clients = read_clients(&rule.clients, place, mistakes);
    rules.add(&clients, &options, place, mistakes);
}

/// The rules of a share as they are read.
struct Rules {
    rules: Vec<ClientRule>,
    coverage: Coverage,
}

impl Rules {
    /// Makes a rule of each pattern. One whose clients all have an earlier rule is a mistake: it
    /// was written to change something, and changes nothing. Within one list both would say the
    /// same, so there it is none.
    fn add(
        &mut self,
        patterns: &[ClientPattern],
        options: &ShareOptions,
        place: impl Fn(usize) -> Field,
        mistakes: &mut Vec<FieldMistake>,
    ) {
        for (index, pattern) in patterns.iter().enumerate() {
            if let Some((by, at)) = self.coverage.covering(pattern) {
                let (pattern, by) = (pattern.to_string(), by.to_string());
                let what = Problem::Covered { pattern, by, at };
                mistakes.push(FieldMistake { field: place(index), what, suggestion: None });
            }
        }
        let grants = options.grants();
        for (index, pattern) in patterns.iter().enumerate() {
            self.coverage.add(pattern, place(index));
            let grants = Arc::clone(&grants);
            self.rules.push(ClientRule { pattern: pattern.clone(), grants });
        }
    }
}

/// The rules that options name. A client of `root=` has the access that `rw=` or `ro=` give it
/// by the same words: that of the first of their clients that covers it, else that of the share.
/// Those of them that it covers in part have rules of their own before its.
fn from_lists(options: &ShareOptions) -> Vec<ClientRule> {
    let lists = &options.lists;
    let with_access = |is_read_only: bool| {
        options.changed(|access| {
            (access.is_read_only, access.is_denied) = (is_read_only, false);
        })
    };
    let as_root = |options: &ShareOptions| options.changed(|access| access.squashes_root = false);
    let rule = |pattern: &ClientPattern, options: &ShareOptions| ClientRule {
        pattern: pattern.clone(),
        grants: options.grants(),
    };
    let mut rules: Vec<ClientRule> = lists
        .none
        .iter()
        .map(|pattern| ClientRule { pattern: pattern.clone(), grants: Arc::new([]) })
        .collect();
    for pattern in &lists.root {
        let mut access = None;
        for (listed, is_read_only) in &lists.access {
            if listed.covers(pattern) {
                access = Some(with_access(*is_read_only));
                break;
            }
            if pattern.covers(listed) {
                rules.push(rule(listed, &as_root(&with_access(*is_read_only))));
            }
            if rules.len() > RuleSet::RULES_MAX {
                // Refused for it.
                return rules;
            }
        }
        rules.push(rule(pattern, &as_root(access.as_ref().unwrap_or(options))));
    }
    let access = lists.access.iter();
    rules.extend(access.map(|(pattern, is_read_only)| rule(pattern, &with_access(*is_read_only))));
    rules
}

/// The options that words make, and whether they name clients themselves.
fn read_options(
    inherited: &ShareOptions,
    words: &[String],
    place: impl Fn(usize) -> Field,
    mistakes: &mut Vec<FieldMistake>,
) -> (ShareOptions, bool) {
    let read = inherited.read(words);
    mistakes.extend(read.errors.into_iter().map(|(index, error)| FieldMistake {
        field: place(index),
        what: Problem::Said(error.what),
        suggestion: error.suggestion,
    }));
    (read.options, read.names_clients)
}

fn read_clients(
    words: &[String],
    place: impl Fn(usize) -> Field,
    mistakes: &mut Vec<FieldMistake>,
) -> Vec<ClientPattern> {
    let mut patterns = Vec::with_capacity(words.len());
    for (index, word) in words.iter().enumerate() {
        match word.parse::<ClientPattern>() {
            Ok(pattern) => patterns.push(pattern),
            Err(error) => mistakes.push(FieldMistake {
                field: place(index),
                what: Problem::Said(error.what),
                suggestion: error.suggestion,
            }),
        }
    }
    patterns
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::names::NoNames;
    use crate::rights::{Flavor, Rights, Squash};
    use crate::rules::{Decision, Question};

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(|word| (*word).to_owned()).collect()
    }

    fn rights(set: &RuleSet, client: &str) -> Option<Rights> {
        let client: IpAddr = client.parse().expect("an address");
        let question = Question { client, flavor: Flavor::Sys, from_privileged_port: true };
        match set.decide(&question, &NoNames) {
            Decision::Granted(place) => set.grant(place).cloned(),
            _ => None,
        }
    }

    fn compiled(inherited: &Inherited, options: &[&str], clients: &[&str]) -> Compiled {
        let (options, clients) = (words(options), words(clients));
        let words = Words { options: &options, clients: &clients, rules: &[] };
        RuleBook::default().compile(&Arc::new(inherited.clone()), words).expect("no mistakes")
    }

    #[test]
    fn shares_that_say_the_same_have_one_set() {
        let mut book = RuleBook::default();
        let (inherited, _) =
            Inherited::default().with(&words(&["ro"]), &words(&["10.0.0.0/8"]), &[]);
        // Another group that means the same.
        let groups = [Arc::new(inherited.clone()), Arc::new(inherited)];
        let mut sets = Vec::new();
        for group in &groups {
            for options in [words(&[]), words(&["ro"]), words(&["sync"])] {
                let words = Words { options: &options, clients: &[], rules: &[] };
                sets.push(book.compile(group, words).expect("no mistakes").rules);
            }
        }
        assert!(sets.iter().all(|set| Arc::ptr_eq(set, &sets[0])));
        assert_eq!(book.sets(), 1);
    }

    #[test]
    fn a_book_lets_go_of_what_nobody_uses() {
        let mut book = RuleBook::default();
        let inherited = Arc::new(Inherited::default());
        for n in 0..3 * RuleBook::SPARE_MAX {
            let clients = [format!("10.{}.{}.1", n / 256, n % 256)];
            let words = Words { options: &[], clients: &clients, rules: &[] };
            book.compile(&inherited, words).expect("no mistakes");
        }
        assert!(book.sets() <= RuleBook::SPARE_MAX && book.recipes.len() <= RuleBook::SPARE_MAX);
    }

    #[test]
    fn lists_in_options_name_clients() {
        let options = ["ro", "rw=10.0.0.1:10.0.0.2", "root=10.0.0.2:10.0.0.3", "none=10.0.0.4"];
        let set = compiled(&Inherited::default(), &options, &["10.0.0.0/8"]).rules;
        let seen = |client| rights(&set, client).map(|r| (r.is_read_only, r.squash));
        assert_eq!(seen("10.0.0.1"), Some((false, Squash::Root)));
        assert_eq!(seen("10.0.0.2"), Some((false, Squash::None)));
        assert_eq!(seen("10.0.0.3"), Some((true, Squash::None)));
        assert_eq!(seen("10.0.0.4"), None);
        assert_eq!(seen("10.0.0.5"), Some((true, Squash::Root)));
        assert_eq!(seen("11.0.0.1"), None);
    }

    #[test]
    fn who_names_clients_has_none_of_those_outside() {
        let (outer, mistakes) =
            Inherited::default().with(&words(&["rw=10.0.0.1", "root=10.0.0.9"]), &[], &[]);
        assert_eq!(mistakes, []);
        let let_in = |compiled: &Compiled| {
            ["10.0.0.1", "10.0.0.2", "10.0.0.9"]
                .map(|client| rights(&compiled.rules, client).is_some())
        };
        assert_eq!(let_in(&compiled(&outer, &[], &[])), [true, false, true]);
        assert_eq!(let_in(&compiled(&outer, &[], &["10.0.0.2"])), [false, true, true]);
        assert_eq!(let_in(&compiled(&outer, &["ro=10.0.0.2"], &[])), [false, true, true]);
        let (inner, _) = outer.with(&[], &words(&["10.0.0.2"]), &[]);
        assert_eq!(let_in(&compiled(&inner, &[], &[])), [false, true, true]);
    }

    #[test]
    fn a_list_that_is_like_the_inherited_one_is_its_own() {
        let (outer, _) = Inherited::default().with(&words(&["ro=10.0.0.1"]), &[], &[]);
        let own = compiled(&outer, &["ro=10.0.0.1"], &["10.0.0.0/8"]);
        let read_only = |client| rights(&own.rules, client).map(|rights| rights.is_read_only);
        assert_eq!(read_only("10.0.0.1"), Some(true));
        assert_eq!(read_only("10.0.0.2"), Some(false));
        let (inner, _) = outer.with(&words(&["ro=10.0.0.1"]), &words(&["10.0.0.0/8"]), &[]);
        let own = compiled(&inner, &[], &[]);
        assert_eq!(rights(&own.rules, "10.0.0.1").map(|rights| rights.is_read_only), Some(true));
        let (outer, _) =
            Inherited::default().with(&words(&["ro=10.0.0.1"]), &words(&["10.0.0.0/8"]), &[]);
        let (inner, _) = outer.with(&words(&["ro=10.0.0.1"]), &[], &[]);
        let own = compiled(&inner, &[], &[]);
        assert_eq!(rights(&own.rules, "10.0.0.2"), None, "a list without clients");
    }

    #[test]
    fn root_clients_have_the_access_that_lists_give_them() {
        let options =
            ["ro=10.0.0.0/8", "rw=10.1.0.0/16:192.0.2.1", "root=10.1.0.1:192.0.0.0/8:172.16.0.1"];
        let set = compiled(&Inherited::default(), &options, &[]).rules;
        let seen = |client| rights(&set, client).map(|r| (r.is_read_only, r.squash));
        assert_eq!(seen("10.1.0.1"), Some((true, Squash::None)), "the first list decides");
        assert_eq!(seen("192.0.2.1"), Some((false, Squash::None)));
        assert_eq!(seen("172.16.0.1"), Some((false, Squash::None)), "in no list: the share's");
        let options = ["ro", "rw=192.0.2.1", "root=192.0.0.0/8", "ro=192.0.3.0/24"];
        let set = compiled(&Inherited::default(), &options, &[]).rules;
        let seen = |client| rights(&set, client).map(|r| (r.is_read_only, r.squash));
        assert_eq!(seen("192.0.2.1"), Some((false, Squash::None)), "a part of root's clients");
        assert_eq!(seen("192.0.3.1"), Some((true, Squash::None)));
        let rule = |pattern: &str| {
            let pattern: ClientPattern = pattern.parse().expect("a pattern");
            let options = words(&["ro=*.x", "root=a.x"]);
            let words = Words { options: &options, clients: &[], rules: &[] };
            let made = RuleBook::default().compile(&Arc::default(), words).expect("no mistakes");
            let rules = made.rules.rules();
            rules.iter().find(|rule| rule.pattern == pattern).expect("a rule").grants.clone()
        };
        assert!(rule("a.x")[0].is_read_only);
    }

    #[test]
    fn too_many_clients_are_told() {
        let clients: Vec<String> =
            (0..=RuleSet::RULES_MAX).map(|n| format!("10.0.{}.{}", n / 256, n % 256)).collect();
        let told = |options: &[String], clients: &[String]| {
            let words = Words { options, clients, rules: &[] };
            let mistakes = RuleBook::default().compile(&Arc::default(), words);
            mistakes.expect_err("too many").iter().map(|m| m.field).collect::<Vec<_>>()
        };
        assert_eq!(told(&[], &clients), [Field::Key("clients")]);
        assert_eq!(told(&[format!("rw={}", clients.join(":"))], &[]), [Field::Key("options")]);
    }

    #[test]
    fn mistakes_are_told_by_their_field() {
        let rule = RuleSpec { clients: words(&["10.1.0.0/16"]), options: words(&["rw", "roo"]) };
        let (options, clients) = (words(&["sync", "x"]), words(&["10.1.1.1", "a b"]));
        let words = Words { options: &options, clients: &clients, rules: &[rule] };
        let mistakes = RuleBook::default().compile(&Arc::default(), words).expect_err("mistakes");
        let told: Vec<_> = mistakes.iter().map(|mistake| mistake.field.to_string()).collect();
        assert_eq!(told, ["options[1]", "clients[1]", "rule[0].options[1]", "clients[0]"]);
        let what = mistakes[3].what.told(|field| field.to_string());
        assert!(what.contains("\"10.1.0.0/16\" at rule[0].clients[0] covers it"), "{what}");
    }
}
