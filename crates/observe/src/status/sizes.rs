//! What is to be said of sizes of shares.

use steadfast_control::api::ShareStatus;

use super::gather::FILLING_PERCENT;
use super::report::word;

/// Tells all of them.
pub(super) fn list_command() -> String {
    format!("steadfast share list --filled {FILLING_PERCENT}")
}

/// Of shares that have most of their size, or a size that is not enforced, each with what to do; `faults` are all
/// sizes that are not enforced.
pub(super) fn warnings(filling: &[ShareStatus], faults: u64) -> Vec<(String, String)> {
    let mut told = 0;
    let warning = |share: &ShareStatus| {
        let (path, shown) = (&share.path, word(&share.path));
        match &share.size_fault {
            Some(fault) => {
                told += 1;
                let what =
                    format!("the share {path} is served, and its size may not hold: {fault}");
                (what, format!("steadfast share show {shown}"))
            }
            None => (
                format!("the share {path} has {}", share.size_shown()),
                format!("steadfast share set {shown} --add-option size=…"),
            ),
        }
    };
    let mut warnings: Vec<_> = filling.iter().map(warning).collect();
    let more = faults.saturating_sub(told);
    if more > 0 {
        warnings
            .push((format!("{more} other shares have sizes that may not hold"), list_command()));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_may_not_hold_are_told_apart_from_those_that_are_used_up() {
        let filling = serde_json::json!({
            "path": "/a", "directory": "/a", "state": "enabled", "id": 1,
            "size_bytes": 10_u64 << 30, "used_bytes": 19_u64 << 29,
        });
        let filling: ShareStatus = serde_json::from_value(filling).expect("a share");
        let unsure = ShareStatus { size_fault: Some("no quotas".to_owned()), ..filling.clone() };
        let told = warnings(&[filling, unsure], 4);
        let expected = [
            ("the share /a has 9.5G of 10.0G", "steadfast share set /a --add-option size=…"),
            (
                "the share /a is served, and its size may not hold: no quotas",
                "steadfast share show /a",
            ),
            ("3 other shares have sizes that may not hold", "steadfast share list --filled 90"),
        ];
        assert_eq!(told, expected.map(|(what, next)| (what.to_owned(), next.to_owned())));
        // They are counted a second before.
        assert_eq!(warnings(&[], 0), []);
    }
}
