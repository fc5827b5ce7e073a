//! The options of a share as the sharetab has them, made of the rules by which it is served.

use std::fmt::Write as _;

use steadfast_shares::{ClientPattern, Flavor, Flavors, Rights, Share, Squash, sec};

/// What a rule says to callers of some flavours.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    None,
    ReadOnly,
    ReadWrite,
}

impl Access {
    const fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::ReadOnly => "ro",
            Self::ReadWrite => "rw",
        }
    }
}

/// Words as `share_nfs(1M)` has them: `none`, `ro` and `rw`, for all or with the clients that they
/// are for, in the order in which they are asked; `root=` for those whose superuser stays one; and
/// what holds for all who may use the share. If something depends on the flavour, these parts
/// come once a set of flavours, each behind its `sec=`.
pub fn options(share: &Share) -> String {
    let rules = share.rules.rules();
    // Flavours by which the same is to be had are told together.
    let mut by_flavors: Vec<(Flavors, String)> = Vec::new();
    for flavor in Flavor::ALL.into_iter().map(Flavors::from) {
        let asked = rules.iter().map(|rule| {
            // A rule that is for other flavours denies: no later one is asked.
            let rights = rule.grants.iter().find(|rights| rights.flavors.contains(flavor));
            (&rule.pattern, rights)
        });
        if asked.clone().all(|(_, rights)| rights.is_none()) {
            continue;
        }
        let text = access(asked);
        match by_flavors.iter_mut().find(|(_, known)| *known == text) {
            Some((flavors, _)) => *flavors |= flavor,
            None => by_flavors.push((flavor, text)),
        }
    }
    let is_plain = matches!(&*by_flavors, [(flavors, _)] if *flavors == Flavors::default());
    let mut parts = Vec::new();
    for (flavors, text) in by_flavors {
        parts.extend((!is_plain).then(|| sec(flavors)));
        parts.push(text);
    }
    add_common(&mut parts, &rules.iter().flat_map(|rule| &*rule.grants));
    if share.crosses_mounts {
        parts.push("crossmnt".to_owned());
    }
    parts.join(",")
}

/// Clients one after the other with the same access are one part.
fn access<'a>(asked: impl Iterator<Item = (&'a ClientPattern, Option<&'a Rights>)>) -> String {
    let mut parts = Vec::new();
    let mut last = None;
    let mut text = String::new();
    let mut root = String::new();
    for (pattern, rights) in asked {
        let access = match rights {
            None => Access::None,
            Some(rights) if rights.is_read_only => Access::ReadOnly,
            Some(_) => Access::ReadWrite,
        };
        let is_any = *pattern == ClientPattern::Any;
        if is_any || last != Some(access) {
            parts.extend((!text.is_empty()).then(|| std::mem::take(&mut text)));
            text.push_str(access.word());
        }
        if !is_any {
            text.push(if last == Some(access) { ':' } else { '=' });
            add_client(&mut text, pattern);
        }
        if rights.is_some_and(|rights| rights.squash == Squash::None) {
            root.push_str(if root.is_empty() { "root=" } else { ":" });
            add_client(&mut root, pattern);
        }
        if is_any {
            // Nobody is left for the others.
            break;
        }
        last = Some(access);
    }
    parts.extend([text, root].into_iter().filter(|part| !part.is_empty()));
    parts.join(",")
}

/// As `share_nfs(1M)` has clients: `@` stands before a network, not before a netgroup, and a single
/// address is a host. Colons part clients, so that addresses of IPv6 are in brackets, their length
/// behind these. A domain begins with its dot.
fn add_client(text: &mut String, pattern: &ClientPattern) {
    // Writing to a string does not fail.
    let _ = match pattern {
        ClientPattern::Network { network, prefix_bits } => {
            let (open, close) = if network.is_ipv6() { ("[", "]") } else { ("", "") };
            let is_one = *prefix_bits == if network.is_ipv4() { 32 } else { 128 };
            if is_one {
                write!(text, "{open}{network}{close}")
            } else {
                write!(text, "@{open}{network}{close}/{prefix_bits}")
            }
        }
        ClientPattern::Netgroup(netgroup) => write!(text, "{}", netgroup.as_str()),
        ClientPattern::Domain(domain) => match domain.as_str().strip_prefix("*.") {
            Some(rest) if !rest.contains(['*', '?', '[']) => write!(text, ".{rest}"),
            _ => write!(text, "{domain}"),
        },
        ClientPattern::Any | ClientPattern::Host(_) => write!(text, "{pattern}"),
    };
}

/// What holds for all; what holds for some alone has no words here.
fn add_common<'a>(parts: &mut Vec<String>, grants: &(impl Iterator<Item = &'a Rights> + Clone)) {
    let Some(first) = grants.clone().next() else { return };
    let default = Rights::default();
    let all = |has: &dyn Fn(&Rights) -> bool| grants.clone().all(has);
    if all(&|rights| rights.squash == Squash::All) {
        parts.push("all_squash".to_owned());
    }
    let (uid, gid) = (first.anonymous_uid, first.anonymous_gid);
    if uid != default.anonymous_uid && all(&|rights| rights.anonymous_uid == uid) {
        parts.push(format!("anonuid={uid}"));
    }
    if gid != default.anonymous_gid && all(&|rights| rights.anonymous_gid == gid) {
        parts.push(format!("anongid={gid}"));
    }
    // Nothing is said of what is so by default, in exports(5) too.
    if all(&|rights| !rights.needs_privileged_port) {
        parts.push("insecure".to_owned());
    }
    if all(&|rights| rights.is_async) {
        parts.push("async".to_owned());
    }
    if all(&|rights| rights.looks_up_groups) {
        parts.push("manage_gids".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use steadfast_shares::{Inherited, RuleBook, RuleSpec, ShareId, Words};

    use super::*;

    /// What is told of a share with these words and rules, below `[defaults]`.
    fn told(defaults: &str, options: &str, clients: &str, rules: &[(&str, &str)]) -> String {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let (inherited, _) = Inherited::default().with(&words(defaults), &words("*"), &[]);
        let rules: Vec<RuleSpec> = rules
            .iter()
            .map(|(clients, options)| RuleSpec { clients: words(clients), options: words(options) })
            .collect();
        let (own, clients) = (words(options), words(clients));
        let words = Words { options: &own, clients: &clients, rules: &rules };
        let compiled =
            RuleBook::default().compile(&Arc::new(inherited), words).expect("no mistakes");
        options_of(compiled)
    }

    fn options_of(compiled: steadfast_shares::Compiled) -> String {
        options(&Share {
            id: ShareId(1),
            path: "/a".into(),
            elsewhere: None,
            crosses_mounts: compiled.crosses_mounts,
            required_mounts: compiled.required_mounts,
            size: compiled.size,
            without_log: false,
            is_draining: false,
            rules: compiled.rules,
        })
    }

    #[test]
    fn they_say_who_may_do_what() {
        assert_eq!(told("", "", "", &[]), "rw");
        assert_eq!(
            told("ro", "", "10.0.0.0/8 fd00::/8 10.0.0.1 ::1 @staff *.x a*.x", &[]),
            "ro=@10.0.0.0/8:@[fd00::]/8:10.0.0.1:[::1]:staff:.x:a*.x"
        );
        assert_eq!(
            told("", "ro", "*", &[("10.9.0.0/16", "none"), ("h", "rw no_root_squash")]),
            "none=@10.9.0.0/16,rw=h,ro,root=h"
        );
        // Everybody of `[defaults]` is not inherited.
        assert_eq!(told("", "rw=10.0.0.1", "", &[]), "rw=10.0.0.1");
        assert_eq!(told("", "root=h ro=10.0.0.0/8", "", &[]), "rw=h,ro=@10.0.0.0/8,root=h");
        assert_eq!(told("", "none", "*", &[]), "");
        assert_eq!(
            told("all_squash", "anonuid=7 insecure crossmnt manage_gids", "*", &[]),
            "rw,all_squash,anonuid=7,insecure,manage_gids,crossmnt"
        );
        assert_eq!(told("", "all_squash", "*", &[("h", "no_all_squash")]), "rw=h,rw");
        assert_eq!(told("", "sec=sys:krb5p", "h", &[]), "sec=sys:krb5p,rw=h");
        // What is written is read again as the same.
        assert_eq!(
            told("", "rw=@10.0.0.0/8:@[fd00::]/8:.x", "", &[]),
            "rw=@10.0.0.0/8:@[fd00::]/8:.x"
        );
        assert_eq!(
            told("", "sec=sys ro sec=krb5:krb5i rw", "*", &[]),
            "sec=sys,ro,sec=krb5:krb5i,rw"
        );
    }
}
