//! Unit ring: openapi.json describes every route, and every field of what is told.

use std::collections::{BTreeMap, BTreeSet};

use steadfast_catalog::manage::{Changes, GroupSpec, PatternSpec, ShareSpec};
use steadfast_shares::RuleSpec;

use super::*;
use crate::api::{
    Action, Document, ExportsFile, HistoryEntry, Import, ImportForm, KeyChange, Mistake, MountForm,
    MountKind, PlannedChange, PluginFault,
};
use crate::explain::{Identity, LookUp, RightsTold};

/// The paths of a description, each with its methods.
fn described(openapi: &Value) -> BTreeMap<String, BTreeSet<String>> {
    let paths = openapi["paths"].as_object().expect("paths");
    paths
        .iter()
        .map(|(path, methods)| {
            (path.clone(), methods.as_object().expect("methods").keys().cloned().collect())
        })
        .collect()
}

#[test]
fn the_description_has_every_route_and_no_other() {
    let openapi: Value = serde_json::from_str(OPENAPI).expect("JSON");
    let mut routes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for route in &ROUTES {
        routes.entry(route.path.to_owned()).or_default().insert(route.method.to_owned());
    }
    assert_eq!(described(&openapi), routes);
    assert_eq!(openapi["openapi"], "3.1.0");
    for (path, methods) in described(&openapi) {
        for method in methods {
            let operation = &openapi["paths"][&path][&method];
            assert!(
                operation["summary"].is_string() && operation["operationId"].is_string(),
                "{path}"
            );
            assert!(operation["responses"]["200"].is_object(), "{path}");
            assert_eq!(operation["responses"]["default"]["$ref"], "#/components/responses/Error");
        }
    }
}

/// Every `$ref` of a document.
fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(reference)) = map.get("$ref") {
                found.insert(reference.clone());
            }
            map.values().for_each(|value| references(value, found));
        }
        Value::Array(list) => list.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

/// Values by the names of their schemas; each has all its fields, also those that may be missing.
type Samples = Vec<(&'static str, Value)>;

fn text() -> String {
    "x".to_owned()
}

/// A list that is told, since something is in it.
fn list() -> Vec<String> {
    vec![String::new()]
}

fn rule() -> RuleSpec {
    RuleSpec { clients: vec!["*".to_owned()], options: vec!["ro".to_owned()] }
}

fn plugin_fault() -> PluginFault {
    PluginFault { plugin: String::new(), why: String::new() }
}

fn mistake() -> Mistake {
    Mistake { operation: Some(1), suggestion: Some(text()), ..<_>::default() }
}

fn key_change() -> KeyChange {
    KeyChange { key: String::new(), old: Value::Null, new: Value::Null }
}

fn planned_change() -> PlannedChange {
    PlannedChange {
        action: Action::Add,
        subject: Subject::Share,
        name: String::new(),
        group: Some(text()),
        keys: vec![key_change()],
    }
}

/// What is told of shares and groups.
fn states() -> Samples {
    let full = ShareStatus {
        why: Some(text()),
        pattern: Some(text()),
        description: Some(text()),
        resource: Some(text()),
        protocols: list(),
        rules: vec![rule()],
        size_bytes: Some(2),
        used_bytes: Some(1),
        size_fault: Some(text()),
        plugin_faults: vec![plugin_fault()],
        ..share("/a", ShareState::Enabled)
    };
    let group = GroupStatus {
        description: Some(text()),
        why: Some(text()),
        source: Some(text()),
        protocols: list(),
        patterns: list(),
        ..GroupStatus::default()
    };
    let event = Event { group: Some(text()), why: Some(text()), ..event("/a") };
    vec![
        ("ShareStatus", json!(full)),
        ("SharePage", json!(SharePage { next: Some(text()), ..<_>::default() })),
        ("GroupStatus", json!(group)),
        ("Rule", json!(rule())),
        ("PluginFault", json!(plugin_fault())),
        ("Event", json!(event)),
    ]
}

/// What is asked for.
fn requests() -> Samples {
    let changes = Changes {
        set: std::iter::once(("k".to_owned(), Value::Null)).collect(),
        add_clients: list(),
        remove_clients: list(),
        add_options: list(),
        remove_options: list(),
    };
    let operation = Operation::SetShare { path: String::new(), changes };
    let batch = Batch { operations: vec![operation], comment: Some(text()), partial: true };
    let spec = ShareSpec {
        directory: Some(text()),
        id: Some(1),
        description: Some(text()),
        resource: Some(text()),
        protocols: list(),
        options: list(),
        clients: list(),
        rules: vec![rule()],
        log: Some(true),
        enabled: Some(true),
        draining: Some(true),
        ..<_>::default()
    };
    let pattern = PatternSpec {
        except: list(),
        options: list(),
        clients: list(),
        mounted: Some(true),
        ..<_>::default()
    };
    let group = GroupSpec {
        description: Some(text()),
        options: list(),
        clients: list(),
        protocols: list(),
        enabled: Some(true),
        patterns: vec![pattern.clone()],
        ..<_>::default()
    };
    vec![
        ("Document", json!(Document { comment: Some(text()), ..<_>::default() })),
        (
            "Import",
            json!(Import { form: ImportForm::Ganesha, comment: Some(text()), ..<_>::default() }),
        ),
        ("ExportsFile", json!(ExportsFile::default())),
        ("Batch", json!(batch)),
        ("Changes", json!(batch)["operations"][0]["changes"].clone()),
        ("Share", json!(spec)),
        ("Pattern", json!(pattern)),
        ("Group", json!(group)),
        ("AcceptRequest", json!(AcceptRequest { paths: vec!["/a".to_owned()], all: true })),
        ("RollbackRequest", json!(RollbackRequest { to: Some(1) })),
    ]
}

/// What is told of what was asked for.
fn results() -> Samples {
    let applied = Applied {
        changes: vec![planned_change()],
        mistakes: vec![mistake()],
        warnings: vec![mistake()],
        plugin_faults: vec![plugin_fault()],
        mount_lines: vec!["mount".to_owned()],
        served_again: vec!["/a".to_owned()],
        ..Applied::default()
    };
    let plan = Plan {
        changes: vec![planned_change()],
        mistakes: vec![mistake()],
        warnings: vec![mistake()],
        ..Plan::default()
    };
    vec![
        ("Mistake", json!(mistake())),
        ("KeyChange", json!(key_change())),
        ("PlannedChange", json!(planned_change())),
        ("Plan", json!(plan)),
        ("Applied", json!(applied)),
        ("History", json!(History::default())),
        ("HistoryEntry", json!(HistoryEntry { comment: Some(text()), ..<_>::default() })),
        ("Error", json!(ErrorBody { mistakes: vec![mistake()], ..<_>::default() })),
    ]
}

/// What is told of calls, and of who may make which.
fn diagnoses() -> Samples {
    let rights = RightsTold {
        read_only: true,
        is_async: true,
        squash: String::new(),
        anonymous_uid: 1,
        anonymous_gid: 1,
        flavors: list(),
        needs_privileged_port: true,
        looks_up_groups: true,
    };
    vec![
        (
            "Explanation",
            json!(Explanation {
                source: Some(text()),
                served_by: Some(text()),
                ..Explanation::default()
            }),
        ),
        ("Mounting", json!(Mounting { path: text(), forms: Vec::new() })),
        (
            "MountForm",
            json!(MountForm { kind: MountKind::Linux, text: text(), why_not: Some(text()) }),
        ),
        ("Rights", json!(rights)),
        ("Identity", json!(Identity { uid: 1, groups: None, is_squashed: true })),
        ("LookUp", json!(LookUp { age_s: Some(1), source: Some(text()), ..<_>::default() })),
        ("Slow", json!(SlowReport::default())),
        ("SlowCall", json!(crate::slow::SlowCall::default())),
        ("SlowStage", json!(crate::slow::SlowStage::default())),
        ("Top", json!(TopReport::default())),
        ("TopLine", json!(crate::top::TopLine::default())),
    ]
}

#[test]
fn the_description_refers_to_what_is_there() {
    let openapi: Value = serde_json::from_str(OPENAPI).expect("JSON");
    let mut found = BTreeSet::new();
    references(&openapi, &mut found);
    for reference in found {
        let pointer = reference.strip_prefix('#').expect("within");
        assert!(openapi.pointer(pointer).is_some(), "{reference}");
    }
}

#[test]
fn the_description_has_every_field() {
    let openapi: Value = serde_json::from_str(OPENAPI).expect("JSON");
    for (name, value) in [states(), requests(), results(), diagnoses()].concat() {
        let schema = &openapi["components"]["schemas"][name]["properties"];
        let described: BTreeSet<&String> = schema.as_object().expect(name).keys().collect();
        let real: BTreeSet<&String> = value.as_object().expect(name).keys().collect();
        assert_eq!(described, real, "{name}");
    }
}
