//! Numbers out of the text that monitoring gets.

/// The value of a sample in Prometheus' text format, named with its labels.
pub(super) fn sample(text: &str, name: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

/// A sample that is a count.
pub(super) fn count(text: &str, name: &str) -> Option<u64> {
    sample(text, name).map(|value| value as u64)
}
