//! Shares, groups and states for people.

use std::fmt::Write as _;
use std::time::Duration;

use steadfast_control::api::{Event, GroupStatus, History, ShareState, ShareStatus};

use super::table::{Cell, Color, Screen, Table, list};

/// Of a list of clients in a table.
const LIST_CHARS: usize = 40;

fn color(state: ShareState) -> Color {
    match state {
        ShareState::Enabled => Color::Green,
        ShareState::Disabled => Color::Dim,
        ShareState::Faulty => Color::Red,
        ShareState::Draining => Color::Yellow,
    }
}

/// A line a share; what is wrong with some of them, below.
#[must_use]
pub fn shares(shares: &[ShareStatus], total: usize, screen: Screen) -> String {
    if shares.is_empty() {
        return match total {
            0 => "nothing is shared: see `steadfast share add --help`\n".to_owned(),
            _ => format!("none of {total} shares\n"),
        };
    }
    let mut names = vec!["PATH", "STATE", "GROUP", "CLIENTS", "OPTIONS", "PROTOCOLS"];
    let have_sizes = shares.iter().any(|share| !share.size_shown().is_empty());
    if have_sizes {
        names.push("SIZE");
    }
    let mut table = Table::new(&names);
    for share in shares {
        let mut clients: Vec<String> =
            share.rules.iter().flat_map(|rule| rule.clients.clone()).collect();
        clients.extend(share.clients.iter().cloned());
        let mut cells = vec![
            (&share.path).into(),
            Cell::colored(share.state.word(), color(share.state)),
            share.group.as_deref().unwrap_or("-").into(),
            list(&clients, LIST_CHARS).into(),
            list(&share.options, LIST_CHARS).into(),
            list(&share.protocols, LIST_CHARS).into(),
        ];
        if have_sizes {
            cells.push(share.size_shown().into());
        }
        table.row(cells);
    }
    let mut text = table.text(screen);
    for share in shares {
        if let Some(why) = &share.why {
            let _ = writeln!(text, "{}: {why}", screen.paint(color(share.state), &share.path));
        }
        for fault in &share.plugin_faults {
            let path = screen.paint(Color::Yellow, &share.path);
            let _ = writeln!(text, "{path}: plug-in {}: {}", fault.plugin, fault.why);
        }
    }
    text
}

/// All of a share.
#[must_use]
pub fn share(share: &ShareStatus, screen: Screen) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        if !value.is_empty() {
            let _ = writeln!(text, "{:12} {value}", format!("{name}:"));
        }
    };
    line("path", &share.path);
    line("state", &screen.paint(color(share.state), share.state.word()));
    line("why", share.why.as_deref().unwrap_or_default());
    line("directory", &share.directory);
    line("group", share.group.as_deref().unwrap_or_default());
    line("written in", share.source.as_deref().unwrap_or("the command line of the server"));
    line("pattern", share.pattern.as_deref().unwrap_or_default());
    line("description", share.description.as_deref().unwrap_or_default());
    line("resource", share.resource.as_deref().unwrap_or_default());
    line("id", &share.id.to_string());
    line("protocols", &share.protocols.join(", "));
    for rule in &share.rules {
        line("rule", &format!("{}: {}", rule.clients.join(", "), rule.options.join(",")));
    }
    line("clients", &share.clients.join(", "));
    line("options", &share.options.join(","));
    line("size", &share.size_shown());
    for fault in &share.plugin_faults {
        line("plug-in", &format!("{}: {}", fault.plugin, fault.why));
    }
    text
}

/// A line a group.
#[must_use]
pub fn groups(groups: &[GroupStatus], screen: Screen) -> String {
    let mut table = Table::new(&[
        "GROUP",
        "STATE",
        "SHARES",
        "SERVED",
        "FAULTY",
        "CLIENTS",
        "OPTIONS",
        "PATTERNS",
        "DESCRIPTION",
    ]);
    for group in groups {
        let state = match (&group.why, group.enabled) {
            (Some(_), _) => ShareState::Faulty,
            (None, true) => ShareState::Enabled,
            (None, false) => ShareState::Disabled,
        };
        let faulty = if group.faulty == 0 { Color::Plain } else { Color::Red };
        table.row([
            (&group.name).into(),
            Cell::colored(state.word(), color(state)),
            group.shares.to_string().into(),
            (group.served + group.draining).to_string().into(),
            Cell::colored(group.faulty.to_string(), faulty),
            list(&group.clients, LIST_CHARS).into(),
            list(&group.options, LIST_CHARS).into(),
            list(&group.patterns, LIST_CHARS).into(),
            group.description.as_deref().unwrap_or_default().into(),
        ]);
    }
    if table.is_empty() {
        return "there is no group: see `steadfast group create --help`\n".to_owned();
    }
    let mut text = table.text(screen);
    for group in groups {
        if let Some(why) = &group.why {
            let _ = writeln!(text, "{}: {why}", screen.paint(Color::Red, &group.name));
        }
    }
    text
}

/// A line a state; `now` is the time since 1970, of which ages are counted.
#[must_use]
pub fn history(history: &History, now: Duration, screen: Screen) -> String {
    let mut table = Table::new(&["STATE", "AGE", "WHAT", "WHO", "COMMENT"]);
    for entry in &history.entries {
        let is_now = entry.sequence == history.sequence;
        let color = match (is_now, entry.can_return) {
            (true, _) => Color::Bold,
            (false, true) => Color::Plain,
            (false, false) => Color::Dim,
        };
        table.row([
            Cell::colored(entry.sequence.to_string(), color),
            age(now.saturating_sub(Duration::from_millis(entry.unix_ms))).into(),
            (&entry.summary).into(),
            (&entry.who).into(),
            entry.comment.as_deref().unwrap_or_default().into(),
        ]);
    }
    if table.is_empty() {
        return "no tool has changed the shares yet\n".to_owned();
    }
    table.text(screen)
}

fn age(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

/// A change that was watched.
#[must_use]
pub fn event(event: &Event, screen: Screen) -> String {
    let (sign, shown) = match (event.old, event.new) {
        (None, Some(_)) => ("+", Color::Green),
        (_, None) => ("-", Color::Red),
        _ => ("~", Color::Yellow),
    };
    let head = screen.paint(shown, &format!("{sign} {} {}", event.subject.word(), event.name));
    let states = match (event.old, event.new) {
        (Some(old), Some(new)) if old != new => {
            format!(" {old}, now {}", screen.paint(color(new), new.word()))
        }
        (_, Some(new)) => format!(" {}", screen.paint(color(new), new.word())),
        _ => String::new(),
    };
    let why = event.why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    format!("{head}{states}{why} (state {})\n", event.sequence)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use steadfast_control::api::{HistoryEntry, Subject};

    use super::*;

    fn status(path: &str, state: &str, why: Option<&str>) -> ShareStatus {
        serde_json::from_value(json!({
            "path": path, "directory": path, "group": "home", "state": state, "why": why,
            "id": 5, "options": ["rw"], "clients": ["10.0.0.0/8"],
            "rules": [{"clients": ["@staff"], "options": ["ro"]}],
        }))
        .expect("a status")
    }

    #[test]
    fn shares_are_a_table_with_their_faults_below() {
        let all = [status("/a", "enabled", None), status("/bcd", "faulty", Some("not there"))];
        assert_eq!(
            shares(&all, 2, Screen::default()),
            "PATH  STATE    GROUP  CLIENTS            OPTIONS\n\
             /a    enabled  home   @staff,10.0.0.0/8  rw\n\
             /bcd  faulty   home   @staff,10.0.0.0/8  rw\n\
             /bcd: not there\n"
        );
        assert!(shares(&[], 0, Screen::default()).contains("share add"));
        assert_eq!(shares(&[], 3, Screen::default()), "none of 3 shares\n");
    }

    #[test]
    fn a_share_is_told_whole() {
        let told = share(&status("/a", "draining", None), Screen::default());
        assert!(told.contains("state:       draining\n"), "{told}");
        assert!(told.contains("rule:        @staff: ro\n"), "{told}");
        assert!(told.contains("written in:  the command line"), "{told}");
    }

    #[test]
    fn groups_and_states_are_tables() {
        let group = GroupStatus {
            name: "home".to_owned(),
            enabled: true,
            shares: 3,
            served: 2,
            faulty: 1,
            ..GroupStatus::default()
        };
        assert_eq!(
            groups(&[group], Screen::default()),
            "GROUP  STATE    SHARES  SERVED  FAULTY\nhome   enabled  3       2       1\n"
        );
        let entry = HistoryEntry {
            sequence: 4,
            unix_ms: 1_000_000,
            who: "user 0".to_owned(),
            summary: "1 share added".to_owned(),
            ..HistoryEntry::default()
        };
        let told = history(
            &History { sequence: 4, entries: vec![entry] },
            Duration::from_secs(1300),
            Screen::default(),
        );
        assert_eq!(told, "STATE  AGE    WHAT           WHO\n4      5 min  1 share added  user 0\n");
    }

    #[test]
    fn events_are_lines() {
        let mut news = Event {
            sequence: 9,
            subject: Subject::Share,
            name: "/a".to_owned(),
            group: None,
            old: Some(ShareState::Enabled),
            new: Some(ShareState::Faulty),
            why: Some("gone".to_owned()),
        };
        let told = event(&news, Screen::default());
        assert_eq!(told, "~ share /a enabled, now faulty: gone (state 9)\n");
        (news.new, news.why) = (None, None);
        assert_eq!(event(&news, Screen::default()), "- share /a (state 9)\n");
    }
}
