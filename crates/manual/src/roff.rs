//! What roff wants of text.

use super::Edition;

/// The manual that the pages are of.
const MANUAL: &str = "Steadfast";

/// A text that stands for itself, also at the beginning of a line.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    if text.starts_with(['.', '\'']) {
        out.push_str("\\&");
    }
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\e"),
            '-' => out.push_str("\\-"),
            _ => out.push(c),
        }
    }
    out
}

/// A text of Markdown: what is between backticks is bold.
pub(super) fn markdown(text: &str) -> String {
    let mut out = String::new();
    for (index, part) in text.split('`').enumerate() {
        let part = escaped(part);
        if index % 2 == 1 {
            out.push_str("\\fB");
            out.push_str(&part);
            out.push_str("\\fR");
        } else {
            out.push_str(&part);
        }
    }
    out
}

/// The first lines of a page.
pub(super) fn head(name: &str, section: u8, edition: &Edition) -> String {
    let Edition { date, source } = edition;
    // No hyphenation, no justification: commands are to be copied.
    format!(".TH {name} {section} {date} \"{source}\" {MANUAL}\n.nh\n.ad l\n")
}

/// Lines that are typed, or stand in a file.
pub(super) fn literal(lines: &str) -> String {
    let mut out = String::from(".RS 4\n.nf\n");
    for line in lines.lines() {
        out.push_str(&escaped(line));
        out.push('\n');
    }
    out + ".fi\n.RE\n"
}

/// The last section.
pub(super) fn see_also(pages: &[(&str, u8)]) -> String {
    let all: Vec<_> = pages
        .iter()
        .map(|(name, section)| format!("\\fB{}\\fR({section})", escaped(name)))
        .collect();
    format!(".SH SEE ALSO\n{}\n", all.join(",\n"))
}

/// What the generator of pages leaves that checkers of pages warn of.
pub(super) fn tidied(text: &str) -> String {
    let mut out: Vec<&str> = Vec::new();
    for line in text.lines() {
        let line = line.trim_end();
        let last = out.last().copied().unwrap_or_default();
        let is_break = |line: &str| matches!(line, ".br" | ".sp");
        // The definitions of its quotes are for hyphens and quotes that are not used here.
        if line.is_empty() || line.starts_with(".ie ") || line.starts_with(".el ") {
            continue;
        }
        if is_break(line) && (last.starts_with(".SH") || last.starts_with(".TP")) {
            continue;
        }
        if line == ".sp" && last == ".br" {
            out.pop();
        } else if line == ".br" && is_break(last) || line == ".sp" && last == ".sp" {
            continue;
        }
        out.push(line);
    }
    // The apostrophe that these definitions were for.
    out.join("\n").replace("\\*(Aq", "\\(aq") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_is_a_request() {
        assert_eq!(escaped(".hidden a-b \\n"), "\\&.hidden a\\-b \\en");
        assert_eq!(markdown("say `a-b` now"), "say \\fBa\\-b\\fR now");
        assert!(literal("'x").contains("\n\\&'x\n"));
    }

    #[test]
    fn breaks_that_do_nothing_are_left_out() {
        assert_eq!(tidied(".ie x\nit\\*(Aqs\n"), "it\\(aqs\n");
        assert_eq!(tidied("a \n.br\n.sp\nb\n\n.SH X\n.sp\nc\n"), "a\n.sp\nb\n.SH X\nc\n");
    }
}
