//! Directories that become shares by a pattern: `/tank/home/*`.

use crate::manage::{PatternSpec, ShareSpec};

/// Names that are left out if a pattern does not say which.
const LEFT_OUT: [&str; 2] = [".*", "lost+found"];

impl PatternSpec {
    /// The directory whose entries it is about.
    pub fn parent(&self) -> &str {
        match self.directories.rsplit_once('/') {
            Some(("", _)) | None => "/",
            Some((parent, _)) => parent,
        }
    }

    /// Whether a directory of this name becomes a share.
    pub fn matches(&self, name: &str) -> bool {
        let wanted = self.directories.rsplit_once('/').map_or("", |(_, name)| name);
        // A wildcard does not match a leading dot, as in a shell.
        let hides = name.starts_with('.') && !wanted.starts_with('.');
        let is_left_out = if self.except.is_empty() {
            LEFT_OUT.iter().any(|except| matches(except.as_bytes(), name.as_bytes()))
        } else {
            self.except.iter().any(|except| matches(except.as_bytes(), name.as_bytes()))
        };
        !hides && !is_left_out && !name.contains('/') && matches(wanted.as_bytes(), name.as_bytes())
    }

    /// The share that a directory of this name becomes.
    pub fn share(&self, name: &str) -> ShareSpec {
        let parent = self.parent().trim_end_matches('/');
        ShareSpec {
            path: format!("{parent}/{name}"),
            options: self.options.clone(),
            clients: self.clients.clone(),
            ..ShareSpec::default()
        }
    }
}

/// Whether a name is what wildcards say: `*` is any characters, `?` is one.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    // After a star that did not fit, it takes one byte more, and all after it is tried again.
    let (mut p, mut n) = (0, 0);
    let mut star = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == b'?' || name.get(n) == Some(c) => {
                p += 1;
                n += 1;
                // A character of several bytes is one.
                while *c == b'?' && name.get(n).is_some_and(|byte| byte & 0xc0 == 0x80) {
                    n += 1;
                }
            }
            _ => {
                let Some((at, taken)) = star else { return false };
                star = Some((at, taken + 1));
                p = at + 1;
                n = taken + 1;
            }
        }
    }
    pattern.get(p..).is_none_or(|rest| rest.iter().all(|c| *c == b'*'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(directories: &str, except: &[&str]) -> PatternSpec {
        let except = except.iter().map(|name| (*name).to_owned()).collect();
        PatternSpec { directories: directories.to_owned(), except, ..PatternSpec::default() }
    }

    #[test]
    fn names_match_as_in_a_shell() {
        let home = pattern("/tank/home/*", &[]);
        for (name, expected) in [("alice", true), (".snapshot", false), ("lost+found", false)] {
            assert_eq!(home.matches(name), expected, "{name}");
        }
        let some = pattern("/tank/v?l-*", &["*-old"]);
        for (name, expected) in
            [("vol-1", true), ("völ-", true), ("vl-1", false), ("vol-1-old", false)]
        {
            assert_eq!(some.matches(name), expected, "{name}");
        }
        assert!(pattern("/x/.*", &["none"]).matches(".hidden"));
    }

    #[test]
    fn a_match_becomes_a_share() {
        assert_eq!(pattern("/tank/home/*", &[]).share("a").path, "/tank/home/a");
        assert_eq!(pattern("/*", &[]).share("a").path, "/a");
        assert_eq!(pattern("/*", &[]).parent(), "/");
        assert_eq!(pattern("/tank/home/*", &[]).parent(), "/tank/home");
    }

    #[test]
    fn patterns_are_checked() {
        for (text, expected) in [
            ("/tank/*", None),
            ("/tank//x*/", None),
            ("", Some("no directories")),
            ("tank/*", Some("absolute")),
            ("/tank/home", Some("needs a wildcard")),
            ("/*/home*", Some("last part alone")),
        ] {
            let mistakes = pattern(text, &[]).check();
            let told = mistakes.first().map(|mistake| mistake.what.told(|_| String::new()));
            match (told, expected) {
                (None, None) => {}
                (Some(told), Some(expected)) => assert!(told.contains(expected), "{told}"),
                (told, _) => panic!("{text}: {told:?}"),
            }
        }
    }
}
