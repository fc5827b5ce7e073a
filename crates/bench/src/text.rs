//! Words and numbers of tables.

/// A number, or a dash where there is none.
pub(crate) fn or_dash(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
}
