//! What a server and its helper say to each other: JSON, a line each.

use serde::{Deserialize, Serialize};
use steadfast_shares::{AccountKind, AccountName, NetgroupName};

use crate::facts::{GROUPS_MAX, MEMBERS_MAX, Members};

/// Longest question, in bytes.
pub(super) const QUESTION_BYTES_MAX: usize = 4096;
/// Longest answer, in bytes: room for a netgroup of as many hosts as count.
pub(super) const ANSWER_BYTES_MAX: usize = 64 << 20;

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Question {
    /// Which hosts are in this netgroup?
    Netgroup(String),
    /// Which groups is the user of this number in?
    User(u32),
    /// Which number has the user of this name?
    UserNumber(String),
    /// Which number has the group of this name?
    GroupNumber(String),
    /// Which name has the user of this number?
    UserName(u32),
    /// Which name has the group of this number?
    GroupName(u32),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Answer {
    /// The host fields of the triples; the empty one is everybody.
    Hosts(Vec<String>),
    /// The groups.
    Groups(Vec<u32>),
    /// The number.
    Number(u32),
    /// The name.
    Name(String),
    /// The system knows of none.
    Missing,
    /// The system could not tell, for this reason.
    Failed(String),
}

impl Question {
    /// For the number of a user or group.
    pub(super) fn number_of(kind: AccountKind, name: &AccountName) -> Self {
        let name = name.as_str().to_owned();
        match kind {
            AccountKind::User => Self::UserNumber(name),
            AccountKind::Group => Self::GroupNumber(name),
        }
    }

    /// For the name of a user or group.
    pub(super) fn name_of(kind: AccountKind, number: u32) -> Self {
        match kind {
            AccountKind::User => Self::UserName(number),
            AccountKind::Group => Self::GroupName(number),
        }
    }

    /// Reads a line, without its end.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn of_line(line: &[u8]) -> Result<Self, String> {
        let question: Self = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        match &question {
            Self::Netgroup(name) if NetgroupName::new(name).is_none() => {
                Err(format!("{name:?} is no netgroup"))
            }
            Self::UserNumber(name) | Self::GroupNumber(name)
                if AccountName::new(name).is_none() =>
            {
                Err(format!("{name:?} is no user and no group"))
            }
            _ => Ok(question),
        }
    }

    /// As a line, with its end.
    pub fn to_line(&self) -> Vec<u8> {
        line(self)
    }
}

impl Answer {
    /// Reads a line, without its end.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn of_line(line: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(line).map_err(|error| error.to_string())
    }

    /// As a line, with its end.
    pub fn to_line(&self) -> Vec<u8> {
        line(self)
    }

    /// The hosts of a netgroup.
    pub(super) fn members(hosts: &[String]) -> Members {
        let mut members = Members::default();
        for host in hosts.iter().take(2 * MEMBERS_MAX) {
            members.add(host);
        }
        members.put_in_order();
        members
    }

    /// The groups of a user, each once and in their order: the first is his own.
    pub(super) fn groups(mut groups: Vec<u32>) -> Vec<u32> {
        let mut seen = std::collections::HashSet::new();
        groups.retain(|group| seen.insert(*group));
        groups.truncate(GROUPS_MAX);
        groups
    }
}

fn line(value: &impl Serialize) -> Vec<u8> {
    // Strings, numbers and lists of them: there is nothing that cannot be written.
    let mut line = serde_json::to_vec(value).unwrap_or_default();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for question in [
            Question::Netgroup("staff".to_owned()),
            Question::User(7),
            Question::UserNumber("EXAMPLE\\jane".to_owned()),
            Question::GroupNumber("domain users".to_owned()),
            Question::UserName(7),
            Question::GroupName(8),
        ] {
            let line = question.to_line();
            assert_eq!(Question::of_line(line.trim_ascii_end()), Ok(question));
        }
        for answer in [
            Answer::Hosts(vec![String::new(), "a.example".to_owned()]),
            Answer::Groups(vec![1, 2]),
            Answer::Number(7),
            Answer::Name("jane".to_owned()),
            Answer::Missing,
            Answer::Failed("line\nend".to_owned()),
        ] {
            let line = answer.to_line();
            assert_eq!(line.iter().position(|byte| *byte == b'\n'), Some(line.len() - 1));
            assert_eq!(Answer::of_line(line.trim_ascii_end()), Ok(answer));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "",
            "{}",
            "7",
            "{\"user\":-1}",
            "{\"netgroup\":\"a b\"}",
            "{\"user\":1,\"x\":2}",
            "{\"user-number\":\"7\"}",
            "{\"group-number\":\"+@staff\"}",
            "{\"group-name\":\"staff\"}",
        ] {
            assert!(Question::of_line(line.as_bytes()).is_err(), "{line}");
        }
    }

    #[test]
    fn a_users_own_group_stays_the_first() {
        assert_eq!(Answer::groups(vec![9, 3, 9, 1, 3]), [9, 3, 1]);
    }
}
