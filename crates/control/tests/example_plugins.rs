//! Process ring: the plug-ins of `examples/plugins`, run as the server runs them.

#![allow(clippy::expect_used)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use steadfast_control::plugins::{Executable, Limits, Plugin, PluginShare, Task};
use steadfast_shares::{ClientRule, Rights, Share, ShareId};

/// Shared with two clients, and not with a third, whatever its words may seem to say.
fn share(path: &str) -> Arc<PluginShare> {
    let status = json!({
        "path": path, "directory": "/srv", "state": "enabled", "id": 1, "options": ["rw"],
        "clients": ["*"], "protocols": ["plain-list"],
    });
    let rule = |clients: &str, grants: &[Rights]| ClientRule {
        pattern: clients.parse().expect("a pattern"),
        grants: grants.into(),
    };
    let may = [Rights::default()];
    let rules = vec![rule("10.0.0.1", &[]), rule("10.0.0.0/8", &may), rule("client.example", &may)];
    let served = Share {
        id: ShareId(1),
        path: path.into(),
        elsewhere: Some(Path::new("/srv").into()),
        crosses_mounts: false,
        required_mounts: Arc::default(),
        size: None,
        without_log: false,
        is_draining: false,
        rules: Arc::new(rules.into()),
    };
    let status = serde_json::from_value(status).expect("a share");
    Arc::new(PluginShare { status, share: Arc::new(served) })
}

#[test]
fn the_plain_list_is_kept() {
    let place = tempfile::tempdir().expect("a directory");
    let list = place.path().join("shares.txt");
    let program: PathBuf =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/plugins/plain-list");
    // Longer than anything here takes on a busy machine.
    let limits = Limits { time: Duration::from_secs(60), ..Limits::default() };
    let mut plugin = Executable::new("plain-list", vec![program, list.clone()], limits);
    let mut publish =
        |shares: &[Arc<PluginShare>]| plugin.publish(&Task { sequence: 3, shares, changed: None });
    publish(&[share("/a"), share("/é b")]).expect("done");
    let text = std::fs::read_to_string(&list).expect("a list");
    assert_eq!(
        text,
        "/a\t/srv\t10.0.0.0/8,client.example\n/é b\t/srv\t10.0.0.0/8,client.example\n"
    );
    let faults = publish(&[share("/a"), share("/two\nlines")]).expect_err("a fault");
    assert_eq!(faults[0].paths, ["/two\nlines"]);
    assert_eq!(std::fs::read_to_string(&list).expect("a list").lines().count(), 1);
    publish(&[]).expect("done");
    assert_eq!(std::fs::read_to_string(&list).expect("a list"), "");
}
