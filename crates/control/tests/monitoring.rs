//! Unit ring: `packaging/`: alert rules and dashboard ask for metrics and labels that the server tells,
//! and lead to pages that are there.
#![allow(clippy::expect_used, clippy::unwrap_used)] // A failure here is a failure of the test.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value;
use steadfast_control::metrics::{METRICS, Metric};

/// What Prometheus and `node_exporter` tell.
const OTHERS: [&str; 2] = ["up", "node_textfile_mtime_seconds"];
/// What Prometheus adds to the labels of ours, and what the buckets of a histogram have.
const ADDED: [&str; 3] = ["job", "instance", "le"];
/// Words that are followed by a list of labels.
const LISTS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
const OPERATORS: [&str; 5] = ["and", "or", "unless", "bool", "offset"];

fn file(path: &str) -> String {
    let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[derive(Debug, PartialEq)]
enum Token {
    Word(String),
    Text,
    Range,
    Other(char),
}

/// The words of an expression, without what is in quotes and in square brackets.
fn tokens(expression: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut letters = expression.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => {
                while let Some(inner) = letters.next() {
                    match inner {
                        '\\' => drop(letters.next()),
                        '"' => break,
                        _ => {}
                    }
                }
                tokens.push(Token::Text);
            }
            '[' => {
                assert!(letters.by_ref().any(|inner| inner == ']'), "{expression}");
                tokens.push(Token::Range);
            }
            _ if letter.is_whitespace() => {}
            _ if letter.is_ascii_alphanumeric() || matches!(letter, '_' | '.' | '$') => {
                let mut word = letter.to_string();
                let is_inner = |next: &char| next.is_ascii_alphanumeric() || "_.".contains(*next);
                while let Some(next) = letters.next_if(is_inner) {
                    word.push(next);
                }
                tokens.push(Token::Word(word));
            }
            _ => tokens.push(Token::Other(letter)),
        }
    }
    tokens
}

/// What an expression asks for: metrics, each with the labels that select, and the labels of its lists.
#[derive(Debug, Default, PartialEq)]
struct Asked {
    metrics: Vec<(String, Vec<String>)>,
    labels: Vec<String>,
}

fn asked(expression: &str) -> Asked {
    let tokens = tokens(expression);
    let mut asked = Asked::default();
    let mut place = 0;
    while let Some(token) = tokens.get(place) {
        place += 1;
        let Token::Word(word) = token else { continue };
        let opens = |with| tokens.get(place) == Some(&Token::Other(with));
        let until = |from: usize, with| {
            let end = tokens[from..].iter().position(|one| *one == Token::Other(with));
            from + end.unwrap_or_else(|| panic!("{expression}"))
        };
        let words = |from: usize, to: usize| {
            tokens[from..to].iter().filter_map(|token| match token {
                Token::Word(word) => Some(word.clone()),
                _ => None,
            })
        };
        if LISTS.contains(&word.as_str()) {
            // `group_left` has a list or none.
            if opens('(') && !(word.starts_with("group_") && tokens.get(place + 1).is_none()) {
                let end = until(place, ')');
                asked.labels.extend(words(place, end));
                place = end + 1;
            }
        } else if word.starts_with(|first: char| first.is_ascii_digit() || "$.".contains(first))
            || OPERATORS.contains(&word.as_str())
            || opens('(')
            || matches!(tokens.get(place), Some(Token::Word(next)) if LISTS[..2].contains(&next.as_str()))
        {
            // A number, a variable, an operator, a function, an aggregation.
        } else if opens('{') {
            let end = until(place, '}');
            asked.metrics.push((word.clone(), words(place, end).collect()));
            place = end + 1;
        } else {
            asked.metrics.push((word.clone(), Vec::new()));
        }
    }
    asked
}

/// What is wrong with an expression.
fn faults(expression: &str) -> Vec<String> {
    let Asked { metrics, labels } = asked(expression);
    let mut faults = Vec::new();
    if metrics.is_empty() {
        faults.push(format!("no metric in {expression}"));
    }
    let mut known: BTreeSet<&str> = ADDED.into();
    for (name, selected) in &metrics {
        if OTHERS.contains(&name.as_str()) {
            continue;
        }
        let is_it = |metric: &&&Metric| metric.samples().contains(name);
        let Some(metric) = METRICS.iter().find(is_it) else {
            faults.push(format!("no metric {name}"));
            continue;
        };
        known.extend(metric.labels);
        let wrong = selected
            .iter()
            .filter(|label| !metric.labels.contains(&label.as_str()))
            .filter(|label| !ADDED.contains(&label.as_str()));
        faults.extend(wrong.map(|label| format!("{name} has no label {label}")));
    }
    let wrong = labels.iter().filter(|label| !known.contains(label.as_str()));
    faults.extend(wrong.map(|label| format!("no label {label} in {expression}")));
    faults
}

/// The expressions of a file of rules.
fn expressions(rules: &str) -> Vec<String> {
    let mut lines = rules.lines().peekable();
    let mut all = Vec::new();
    while let Some(line) = lines.next() {
        let Some(rest) = line.trim_start().strip_prefix("expr: ") else { continue };
        if rest != "|" {
            all.push(rest.to_owned());
            continue;
        }
        let indent = |line: &str| line.len() - line.trim_start().len();
        let mut text = String::new();
        while let Some(more) = lines.next_if(|next| indent(next) > indent(line)) {
            text.extend([more, "\n"]);
        }
        all.push(text);
    }
    all
}

/// All texts of these keys.
fn texts(value: &Value, keys: &[&str], found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::String(text) if keys.contains(&key.as_str()) => found.push(text.clone()),
                    _ => texts(value, keys, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| texts(value, keys, found)),
        _ => {}
    }
}

#[test]
fn faults_of_expressions_are_found() {
    let rate =
        "sum by (job, program) (rate(steadfast_calls_total{procedure=~\"READ}\"}[5m])) / 2e3";
    let wanted = Asked {
        metrics: vec![("steadfast_calls_total".to_owned(), vec!["procedure".to_owned()])],
        labels: vec!["job".to_owned(), "program".to_owned()],
    };
    assert_eq!(asked(rate), wanted);
    assert_eq!(faults(rate), [""; 0]);
    for (wrong, fault) in [
        ("rate(steadfast_calls[5m])", "no metric steadfast_calls"),
        ("steadfast_shares{stat=\"faulty\"}", "steadfast_shares has no label stat"),
        ("sum by (client) (steadfast_clients)", "no label client in sum by (client)"),
        ("steadfast_grace == 1 and steadfast_gone", "no metric steadfast_gone"),
        ("vector(1)", "no metric in"),
    ] {
        let faults = faults(wrong);
        assert!(faults.len() == 1 && faults[0].starts_with(fault), "{wrong}: {faults:?}");
    }
}

#[test]
fn alerts_ask_for_what_the_server_tells_and_lead_to_pages_that_are_there() {
    let rules = file("packaging/prometheus/steadfast.rules.yml");
    let count = |word: &str| rules.matches(word).count();
    let expressions = expressions(&rules);
    assert!(expressions.len() >= 20 && expressions.len() == count("- alert: "));
    let faults: Vec<String> = expressions.iter().flat_map(|one| faults(one)).collect();
    assert!(faults.is_empty(), "{faults:#?}");
    for word in ["severity: ", "summary: ", "description: ", "runbook_url: "] {
        assert_eq!(count(word), expressions.len(), "{word}");
    }
    let page = file("docs/slow.md");
    let anchors: BTreeSet<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("## ").or(line.strip_prefix("### ")))
        .map(|heading| {
            let letters = heading.to_lowercase().replace(' ', "-");
            letters.chars().filter(|one| one.is_alphanumeric() || *one == '-').collect()
        })
        .collect();
    for url in rules.lines().filter_map(|line| line.trim().strip_prefix("runbook_url: ")) {
        let anchor = url.trim_matches('"').rsplit_once("/slow.md#").expect("the page").1;
        assert!(anchors.contains(anchor), "{anchor} is not in docs/slow.md");
    }
}

#[test]
fn the_dashboard_asks_for_what_the_server_tells() {
    let dashboard: Value =
        serde_json::from_str(&file("packaging/grafana/steadfast.json")).expect("JSON");
    let mut expressions = Vec::new();
    texts(&dashboard, &["expr"], &mut expressions);
    assert!(expressions.len() > 50, "{}", expressions.len());
    let mut queries = Vec::new();
    texts(&dashboard["templating"], &["definition"], &mut queries);
    let of_query = |query: &String| {
        let inner = query.strip_prefix("label_values(").expect("a query of labels");
        inner.rsplit_once(',').expect("a label").0.to_owned()
    };
    expressions.extend(queries.iter().map(of_query));
    let faults: Vec<String> = expressions.iter().flat_map(|one| faults(one)).collect();
    assert!(faults.is_empty(), "{faults:#?}");
    // Places on the grid, each its own.
    let panels = dashboard["panels"].as_array().expect("panels");
    let numbers: BTreeSet<u64> = panels.iter().filter_map(|panel| panel["id"].as_u64()).collect();
    assert_eq!(numbers.len(), panels.len());
    let mut taken = BTreeSet::new();
    for panel in panels {
        let place = |key: &str| panel["gridPos"][key].as_u64().expect("a place");
        assert!(place("x") + place("w") <= 24, "{}", panel["title"]);
        for x in place("x")..place("x") + place("w") {
            for y in place("y")..place("y") + place("h") {
                assert!(taken.insert((x, y)), "{} is on another panel", panel["title"]);
            }
        }
    }
}
