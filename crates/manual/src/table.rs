//! Tables of the documents, which become lists of a page.

use std::fmt::Write;

use super::roff;

/// A row: words, what they mean, and their default.
pub(super) struct Row<'a> {
    pub(super) words: &'a str,
    pub(super) what: &'a str,
    default: &'a str,
}

/// The rows of the first table behind a heading.
pub(super) fn rows<'a>(document: &'a str, heading: &str) -> Vec<Row<'a>> {
    let section = document.split(&format!("\n{heading}\n")).nth(1).unwrap_or_default();
    let rows = section.lines().skip_while(|line| !line.starts_with("|---"));
    let rows = rows.skip(1).take_while(|line| line.starts_with('|'));
    rows.filter_map(|row| {
        let mut cells = row.trim_matches('|').split(" | ").map(str::trim);
        Some(Row {
            words: cells.next()?,
            what: cells.next()?.trim_end_matches('|').trim_end(),
            default: cells.next().unwrap_or_default(),
        })
    })
    .collect()
}

/// The rows as a list of a page.
pub(super) fn list(rows: &[Row<'_>]) -> String {
    let mut text = String::new();
    for row in rows {
        // Writing to a string cannot fail.
        let _ = writeln!(text, ".TP\n{}\n{}", roff::markdown(row.words), sentence(row.what));
        if !row.default.is_empty() {
            let _ = writeln!(text, "Default: {}.", roff::markdown(row.default));
        }
    }
    text
}

fn sentence(text: &str) -> String {
    let mut text = roff::markdown(&without_links(text));
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    if text.ends_with('.') { text } else { text + "." }
}

/// A page has no links: their words stay.
fn without_links(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        let Some(((words, _), behind)) =
            link.split_once(')').and_then(|(link, behind)| Some((link.split_once("](")?, behind)))
        else {
            break;
        };
        out.push_str(before);
        // A document is beside the others where packages install it.
        if words.rsplit_once('.').is_some_and(|(_, kind)| kind == "md") {
            out.push_str("/usr/share/doc/steadfast/");
        }
        out.push_str(words);
        rest = behind;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_becomes_a_list() {
        let document = "\n## Words\nText.\n\n| word | | default |\n|---|---|---|\n\
                        | `a`, `b` | does it ([More](#more)) | `a` |\n| `c` | is c. | |\n\nEnd\n";
        let text = list(&rows(document, "## Words"));
        assert_eq!(
            text,
            ".TP\n\\fBa\\fR, \\fBb\\fR\nDoes it (More).\nDefault: \\fBa\\fR.\n\
             .TP\n\\fBc\\fR\nIs c.\n"
        );
        assert_eq!(without_links("a [b] c"), "a [b] c");
    }
}
