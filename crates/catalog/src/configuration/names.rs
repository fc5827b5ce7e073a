//! `[names]`: name services, and how long what they say is believed.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use steadfast_shares::shown;

use super::Placed;
use super::document::{Document, Table};

pub(super) const KEYS: [&str; 9] = [
    "servers",
    "hosts_file",
    "netgroup_file",
    "timeout_ms",
    "ttl_min_s",
    "ttl_max_s",
    "stale_max_s",
    "negative_s",
    "cache_entries_max",
];

/// Most name servers.
const SERVERS_MAX: usize = 16;
/// Where a name server listens when nobody says so.
const DNS_PORT: u16 = 53;
/// A year: nothing is believed for longer.
const YEAR_S: u64 = 31_536_000;

/// `[names]`; what is `None` was not said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamesSettings {
    /// Name servers, `ADDRESS` or `ADDRESS:PORT` (default: those of `/etc/resolv.conf`).
    pub servers: Option<Vec<SocketAddr>>,
    /// Hosts that are known without a name server (default `/etc/hosts`).
    pub hosts_file: Option<Placed<PathBuf>>,
    /// Netgroups that are known without a directory service (default `/etc/netgroup`).
    pub netgroup_file: Option<Placed<PathBuf>>,
    /// How long one question to a name server may take, in ms, 100 to 30,000 (default 2,000).
    pub timeout_ms: Option<u64>,
    /// Shortest time for which an answer is believed, in s, whatever the name server says; 1 to
    /// 86,400 (default 30).
    pub ttl_min_s: Option<u64>,
    /// Longest time for which an answer is believed, in s; from `ttl_min_s` to 604,800 (default
    /// 3,600).
    pub ttl_max_s: Option<u64>,
    /// How long an answer is used while the name service cannot be asked, in s; 0 to a year
    /// (default 604,800, a week).
    pub stale_max_s: Option<u64>,
    /// How long it is believed that a name does not exist, in s; 1 to 86,400 (default 60).
    pub negative_s: Option<u64>,
    /// Most decisions that are remembered, and most names that no rule has; 1,000 to 10,000,000
    /// (default 100,000).
    pub cache_entries_max: Option<usize>,
}

pub(super) fn read(document: &mut Document<'_>, root: Table<'_>) -> NamesSettings {
    let Some(table) = document.table(root, "names") else {
        return NamesSettings::default();
    };
    document.known_keys(table, "[names]", &KEYS);
    let mut number =
        |key, least, most| document.integer(table, key, least, most).map(|number| number.value);
    let timeout_ms = number("timeout_ms", 100, 30_000);
    let ttl_min_s = number("ttl_min_s", 1, 86_400);
    let ttl_max_s = number("ttl_max_s", 1, 604_800);
    let stale_max_s = number("stale_max_s", 0, YEAR_S);
    let negative_s = number("negative_s", 1, 86_400);
    let cache_entries_max = number("cache_entries_max", 1000, 10_000_000);
    if let Some((least, most)) = ttl_min_s.zip(ttl_max_s)
        && least > most
    {
        let place = document.place_of(table, "ttl_max_s");
        document.refuse(place, format!("ttl_max_s is less than ttl_min_s, which is {least}"), None);
    }
    let mut path = |key| {
        let text = document.string(table, key)?;
        super::absolute_path(document, key, &text)
    };
    NamesSettings {
        hosts_file: path("hosts_file"),
        netgroup_file: path("netgroup_file"),
        servers: servers(document, table),
        timeout_ms,
        ttl_min_s,
        ttl_max_s,
        stale_max_s,
        negative_s,
        cache_entries_max: cache_entries_max.and_then(|number| usize::try_from(number).ok()),
    }
}

fn servers(document: &mut Document<'_>, table: Table<'_>) -> Option<Vec<SocketAddr>> {
    let texts = document.placed_strings(table, "servers")?;
    if texts.is_empty() || texts.len() > SERVERS_MAX {
        let place = document.place_of(table, "servers");
        document.refuse(place, format!("servers needs 1 to {SERVERS_MAX} addresses"), None);
    }
    let mut servers = Vec::new();
    for text in texts {
        let alone = text.value.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, DNS_PORT));
        match alone.or_else(|_| text.value.parse::<SocketAddr>()) {
            Ok(server) if servers.contains(&server) => {
                document.refuse(text.place, format!("servers has {server} twice"), None);
            }
            Ok(server) if server.port() == 0 => {
                let what = format!("{} has no port to ask at", shown(text.value));
                document.refuse(text.place, what, None);
            }
            Ok(server) => servers.push(server),
            Err(_) => {
                let what = format!(
                    "{} is not a name server's address, like \"192.0.2.53\" or \"[fd00::53]:5353\"",
                    shown(text.value)
                );
                document.refuse(text.place, what, None);
            }
        }
    }
    Some(servers)
}

#[cfg(test)]
mod tests {
    use super::super::Configuration;

    #[track_caller]
    fn one_mistake(text: &str, expected: &str) {
        let errors = Configuration::parse(text).expect_err("a mistake");
        let mistakes: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(mistakes, [expected], "in {text}");
    }

    #[test]
    fn everything_is_read() {
        let text = r#"
            [names]
            servers = ["192.0.2.53", "127.0.0.1:5353", "fd00::53", "[fd00::54]:54"]
            hosts_file = "/etc/other/hosts"
            netgroup_file = "/etc/other/netgroup"
            timeout_ms = 500
            ttl_min_s = 10
            ttl_max_s = 20
            stale_max_s = 0
            negative_s = 5
            cache_entries_max = 5000
        "#;
        let names = Configuration::parse(text).expect("no mistakes").names;
        let servers: Vec<_> =
            names.servers.expect("servers").iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["192.0.2.53:53", "127.0.0.1:5353", "[fd00::53]:53", "[fd00::54]:54"]);
        assert_eq!(names.hosts_file.expect("a path").value.to_str(), Some("/etc/other/hosts"));
        assert_eq!((names.timeout_ms, names.ttl_min_s), (Some(500), Some(10)));
        assert_eq!((names.ttl_max_s, names.stale_max_s), (Some(20), Some(0)));
        assert_eq!((names.negative_s, names.cache_entries_max), (Some(5), Some(5000)));
    }

    #[test]
    fn mistakes_are_told_at_their_place() {
        one_mistake(
            "[names]\nserver = [\"::1\"]\n",
            "2:1: unknown key \"server\" in [names]; did you mean \"servers\"?",
        );
        one_mistake(
            "[names]\nservers = [\"::1\", \"ns.example\"]\n",
            "2:19: \"ns.example\" is not a name server's address, like \"192.0.2.53\" or \
             \"[fd00::53]:5353\"",
        );
        one_mistake("[names]\nservers = []\n", "2:11: servers needs 1 to 16 addresses");
        one_mistake(
            "[names]\nttl_min_s = 60\nttl_max_s = 30\n",
            "3:13: ttl_max_s is less than ttl_min_s, which is 60",
        );
        one_mistake("[names]\ntimeout_ms = 0\n", "2:14: timeout_ms must be from 100 to 30000");
    }
}
