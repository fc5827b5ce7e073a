//! How NFSv4 knows owners by name: what the configuration says, or else the domain that this host's NFS clients
//! take for theirs, which is idmapd's (idmapd.conf(5)).
//!
//! Nobody is asked over the network: a name server that does not answer must not hold up the start.

use std::io::{self, Read};
use std::path::Path;

use steadfast_catalog::configuration::{Nfs4Owners, ServerSettings};
use steadfast_engine::IdMapping;
use steadfast_shares::HostName;

const IDMAPD_CONF: &str = "/etc/idmapd.conf";
const HOSTS: &str = "/etc/hosts";
const RESOLV_CONF: &str = "/etc/resolv.conf";
/// What idmapd says that does not know its domain.
const UNKNOWN_DOMAIN: &str = "localdomain";
/// Bytes of a file that are read, at the most.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What the engine has to know.
pub(crate) fn of(settings: &ServerSettings) -> IdMapping {
    if settings.nfs4 == Some(false) {
        return IdMapping::default();
    }
    let tells_names = settings.nfs4_owners == Some(Nfs4Owners::Names);
    let domain = settings.nfs4_domain.clone().or_else(|| {
        let (domain, source) = domain_of_host();
        let domain = domain?;
        tracing::info!("owners of NFSv4 are known by names of the domain {domain} ({source})");
        Some(domain)
    });
    IdMapping { domain, tells_names }
}

/// The domain, and what says so.
fn domain_of_host() -> (Option<HostName>, &'static str) {
    let said = text_of(Path::new(IDMAPD_CONF)).as_deref().and_then(of_idmapd);
    if let Some(said) = said {
        if let Some(domain) = HostName::new(&said) {
            return (Some(domain), IDMAPD_CONF);
        }
        tracing::warn!(
            "Domain = {said:?} in {IDMAPD_CONF} is no domain and not used: correct it, or set nfs4_domain in \
             [server]"
        );
    }
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let text = |path| text_of(Path::new(path)).unwrap_or_default();
    if let Some(domain) = of_host(&host, &text(HOSTS), &text(RESOLV_CONF)) {
        return (Some(domain), "this host's domain");
    }
    (HostName::new(UNKNOWN_DOMAIN), "this host has no domain")
}

/// What a file says; `None` if it is not there, or cannot be read, which is told.
fn text_of(path: &Path) -> Option<String> {
    let read = || {
        let mut bytes = Vec::new();
        std::fs::File::open(path)?.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
        io::Result::Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    match read() {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            tracing::warn!(
                "{} cannot be read, the domain of NFSv4's owners is taken from elsewhere: {error}",
                path.display()
            );
            None
        }
    }
}

/// `Domain` in the section `General`, in letters of either case.
fn of_idmapd(text: &str) -> Option<String> {
    let mut is_general = false;
    let mut domain = None;
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            let section = section.split(']').next().unwrap_or("");
            is_general = section.trim().eq_ignore_ascii_case("General");
            continue;
        }
        if !is_general || line.starts_with(['#', ';']) {
            continue;
        }
        let Some((key, value)) = line.split_once('=') else { continue };
        if key.trim().eq_ignore_ascii_case("Domain") {
            // What follows is a comment.
            let value = value.split_whitespace().next().unwrap_or("");
            domain = Some(value.trim_matches(['"', '\'']).to_owned());
        }
    }
    domain.filter(|domain| !domain.is_empty())
}

/// The domain of a host: in its name, in its whole name of hosts(5), or where it looks for others.
fn of_host(host: &str, hosts: &str, resolv_conf: &str) -> Option<HostName> {
    let domain_in = |name: &str| name.split_once('.').and_then(|(_, rest)| HostName::new(rest));
    let without_comment = |line: &'_ str| line.split('#').next().unwrap_or("").to_owned();
    let in_hosts = |line: &str| {
        let line = without_comment(line);
        let mut names = line.split_whitespace().skip(1);
        let whole = names.next()?;
        let is_ours =
            whole.eq_ignore_ascii_case(host) || names.any(|name| name.eq_ignore_ascii_case(host));
        if is_ours { domain_in(whole) } else { None }
    };
    let in_resolv_conf = |line: &str| {
        let mut words = line.split_whitespace();
        let is_domain = matches!(words.next(), Some("domain" | "search"));
        if is_domain { words.next().and_then(HostName::new) } else { None }
    };
    domain_in(host)
        .or_else(|| hosts.lines().find_map(in_hosts))
        .or_else(|| resolv_conf.lines().rev().find_map(in_resolv_conf))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idmapd_says_the_domain_in_its_section() {
        let text = "# comment\nDomain = wrong.example\n[Mapping]\nNobody-User = nobody\n\
                    Domain = wrong.example\n[ general ]\n#Domain = wrong.example\n;Domain=x\n\
                    Verbosity = 0\n domain = \"Example.ORG\" # ours\n[Translation]\nDomain = x\n";
        assert_eq!(of_idmapd(text).as_deref(), Some("Example.ORG"));
        for text in ["", "[General]", "[General]\nDomain =\n", "[General]\n# Domain = a.b\n", "[x"]
        {
            assert_eq!(of_idmapd(text), None, "{text}");
        }
    }

    #[test]
    fn the_domain_of_a_host_is_found_where_its_whole_name_is() {
        let of = |host, hosts, resolv_conf| {
            of_host(host, hosts, resolv_conf).map(|domain| domain.as_str().to_owned())
        };
        let hosts = "127.0.0.1 localhost\n# 10.0.0.1 srv.wrong.example srv\n\
                     10.0.0.2 other.wrong.example other\n127.0.1.1 Srv.Example.net srv # here\n";
        let resolv_conf = "nameserver 10.0.0.9\ndomain a.example\nsearch b.example c.example\n";
        assert_eq!(of("srv.example.com", hosts, resolv_conf).as_deref(), Some("example.com"));
        assert_eq!(of("srv", hosts, resolv_conf).as_deref(), Some("example.net"));
        assert_eq!(of("SRV", hosts, "").as_deref(), Some("example.net"));
        assert_eq!(of("new", hosts, resolv_conf).as_deref(), Some("b.example"));
        assert_eq!(of("localhost", hosts, ""), None);
        assert_eq!(of("new", "", "search .\n"), None);
        assert_eq!(of("", "", ""), None);
    }
}
