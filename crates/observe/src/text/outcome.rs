//! Plans, and what was done, for people.

use std::fmt::Write as _;

use serde_json::Value;
use steadfast_control::api::{
    Action, Applied, KeyChange, Mistake, Plan, PlannedChange, PluginFault,
};

use super::table::{Color, Screen};

/// Notes of one kind that are told one by one; of more, the first, and where the others are.
const ALIKE_MAX: usize = 3;
/// So many places of others are told.
const PLACES_MAX: usize = 5;
/// Changes that are told one by one; of more, how many.
const CHANGES_MAX: usize = 200;

/// What would be done.
#[must_use]
pub fn plan(plan: &Plan, screen: Screen) -> String {
    let mut text = String::new();
    changes(&mut text, &plan.changes, screen);
    notes(&mut text, "left out", Color::Red, &plan.mistakes, screen);
    notes(&mut text, "warning", Color::Yellow, &plan.warnings, screen);
    let _ = match plan.changes.len() {
        0 => writeln!(text, "nothing would change"),
        _ => writeln!(
            text,
            "{} would be done; state {} is not changed",
            count(&plan.changes),
            plan.sequence
        ),
    };
    text
}

/// What was done.
#[must_use]
pub fn applied(applied: &Applied, screen: Screen) -> String {
    let mut text = String::new();
    if applied.changes.len() <= 1 {
        changes(&mut text, &applied.changes, screen);
    }
    notes(&mut text, "left out", Color::Red, &applied.mistakes, screen);
    notes(&mut text, "warning", Color::Yellow, &applied.warnings, screen);
    for PluginFault { plugin, why } in &applied.plugin_faults {
        let head = screen.paint(Color::Yellow, &format!("plug-in {plugin}:"));
        let _ = writeln!(text, "{head} {why}");
    }
    let again = &applied.served_again;
    if !again.is_empty() {
        let more = again.len().saturating_sub(PLACES_MAX);
        let mut paths: Vec<&str> = again.iter().take(PLACES_MAX).map(String::as_str).collect();
        let more = format!("and {more} more");
        if again.len() > PLACES_MAX {
            paths.push(&more);
        }
        let _ = writeln!(text, "no longer faulty, and served: {}", paths.join(", "));
    }
    let _ = match applied.changes.len() {
        0 if again.is_empty() => writeln!(text, "unchanged: nothing had to be changed"),
        0 => writeln!(text, "nothing else had to be changed"),
        _ => writeln!(text, "{}: state {}", count(&applied.changes), applied.sequence),
    };
    if !applied.mount_lines.is_empty() {
        text.push_str("mount on a client, as root:\n");
    }
    for line in &applied.mount_lines {
        let _ = writeln!(text, "  {line}");
    }
    if !applied.mount_lines.is_empty() {
        text.push_str("others than Linux, and for good: steadfast share mounting PATH\n");
    }
    text
}

/// What became of shares that are accepted on what they are on.
#[must_use]
pub fn accepted(applied: &Applied, screen: Screen) -> String {
    let mut text = String::new();
    notes(&mut text, "warning", Color::Yellow, &applied.warnings, screen);
    if applied.warnings.is_empty() {
        text.push_str("accepted: they are served from what they are on now\n");
    }
    text
}

/// Notes, of which many of one kind, as about directories that are missing, are one line.
fn notes(text: &mut String, head: &str, color: Color, notes: &[Mistake], screen: Screen) {
    let mut kinds: Vec<(String, Vec<&Mistake>)> = Vec::new();
    for note in notes {
        let kind = kind(&note.what);
        match kinds.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, alike)) => alike.push(note),
            None => kinds.push((kind, vec![note])),
        }
    }
    let head = screen.paint(color, &format!("{head}:"));
    for (_, alike) in kinds {
        let [first, others @ ..] = &*alike else { continue };
        if alike.len() <= ALIKE_MAX {
            for note in alike {
                let _ = writeln!(text, "{head} {note}");
            }
            continue;
        }
        let mut places: Vec<&str> =
            others.iter().take(PLACES_MAX).map(|note| note.place.as_str()).collect();
        if others.len() > PLACES_MAX {
            places.push("…");
        }
        let (count, places) = (others.len(), places.join(", "));
        let _ = writeln!(text, "{head} {first}, and {count} more like it: {places}");
    }
}

/// What is said, without what it is said of.
fn kind(what: &str) -> String {
    let mut parts = what.split('"').enumerate();
    parts.by_ref().filter(|(number, _)| number % 2 == 0).map(|(_, part)| part).collect()
}

fn changes(text: &mut String, changes: &[PlannedChange], screen: Screen) {
    for change in changes.iter().take(CHANGES_MAX) {
        let (sign, color) = match change.action {
            Action::Add => ("+", Color::Green),
            Action::Remove => ("-", Color::Red),
            Action::Change => ("~", Color::Yellow),
        };
        let group = change.group.as_ref().map(|group| format!(" (group {group})"));
        let head = format!("{sign} {} {}", change.subject.word(), change.name);
        let _ = writeln!(text, "{}{}", screen.paint(color, &head), group.unwrap_or_default());
        if change.action == Action::Remove {
            continue;
        }
        for KeyChange { key, old, new } in &change.keys {
            let _ = match (old, new) {
                (Value::Null, new) => writeln!(text, "    {key} = {new}"),
                (old, Value::Null) => writeln!(text, "    {key}: {old} is taken out"),
                (old, new) => writeln!(text, "    {key}: {old} becomes {new}"),
            };
        }
    }
    if let Some(more) = changes.len().checked_sub(CHANGES_MAX).filter(|more| *more > 0) {
        let _ = writeln!(text, "and {more} more");
    }
}

/// How many of what: `2 shares added, 1 group changed`.
fn count(changes: &[PlannedChange]) -> String {
    let mut parts: Vec<(&'static str, Action, usize)> = Vec::new();
    for change in changes {
        let subject = change.subject.word();
        match parts.iter_mut().find(|part| part.0 == subject && part.1 == change.action) {
            Some(part) => part.2 += 1,
            None => parts.push((subject, change.action, 1)),
        }
    }
    let words = parts.iter().map(|(subject, action, count)| {
        let done = match action {
            Action::Add => "added",
            Action::Remove => "removed",
            Action::Change => "changed",
        };
        format!("{count} {subject}{} {done}", if *count == 1 { "" } else { "s" })
    });
    words.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use steadfast_control::api::Subject;

    use super::*;

    fn change(action: Action, name: &str, keys: Vec<KeyChange>) -> PlannedChange {
        let group = Some("home".to_owned());
        PlannedChange { action, subject: Subject::Share, name: name.to_owned(), group, keys }
    }

    fn key(key: &str, old: Value, new: Value) -> KeyChange {
        KeyChange { key: key.to_owned(), old, new }
    }

    #[test]
    fn a_plan_is_told_line_by_line() {
        let told = plan(
            &Plan {
                sequence: 7,
                changes: vec![
                    change(Action::Add, "/a", vec![key("clients", Value::Null, json!(["*"]))]),
                    change(Action::Remove, "/b", vec![key("path", json!("/b"), Value::Null)]),
                    change(
                        Action::Change,
                        "/c",
                        vec![
                            key("options", json!(["ro"]), json!(["rw"])),
                            key("enabled", json!(false), Value::Null),
                        ],
                    ),
                ],
                mistakes: vec![Mistake {
                    place: "x.toml:1:2".to_owned(),
                    what: "unknown option \"or\"".to_owned(),
                    suggestion: Some("ro".to_owned()),
                    operation: None,
                }],
                warnings: Vec::new(),
            },
            Screen::default(),
        );
        assert_eq!(
            told,
            "+ share /a (group home)\n    clients = [\"*\"]\n- share /b (group home)\n\
             ~ share /c (group home)\n    options: [\"ro\"] becomes [\"rw\"]\n    \
             enabled: false is taken out\n\
             left out: x.toml:1:2: unknown option \"or\"; did you mean \"ro\"?\n\
             1 share added, 1 share removed, 1 share changed would be done; state 7 is not changed\n"
        );
    }

    #[test]
    fn many_notes_of_one_kind_are_one_line() {
        let note = |n: usize| Mistake {
            place: format!("/d{n}"),
            what: format!("the directory \"/d{n}\" does not exist"),
            ..Mistake::default()
        };
        let mut warnings: Vec<Mistake> = (0..24).map(note).collect();
        warnings.push(Mistake { what: "something else".to_owned(), ..Mistake::default() });
        let told = plan(&Plan { warnings, ..Plan::default() }, Screen::default());
        assert_eq!(
            told,
            "warning: /d0: the directory \"/d0\" does not exist, and 23 more like it: /d1, /d2, /d3, \
             /d4, /d5, …\nwarning: something else\nnothing would change\n"
        );
        let few = Plan { warnings: (0..3).map(note).collect(), ..Plan::default() };
        assert_eq!(plan(&few, Screen::default()).lines().count(), 4);
    }

    #[test]
    fn what_was_done_is_told_in_a_line() {
        let changes: Vec<_> =
            (0..3).map(|n| change(Action::Add, &format!("/{n}"), Vec::new())).collect();
        let done = Applied { sequence: 8, changes, ..Applied::default() };
        assert_eq!(applied(&done, Screen::default()), "3 shares added: state 8\n");
        let again = |count: usize| Applied {
            served_again: (0..count).map(|n| format!("/{n}")).collect(),
            ..Applied::default()
        };
        assert_eq!(
            applied(&again(1), Screen::default()),
            "no longer faulty, and served: /0\nnothing else had to be changed\n"
        );
        let many = applied(&again(7), Screen::default());
        assert!(many.starts_with("no longer faulty, and served: /0, /1, /2, /3, /4, and 2 more\n"));
        let none = Applied::default();
        assert_eq!(applied(&none, Screen::default()), "unchanged: nothing had to be changed\n");
    }
}
