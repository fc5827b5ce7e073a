//! Counts of the kernel client beside those of a capture.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Calls by operation: names in small letters without underscores.
pub(super) type Counts = BTreeMap<String, u64>;

/// NFS, as RPC numbers it.
const NFS: u64 = 100_003;
/// The largest difference, in parts of the client's count.
const SHARE_MAX: f64 = 0.01;

/// Operations that the kernel client has in its COMPOUNDs of these names only. It also counts by the
/// names of its own procedures, and puts PUTFH, GETFH, GETATTR, ACCESS, SEQUENCE, SAVEFH and RESTOREFH
/// into many: the row of all COMPOUNDs has these.
const OWN: &[(&str, &[&str])] = &[
    ("read", &["read"]),
    ("readplus", &["readplus"]),
    ("write", &["write"]),
    ("commit", &["commit"]),
    ("open", &["open", "opennoattr"]),
    ("openconfirm", &["openconfirm"]),
    ("opendowngrade", &["opendowngrade"]),
    ("close", &["close"]),
    ("setattr", &["setattr"]),
    ("lock", &["lock"]),
    ("locku", &["locku"]),
    ("lookup", &["lookup"]),
    ("remove", &["remove"]),
    ("rename", &["rename"]),
    ("link", &["link"]),
    ("create", &["create", "symlink"]),
    ("readlink", &["readlink"]),
    ("readdir", &["readdir"]),
    ("renew", &["renew"]),
    ("delegreturn", &["delegreturn"]),
    ("releaselockowner", &["releaselockowner"]),
    ("freestateid", &["freestateid"]),
];

fn normal(name: &str) -> String {
    name.chars().filter(char::is_ascii_alphanumeric).map(|it| it.to_ascii_lowercase()).collect()
}

/// The calls of one mount in a `mountstats` file.
///
/// # Errors
/// When the mount is not there, or a count is no number.
pub(super) fn parse(text: &str, mount: &str) -> Result<Counts> {
    let place = format!("mounted on {mount} with");
    let mut lines = text.lines().skip_while(|line| !line.contains(&place));
    lines.next().with_context(|| format!("{mount} is not in mountstats"))?;
    let mut counts = Counts::new();
    let own = lines.take_while(|line| !line.starts_with("device "));
    for line in own.skip_while(|line| !line.contains("per-op statistics")).skip(1) {
        let Some((name, numbers)) = line.trim().split_once(':') else { continue };
        let calls = numbers.split_whitespace().next().context("an operation without counts")?;
        counts.insert(normal(name), calls.parse()?);
    }
    if counts.is_empty() {
        bail!("mountstats has no operations");
    }
    Ok(counts)
}

/// The calls of NFS in a line of `steadfast watch --json`: procedures, or for version 4 `compound` and
/// the operations inside.
///
/// # Errors
/// When the line is not as it should be, or packets were lost.
pub(super) fn watched(total: &Value) -> Result<Counts> {
    let rows = total.get("rows").and_then(Value::as_array).context("no rows")?;
    let mut counts = Counts::new();
    for row in rows {
        let number = |name: &str| row.get(name).and_then(Value::as_u64);
        if number("program") != Some(NFS) {
            continue;
        }
        let name = row.get("name").and_then(Value::as_str).context("a row without a name")?;
        // What has no reply yet is no call in the client's counts.
        let calls = number("calls").context("a row without calls")?;
        *counts.entry(normal(name)).or_default() += calls;
    }
    let dropped = total.pointer("/kernel/dropped").and_then(Value::as_u64).unwrap_or(0);
    if dropped > 0 {
        bail!("the capture has lost {dropped} packets: the machine is too busy to compare");
    }
    Ok(counts)
}

/// One version's table.
#[derive(Debug)]
pub(super) struct Comparison {
    version: String,
    /// Name, the client's count, the capture's.
    rows: Vec<(String, u64, u64)>,
}

impl Comparison {
    /// Compares what the client did between `before` and `after` with what was captured.
    ///
    /// # Errors
    /// As [`watched`]; or when the client did nothing.
    pub(super) fn new(
        version: &str,
        before: &Counts,
        after: &Counts,
        total: &Value,
    ) -> Result<Self> {
        let seen = watched(total)?;
        let seen = |name: &str| seen.get(name).copied().unwrap_or(0);
        let mut client: Counts = after
            .iter()
            .map(|(name, calls)| {
                (name.clone(), calls.saturating_sub(before.get(name).copied().unwrap_or(0)))
            })
            .collect();
        client.remove("null");
        let all: u64 = client.values().sum();
        let mut rows: Vec<(String, u64, u64)> = if version == "3" {
            client.iter().map(|(name, &calls)| (name.clone(), calls, seen(name))).collect()
        } else {
            OWN.iter()
                .map(|(name, procedures)| {
                    let calls = procedures.iter().filter_map(|name| client.get(*name)).sum();
                    ((*name).to_owned(), calls, seen(name))
                })
                .collect()
        };
        let whole = if version == "3" {
            ("all procedures", rows.iter().map(|(_, _, seen)| seen).sum())
        } else {
            ("all COMPOUNDs", seen("compound"))
        };
        rows.retain(|(_, calls, seen)| calls + seen > 0);
        rows.push((whole.0.to_owned(), all, whole.1));
        if all == 0 {
            bail!("the client has counted no calls");
        }
        Ok(Self { version: version.to_owned(), rows })
    }

    /// Whether each row differs by 1% at most.
    pub(super) fn agrees(&self) -> bool {
        self.rows.iter().all(|row| difference(row) <= SHARE_MAX)
    }
}

fn difference((_, client, seen): &(String, u64, u64)) -> f64 {
    client.abs_diff(*seen) as f64 / (*client).max(1) as f64
}

impl fmt::Display for Comparison {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "\nNFS {:<18} {:>9} {:>9} {:>8}",
            self.version, "client", "watch", "differ"
        )?;
        for row in &self.rows {
            let share = difference(row) * 100.0;
            let fault = if difference(row) > SHARE_MAX { "  FAIL" } else { "" };
            writeln!(formatter, "{:<22} {:>9} {:>9} {share:>7.2}%{fault}", row.0, row.1, row.2)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    //! Unit ring.
    use serde_json::json;

    use super::{Comparison, parse};

    const MOUNTSTATS: &str = "device proc mounted on /proc with fstype proc\n\
        device 10.77.0.1:/export mounted on /run/nfs with fstype nfs4 statvers=1.1\n\
        \topts:\trw\n\tper-op statistics\n\
        \t        NULL: 1 1 0 44 24 0 0 0 0\n\
        \t        READ: 300 300 0 1 1 1 1 1 0\n\
        \t OPEN_NOATTR: 7 7 0 1 1 1 1 1 0\n\n\
        device other mounted on /run/nfs2 with fstype nfs4 statvers=1.1\n\
        \tper-op statistics\n\t        READ: 9 9 0 1 1 1 1 1 0\n";

    fn compared(reads: u64, compounds: u64, dropped: u64) -> anyhow::Result<Comparison> {
        let client = parse(MOUNTSTATS, "/run/nfs")?;
        let total = json!({
            "rows": [
                {"program": 100_003, "name": "compound", "calls": compounds},
                {"program": 100_003, "name": "read", "calls": reads},
                {"program": 100_003, "name": "open", "calls": 7},
                {"program": 100_005, "name": "mnt", "calls": 5},
            ],
            "kernel": {"dropped": dropped},
        });
        Comparison::new("4.1", &super::Counts::new(), &client, &total)
    }

    #[test]
    fn within_one_percent_is_equal_and_more_is_not() -> anyhow::Result<()> {
        assert!(compared(300, 307, 0)?.agrees());
        assert!(compared(303, 307, 0)?.agrees());
        assert!(!compared(304, 307, 0)?.agrees());
        assert!(!compared(300, 303, 0)?.agrees());
        assert!(compared(300, 307, 1).is_err());
        assert!(parse(MOUNTSTATS, "/elsewhere").is_err());
        Ok(())
    }
}
