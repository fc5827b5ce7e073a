//! `/etc/netgroup` (netgroup(5)): a name, and what is in it, a line: triples of host, user and
//! domain, and other netgroups. A backslash at its end continues a line.

use std::collections::{HashMap, HashSet};

use steadfast_shares::NetgroupName;

use crate::facts::{MEMBERS_MAX, Members};
use crate::hosts_file::differing;

#[derive(Debug, Default, PartialEq, Eq)]
struct Line {
    members: Members,
    nested: Vec<NetgroupName>,
}

/// What a netgroup file says.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NetgroupFile {
    netgroups: HashMap<NetgroupName, Line>,
}

impl NetgroupFile {
    /// Reads the file's text. What is nonsense is left out: it lets nobody in. Of two lines for one
    /// netgroup the first counts.
    pub fn parse(text: &str) -> Self {
        let mut file = Self::default();
        let mut lines = text.lines();
        while let Some(first) = lines.next() {
            let mut line = first.to_owned();
            while let Some(start) = line.strip_suffix('\\') {
                line.truncate(start.len());
                line.push(' ');
                line.push_str(lines.next().unwrap_or(""));
            }
            let line = line.trim();
            if line.starts_with('#') {
                continue;
            }
            let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            if let Some(name) = NetgroupName::new(name) {
                file.netgroups.entry(name).or_insert_with(|| Line::parse(rest));
            }
        }
        file
    }

    /// All hosts of a netgroup, and the netgroups in it that the file does not have. `None` if it
    /// does not have the netgroup itself.
    pub fn expand(&self, netgroup: &NetgroupName) -> Option<(Members, Vec<NetgroupName>)> {
        if !self.netgroups.contains_key(netgroup) {
            return None;
        }
        let (mut members, mut elsewhere) = (Members::default(), Vec::new());
        let mut seen = HashSet::from([netgroup]);
        let mut waiting = vec![netgroup];
        while let Some(name) = waiting.pop() {
            let Some(line) = self.netgroups.get(name) else {
                elsewhere.push(name.clone());
                continue;
            };
            // One of nonsense that nests without end stops here.
            if members.hosts.len() + members.addresses.len() <= MEMBERS_MAX {
                members.add_all(line.members.clone());
                waiting.extend(line.nested.iter().filter(|nested| seen.insert(*nested)));
            }
        }
        members.put_in_order();
        elsewhere.sort_unstable();
        Some((members, elsewhere))
    }

    /// The netgroups with which two files expand to something else.
    pub fn difference(&self, other: &Self) -> Vec<NetgroupName> {
        let mut changed: HashSet<_> = differing(&self.netgroups, &other.netgroups).collect();
        // And those that have these in them.
        loop {
            let all = self.netgroups.iter().chain(&other.netgroups);
            let above: Vec<_> = all
                .filter(|(name, line)| {
                    !changed.contains(*name)
                        && line.nested.iter().any(|nested| changed.contains(nested))
                })
                .map(|(name, _)| name.clone())
                .collect();
            if above.is_empty() {
                return changed.into_iter().collect();
            }
            changed.extend(above);
        }
    }
}

impl Line {
    fn parse(text: &str) -> Self {
        let mut line = Self::default();
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            if let Some(triple) = rest.strip_prefix('(') {
                let Some((inside, after)) = triple.split_once(')') else { break };
                // Without its commas it is no triple, and says nothing about hosts.
                if inside.matches(',').count() == 2 {
                    line.members.add(inside.split(',').next().unwrap_or("-").trim());
                }
                rest = after.trim_start();
            } else {
                let end = rest.find(|c: char| c.is_whitespace() || c == '(').unwrap_or(rest.len());
                let (word, after) = rest.split_at(end);
                if word.starts_with('#') {
                    break;
                }
                line.nested.extend(NetgroupName::new(word));
                rest = after.trim_start();
            }
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> NetgroupName {
        NetgroupName::new(text).expect("a netgroup")
    }

    fn hosts(file: &NetgroupFile, netgroup: &str) -> Vec<String> {
        let (members, _) = file.expand(&name(netgroup)).expect("it is there");
        members.hosts.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn triples_and_nested_netgroups_are_read() {
        let file = NetgroupFile::parse(
            "# staff (x,,)\n\
             staff (a.example,-,example) ( B.example , joe , ) \\\n\t(10.0.0.1,,) students\n\
             students (c.example,,)(-,mary,) others staff missing # (d.example,,)\n\
             others\n\
             all (,,)\n\
             staff (later.example,,)\n\
             odd (e.example) (f.example,,,) (g.example,,\n",
        );
        assert_eq!(hosts(&file, "staff"), ["a.example", "b.example", "c.example"]);
        let (members, elsewhere) = file.expand(&name("staff")).expect("it is there");
        assert_eq!(members.addresses.len(), 1);
        assert!(!members.is_everybody);
        assert_eq!(elsewhere, [name("missing")]);
        assert_eq!(hosts(&file, "students").len(), 3, "nested in a ring");
        assert!(file.expand(&name("all")).expect("it is there").0.is_everybody);
        assert_eq!(file.expand(&name("others")), Some(Default::default()));
        assert_eq!(hosts(&file, "odd"), [""; 0]);
        assert_eq!(file.expand(&name("missing")), None);
    }

    #[test]
    fn differences_reach_those_that_have_them_nested() {
        let one = NetgroupFile::parse("a (x,,)\nb a\nc b\nd (y,,)\ne (z,,)\n");
        let other = NetgroupFile::parse("a (w,,)\nb a\nc b\nd (y,,)\nf (z,,)\n");
        let mut differing = one.difference(&other);
        differing.sort();
        assert_eq!(differing, ["a", "b", "c", "e", "f"].map(name));
        assert_eq!(one.difference(&one), []);
    }
}
