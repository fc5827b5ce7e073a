//! The rules of a share, made ready to be asked: who may do what.
//!
//! The first rule whose pattern has the client decides, and within it the first of its
//! alternatives that is for the client's flavour. Addresses and networks are found without going
//! through the rules one by one; names are asked in the order of their rules, and only those
//! before the rule that an address has found.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;

use siphasher::sip::SipHasher13;

use crate::clients::{ClientPattern, masked};
use crate::names::{Known, Names};
use crate::rights::{Flavor, Flavors, Rights};

/// Rights for some clients.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClientRule {
    /// For whom.
    pub pattern: ClientPattern,
    /// What they may do: the first that is for the caller's flavour. Most rules have one.
    pub grants: Arc<[Rights]>,
}

/// What the rules are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Question {
    /// Who calls. An IPv4 address mapped into IPv6 counts as IPv4.
    pub client: IpAddr,
    /// How he says who he is.
    pub flavor: Flavor,
    /// Whether he calls from a port below 1024.
    pub from_privileged_port: bool,
}

/// What the rules say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// The rights of this place in [`RuleSet::grant`].
    Granted(u16),
    /// Nothing at all.
    Refused(Refusal),
    /// A name that decides is not known yet: ask again soon.
    Pending,
}

/// Why there are no rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// No rule is for the client.
    Client,
    /// The client's rule is not for his flavour.
    Flavor,
    /// The client's rule wants calls from ports below 1024.
    Port,
}

/// Rules in the order in which they are asked, and what finds them quickly. Shares with the same
/// rules have one set together.
#[derive(Debug, Default)]
pub struct RuleSet {
    rules: Box<[ClientRule]>,
    /// Rights that some rule gives, each once.
    grants: Box<[Rights]>,
    /// The places in `grants` of all rules' alternatives, rule by rule.
    alternatives: Box<[u16]>,
    /// Where in `alternatives` each rule's end.
    ends: Box<[u32]>,
    /// The first rule for everybody.
    everyone: Option<usize>,
    /// The first rule of each network.
    networks: HashMap<(IpAddr, u8), usize>,
    /// Lengths that some network of IPv4 has, and of IPv6.
    lengths: [Box<[u8]>; 2],
    /// Rules by name.
    named: Box<[usize]>,
    /// Hash of the rules, 0 without any. There may be thousands, and sets are compared often.
    hash: u64,
}

impl PartialEq for RuleSet {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.rules == other.rules
    }
}

impl Eq for RuleSet {}

impl Hash for RuleSet {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.hash);
    }
}

fn hash_of(rules: &[ClientRule]) -> u64 {
    if rules.is_empty() {
        return 0;
    }
    let mut hasher = SipHasher13::new();
    rules.hash(&mut hasher);
    hasher.finish()
}

impl From<Vec<ClientRule>> for RuleSet {
    fn from(rules: Vec<ClientRule>) -> Self {
        Self::new(rules)
    }
}

impl RuleSet {
    /// Most rules of a share, after each client of a list became one.
    pub const RULES_MAX: usize = 4096;

    /// Compiles rules. Of more different rights than places can name (each rule may have one for
    /// each flavour, so that takes more than [`RuleSet::RULES_MAX`] rules) the later are not given.
    pub fn new(rules: Vec<ClientRule>) -> Self {
        let hash = hash_of(&rules);
        let mut set = Self { rules: rules.into(), hash, ..Self::default() };
        let (mut grants, mut alternatives, mut ends) = (Vec::new(), Vec::new(), Vec::new());
        let mut known: HashMap<&Rights, u16> = HashMap::new();
        let mut lengths = [Vec::new(), Vec::new()];
        let mut named = Vec::new();
        for (index, rule) in set.rules.iter().enumerate() {
            for rights in &*rule.grants {
                let place = known.get(rights).copied().or_else(|| {
                    let place = u16::try_from(grants.len()).ok().filter(|p| *p < u16::MAX - 8)?;
                    grants.push(rights.clone());
                    known.insert(rights, place);
                    Some(place)
                });
                alternatives.extend(place);
            }
            ends.push(alternatives.len() as u32);
            match &rule.pattern {
                ClientPattern::Any => {
                    set.everyone.get_or_insert(index);
                }
                ClientPattern::Network { network, prefix_bits } => {
                    let network = masked(*network, *prefix_bits);
                    set.networks.entry((network, *prefix_bits)).or_insert(index);
                    let [v4, v6] = &mut lengths;
                    let lengths = if network.is_ipv4() { v4 } else { v6 };
                    if !lengths.contains(prefix_bits) {
                        lengths.push(*prefix_bits);
                    }
                }
                _ => named.push(index),
            }
        }
        set.grants = grants.into();
        set.alternatives = alternatives.into();
        set.ends = ends.into();
        set.lengths = lengths.map(Into::into);
        set.named = named.into();
        set
    }

    /// The rules in their order.
    pub fn rules(&self) -> &[ClientRule] {
        &self.rules
    }

    /// What [`Decision::Granted`] gives.
    pub fn grant(&self, place: u16) -> Option<&Rights> {
        self.grants.get(usize::from(place))
    }

    /// Whether changes of some client are acknowledged before they are stable.
    pub fn has_async(&self) -> bool {
        self.grants.iter().any(|rights| rights.is_async && !rights.is_read_only)
    }

    /// Whether some rule has a name in it.
    pub fn has_names(&self) -> bool {
        !self.named.is_empty()
    }

    /// What a client may do.
    ///
    /// A rule whose name is not known might be for the client. That holds the decision up unless
    /// it would give what is given anyway. Once the names are known not to be had for now, what
    /// is given without them is given if no such rule would give less: a client for whom there is
    /// no other rule is refused, one that might be let write is let read.
    pub fn decide(&self, question: &Question, names: &dyn Names) -> Decision {
        let client = question.client.to_canonical();
        let by_address = self.by_address(client);
        let mut found = by_address;
        let mut doubt = Doubt::default();
        for index in self.named.iter().copied() {
            if by_address.is_some_and(|by_address| by_address < index) {
                break;
            }
            let Some(rule) = self.rules.get(index) else { break };
            match ask(&rule.pattern, client, names) {
                Known::No => {}
                Known::Yes => {
                    found = Some(index);
                    break;
                }
                known => doubt.add(known, self.outcome(index, question)),
            }
        }
        let decision =
            found.map_or(Decision::Refused(Refusal::Client), |index| self.outcome(index, question));
        let is_settled = if doubt.is_hopeful {
            doubt.outcomes.iter().all(|other| *other == decision)
        } else {
            doubt.outcomes.iter().all(|other| self.gives_no_more(decision, *other))
        };
        if is_settled { decision } else { Decision::Pending }
    }

    /// Whether whoever may have the other decision may do all that this one lets him.
    fn gives_no_more(&self, decision: Decision, other: Decision) -> bool {
        let (this, other) = match (decision, other) {
            (Decision::Refused(_), _) => return true,
            (Decision::Granted(this), Decision::Granted(other)) => (this, other),
            _ => return decision == other,
        };
        let (Some(this), Some(other)) = (self.grant(this), self.grant(other)) else {
            return false;
        };
        // By what flavours and from which ports either is had is decided already.
        let but_for_writing = Rights {
            is_read_only: this.is_read_only,
            flavors: this.flavors,
            needs_privileged_port: this.needs_privileged_port,
            ..other.clone()
        };
        but_for_writing == *this && (this.is_read_only || !other.is_read_only)
    }

    /// The first rule that has the address itself.
    fn by_address(&self, client: IpAddr) -> Option<usize> {
        let [v4, v6] = &self.lengths;
        let lengths = if client.is_ipv4() { v4 } else { v6 };
        let networks = lengths
            .iter()
            .filter_map(|bits| self.networks.get(&(masked(client, *bits), *bits)).copied());
        networks.chain(self.everyone).min()
    }

    /// What a rule says to one whose rule it is.
    fn outcome(&self, index: usize, question: &Question) -> Decision {
        let start = index.checked_sub(1).and_then(|before| self.ends.get(before)).copied();
        let range =
            start.unwrap_or(0) as usize..self.ends.get(index).copied().unwrap_or(0) as usize;
        let mut refusal = Refusal::Flavor;
        for place in self.alternatives.get(range).unwrap_or_default() {
            let Some(rights) = self.grant(*place) else { continue };
            if rights.flavors.contains(Flavors::from(question.flavor)) {
                if rights.needs_privileged_port && !question.from_privileged_port {
                    refusal = Refusal::Port;
                } else {
                    return Decision::Granted(*place);
                }
            }
        }
        Decision::Refused(refusal)
    }
}

fn ask(pattern: &ClientPattern, client: IpAddr, names: &dyn Names) -> Known {
    let known = |is_so| if is_so { Known::Yes } else { Known::No };
    match pattern {
        ClientPattern::Any => Known::Yes,
        ClientPattern::Network { .. } => known(pattern.has_address(client)),
        ClientPattern::Host(host) => names.is_host(host, client),
        ClientPattern::Domain(domain) => names.is_in_domain(domain, client),
        ClientPattern::Netgroup(netgroup) => names.is_in_netgroup(netgroup, client),
    }
}

/// Rules that might be for the client.
#[derive(Default)]
struct Doubt {
    /// What they say, each once.
    outcomes: Vec<Decision>,
    /// Whether one of the names will be known soon.
    is_hopeful: bool,
}

impl Doubt {
    fn add(&mut self, known: Known, outcome: Decision) {
        self.is_hopeful |= known == Known::NotYet;
        if !self.outcomes.contains(&outcome) {
            self.outcomes.push(outcome);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::names::{DomainPattern, HostName, NetgroupName};

    /// A name service that knows this and nothing else.
    #[derive(Debug, Default)]
    struct Book(HashMap<(String, IpAddr), Known>);

    impl Book {
        fn know(&self, name: &str, client: IpAddr) -> Known {
            self.0.get(&(name.to_owned(), client)).copied().unwrap_or(Known::No)
        }
    }

    impl Names for Book {
        fn is_host(&self, host: &HostName, client: IpAddr) -> Known {
            self.know(host.as_str(), client)
        }

        fn is_in_domain(&self, domain: &DomainPattern, client: IpAddr) -> Known {
            self.know(domain.as_str(), client)
        }

        fn is_in_netgroup(&self, netgroup: &NetgroupName, client: IpAddr) -> Known {
            self.know(netgroup.as_str(), client)
        }
    }

    /// The rules read one by one, with the doubtful names taken for the client's in each possible
    /// way: what all ways agree on is so.
    fn naive(rules: &[ClientRule], question: &Question, book: &Book) -> Decision {
        let set = RuleSet::new(rules.to_vec());
        let say = |index: usize| {
            for rights in &*rules[index].grants {
                let is_for = rights.flavors.contains(question.flavor.into());
                if is_for && (!rights.needs_privileged_port || question.from_privileged_port) {
                    let place = set.grants.iter().position(|grant| grant == rights);
                    return Decision::Granted(place.expect("a grant") as u16);
                }
            }
            let has_flavor =
                rules[index].grants.iter().any(|r| r.flavors.contains(question.flavor.into()));
            Decision::Refused(if has_flavor { Refusal::Port } else { Refusal::Flavor })
        };
        let mut possible = Vec::new();
        let mut is_hopeful = false;
        let mut certain = None;
        for (index, rule) in rules.iter().enumerate() {
            match ask(&rule.pattern, question.client, book) {
                Known::No => {}
                Known::Yes => {
                    certain = Some(say(index));
                    break;
                }
                known => {
                    is_hopeful |= known == Known::NotYet;
                    possible.push(say(index));
                }
            }
        }
        let otherwise = certain.unwrap_or(Decision::Refused(Refusal::Client));
        let gives_no_less = |decision: &Decision| match (*decision, otherwise) {
            (_, Decision::Refused(_)) => true,
            (Decision::Granted(this), Decision::Granted(otherwise)) => {
                let both = [this, otherwise].map(|place| set.grant(place).expect("a grant"));
                let [this, otherwise] = both;
                this.anonymous_uid == otherwise.anonymous_uid
                    && this.is_read_only <= otherwise.is_read_only
            }
            _ => false,
        };
        if possible.iter().all(|decision| *decision == otherwise)
            || (!is_hopeful && possible.iter().all(gives_no_less))
        {
            otherwise
        } else {
            Decision::Pending
        }
    }

    fn pattern() -> impl Strategy<Value = ClientPattern> {
        let address = prop_oneof![
            (0..4_u8).prop_map(|last| IpAddr::from([10, 0, 0, last])),
            (0..4_u16).prop_map(|last| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, last])),
        ];
        prop_oneof![
            1 => Just(ClientPattern::Any),
            4 => (address, 0..=6_u8).prop_map(|(address, host_bits)| {
                let bits = if address.is_ipv4() { 32 } else { 128 } - host_bits;
                ClientPattern::Network { network: masked(address, bits), prefix_bits: bits }
            }),
            3 => (0..4_u8).prop_map(|n| {
                ClientPattern::Host(HostName::new(&format!("h{n}")).expect("a host"))
            }),
            1 => (0..3_u8).prop_map(|n| {
                ClientPattern::Domain(DomainPattern::new(&format!("*.d{n}")).expect("a domain"))
            }),
            1 => (0..3_u8).prop_map(|n| {
                ClientPattern::Netgroup(NetgroupName::new(&format!("g{n}")).expect("a group"))
            }),
        ]
    }

    fn rights() -> impl Strategy<Value = Rights> {
        let flavor = prop::sample::select(vec![Flavor::None, Flavor::Sys, Flavor::Krb5]);
        let flavors = prop::collection::vec(flavor, 1..4);
        (flavors, any::<bool>(), any::<bool>(), 0..3_u32).prop_map(
            |(flavors, is_read_only, needs_privileged_port, anonymous_uid)| Rights {
                flavors: flavors.into_iter().collect(),
                is_read_only,
                needs_privileged_port,
                anonymous_uid,
                ..Rights::default()
            },
        )
    }

    fn rule() -> impl Strategy<Value = ClientRule> {
        (pattern(), prop::collection::vec(rights(), 0..3))
            .prop_map(|(pattern, grants)| ClientRule { pattern, grants: grants.into() })
    }

    fn client() -> impl Strategy<Value = IpAddr> {
        prop_oneof![
            (0..8_u8).prop_map(|last| IpAddr::from([10, 0, 0, last])),
            (0..8_u8).prop_map(|last| {
                IpAddr::from(std::net::Ipv4Addr::new(10, 0, 0, last).to_ipv6_mapped())
            }),
            (0..8_u16).prop_map(|last| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, last])),
        ]
    }

    fn known() -> impl Strategy<Value = Known> {
        prop_oneof![
            4 => Just(Known::No),
            2 => Just(Known::Yes),
            1 => Just(Known::NotYet),
            1 => Just(Known::Unreachable),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn compiled_rules_say_what_they_say_one_by_one(
            rules in prop::collection::vec(rule(), 0..12),
            client in client(),
            flavor in prop::sample::select(vec![Flavor::None, Flavor::Sys, Flavor::Krb5]),
            from_privileged_port in any::<bool>(),
            answers in prop::collection::vec(known(), 10),
        ) {
            let names = ["h0", "h1", "h2", "h3", "*.d0", "*.d1", "*.d2", "g0", "g1", "g2"];
            let book = Book(
                names.iter().zip(answers)
                    .map(|(name, known)| (((*name).to_owned(), client.to_canonical()), known))
                    .collect(),
            );
            let question = Question { client, flavor, from_privileged_port };
            let set = RuleSet::new(rules.clone());
            let canonical = Question { client: client.to_canonical(), ..question };
            prop_assert_eq!(set.decide(&question, &book), naive(&rules, &canonical, &book));
        }
    }

    #[test]
    fn sets_are_one_if_their_rules_are() {
        let rule = |text: &str| ClientRule {
            pattern: text.parse().expect("a pattern"),
            grants: Arc::new([Rights::default()]),
        };
        let set = |rules: &[&str]| RuleSet::new(rules.iter().map(|text| rule(text)).collect());
        let mut sets = std::collections::HashSet::from([RuleSet::default()]);
        assert!(!sets.insert(set(&[])));
        assert!(sets.insert(set(&["10.0.0.0/8", "*"])));
        assert!(!sets.insert(set(&["10.0.0.0/8", "*"])));
        assert!(sets.insert(set(&["*", "10.0.0.0/8"])));
    }

    #[test]
    fn a_name_nobody_knows_holds_up_only_who_might_be_meant() {
        let rule = |text: &str, is_read_only| ClientRule {
            pattern: text.parse().expect("a pattern"),
            grants: Arc::new([Rights { is_read_only, ..Rights::default() }]),
        };
        let client: IpAddr = "10.0.0.1".parse().expect("an address");
        let question = Question { client, flavor: Flavor::Sys, from_privileged_port: true };
        let book = |known| Book(HashMap::from([(("dead.example".to_owned(), client), known)]));
        let decide = |rules: &[ClientRule], known| {
            RuleSet::new(rules.to_vec()).decide(&question, &book(known))
        };
        // It would get the same either way.
        let same = [rule("dead.example", false), rule("10.0.0.0/8", false)];
        assert_eq!(decide(&same, Known::NotYet), Decision::Granted(0));
        assert_eq!(decide(&same, Known::Unreachable), Decision::Granted(0));
        // It must not get more than it is to have.
        let more = [rule("dead.example", true), rule("10.0.0.0/8", false)];
        assert_eq!(decide(&more, Known::NotYet), Decision::Pending);
        assert_eq!(decide(&more, Known::Unreachable), Decision::Pending);
        assert_eq!(decide(&more, Known::No), Decision::Granted(1));
        // It might be let do more: meanwhile it has what it has in any case.
        let less = [rule("dead.example", false), rule("10.0.0.0/8", true)];
        assert_eq!(decide(&less, Known::NotYet), Decision::Pending);
        assert_eq!(decide(&less, Known::Unreachable), Decision::Granted(1));
        // Nobody else would let it in.
        let alone = [rule("dead.example", false)];
        assert_eq!(decide(&alone, Known::NotYet), Decision::Pending);
        assert_eq!(decide(&alone, Known::Unreachable), Decision::Refused(Refusal::Client));
    }
}
