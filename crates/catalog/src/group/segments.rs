//! Cuts the text of a group's file into segments: what stands before the first `[[share]]` or
//! `[[pattern]]`, and one for each of them with the comments directly above it.
//!
//! A segment is TOML by itself, so a change of one share reads and writes its segment alone, and
//! a mistake in one says nothing about the others. This only looks for the ends of statements;
//! what they mean, and whether they are TOML at all, is seen when a segment is read.

/// What a segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The group's own keys.
    Preamble,
    /// `[[share]]`
    Share,
    /// `[[pattern]]`
    Pattern,
    /// Some other header.
    Other,
    /// Comments that belong to nothing, since empty lines are around them.
    Loose,
}

/// A part of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece<'a> {
    pub(super) kind: Kind,
    pub(super) text: &'a str,
}

/// Cuts a text; the pieces together are the text. The first is the preamble.
pub(super) fn split(text: &str) -> Vec<Piece<'_>> {
    let mut cutter = Cutter { text, pieces: Vec::new(), start: 0, kind: Kind::Preamble };
    let mut trivia = Trivia::default();
    let mut lines = Statements { text, position: 0, has_open_string: false };
    while let Some((start, line)) = lines.next() {
        match line {
            Line::Blank => trivia.blank(start),
            Line::Comment => trivia.comment(start),
            Line::Content => trivia = Trivia::default(),
            Line::Header(kind) => {
                cutter.cut(&trivia, trivia.lead().unwrap_or(start));
                cutter.kind = kind;
                trivia = Trivia::default();
            }
        }
    }
    cutter.cut(&trivia, text.len());
    cutter.pieces
}

struct Cutter<'a> {
    text: &'a str,
    pieces: Vec<Piece<'a>>,
    start: usize,
    kind: Kind,
}

impl Cutter<'_> {
    /// Ends the segment, before which `trivia` stand, at this offset.
    fn cut(&mut self, trivia: &Trivia, end: usize) {
        let body_end = match trivia.first_blank {
            Some(first_blank) if self.kind != Kind::Preamble => first_blank.min(end),
            _ => end,
        };
        self.push(self.kind, self.start, body_end);
        if body_end < end {
            self.push(Kind::Loose, body_end, end);
        }
        self.start = end;
    }

    fn push(&mut self, kind: Kind, start: usize, end: usize) {
        let text = self.text.get(start..end).unwrap_or_default();
        self.pieces.push(Piece { kind, text });
    }
}

/// Empty lines and comments since the last statement.
#[derive(Default)]
struct Trivia {
    first_blank: Option<usize>,
    /// The last row of empty lines, if only comments came after it.
    blanks: Option<usize>,
    /// The comments since then.
    comments: Option<usize>,
}

impl Trivia {
    fn blank(&mut self, start: usize) {
        self.first_blank.get_or_insert(start);
        if self.comments.take().is_some() {
            self.blanks = None;
        }
        self.blanks.get_or_insert(start);
    }

    fn comment(&mut self, start: usize) {
        self.comments.get_or_insert(start);
    }

    /// Where a segment begins whose header comes now: comments directly above are its, and the
    /// empty lines above those.
    fn lead(&self) -> Option<usize> {
        self.blanks.or(self.comments)
    }
}

enum Line {
    Blank,
    Comment,
    Content,
    Header(Kind),
}

/// Goes from statement to statement.
struct Statements<'a> {
    text: &'a str,
    position: usize,
    /// A string of several lines was begun that never ends: from there on none is looked for.
    has_open_string: bool,
}

impl Statements<'_> {
    fn next(&mut self) -> Option<(usize, Line)> {
        let start = self.position;
        let rest = self.text.get(start..).filter(|rest| !rest.is_empty())?;
        let line = first_line(rest);
        let trimmed = line.trim();
        let kind = match trimmed.as_bytes().first() {
            None => Line::Blank,
            Some(b'#') => Line::Comment,
            Some(b'[') => header(trimmed).map_or(Line::Content, Line::Header),
            Some(_) => {
                self.position = self.statement_end(start);
                return Some((start, Line::Content));
            }
        };
        self.position = start + line.len();
        Some((start, kind))
    }

    /// Where the statement that begins here ends: behind the line in which nothing is open.
    fn statement_end(&mut self, start: usize) -> usize {
        let bytes = self.text.as_bytes();
        let mut depth = 0_usize;
        let mut at = start;
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'#' => {
                    at += self.rest(at).find('\n').unwrap_or(self.text.len() - at);
                    continue;
                }
                b'\n' => {
                    // A header within brackets is no TOML: they were left open by mistake.
                    let next = self.rest(at + 1).trim_start_matches([' ', '\t']);
                    if depth == 0 || next.starts_with("[[share") || next.starts_with("[[pattern") {
                        return at + 1;
                    }
                }
                b'"' | b'\'' => {
                    at = self.string_end(at, *byte);
                    continue;
                }
                b'[' | b'{' => depth += 1,
                b']' | b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            at += 1;
        }
        self.text.len()
    }

    fn rest(&self, at: usize) -> &str {
        self.text.get(at..).unwrap_or_default()
    }

    /// Where the string that begins here ends; one that is not closed ends with its line.
    fn string_end(&mut self, start: usize, quote: u8) -> usize {
        let bytes = self.text.as_bytes();
        let three = [quote; 3];
        let is_long = self.rest(start).as_bytes().starts_with(&three);
        if is_long && !self.has_open_string {
            let mut at = start + 3;
            while let Some(byte) = bytes.get(at) {
                if bytes.get(at..).is_some_and(|rest| rest.starts_with(&three)) {
                    // Two more quotes may be the string's own.
                    let more = self.rest(at + 3).bytes().take(2).take_while(|b| *b == quote);
                    return at + 3 + more.count();
                }
                at += if quote == b'"' && *byte == b'\\' { 2 } else { 1 };
            }
            self.has_open_string = true;
        }
        let mut at = start + 1;
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'\n' => return at,
                b'\\' if quote == b'"' && bytes.get(at + 1).is_some_and(|next| *next != b'\n') => {
                    at += 2;
                }
                _ if *byte == quote => return at + 1,
                _ => at += 1,
            }
        }
        self.text.len()
    }
}

/// A line with its end.
pub(super) fn first_line(text: &str) -> &str {
    let end = text.find('\n').map_or(text.len(), |end| end + 1);
    text.get(..end).unwrap_or(text)
}

/// What a segment is by its header.
pub(super) fn kind(segment: &str) -> Kind {
    let is_trivia = |line: &&str| line.is_empty() || line.starts_with('#');
    let first = segment.lines().map(str::trim).find(|line| !is_trivia(line));
    match first {
        None => Kind::Loose,
        Some(line) if line.starts_with('[') => header(line).unwrap_or(Kind::Other),
        Some(_) => Kind::Other,
    }
}

/// The segment that a header begins; `None` for those that go on with one.
fn header(line: &str) -> Option<Kind> {
    let name = line.trim_start_matches('[').trim_start();
    let (name, rest) = if let Some(quoted) = name.strip_prefix('"') {
        quoted.split_once('"').unwrap_or((quoted, ""))
    } else {
        let end = name.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '-'));
        name.split_at(end.unwrap_or(name.len()))
    };
    let goes_on = rest.trim_start().starts_with('.');
    match name {
        "share" | "pattern" if goes_on => None,
        "share" => Some(Kind::Share),
        "pattern" => Some(Kind::Pattern),
        _ => Some(Kind::Other),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pieces(text: &str) -> Vec<(Kind, &str)> {
        split(text).into_iter().map(|piece| (piece.kind, piece.text)).collect()
    }

    #[test]
    fn comments_stay_with_what_they_are_above() {
        let text = "# the file\noptions = [\"ro\"]\n\n# about a\n[[share]]\npath = \"/a\" # its path\n\
                    # still a\n\n# a section\n\n# about b\n# more\n[[share]]\n\n\
                    [[pattern]]\ndirectories = \"/x/*\"\n\n# the end\n";
        assert_eq!(
            pieces(text),
            [
                (Kind::Preamble, "# the file\noptions = [\"ro\"]\n"),
                (Kind::Share, "\n# about a\n[[share]]\npath = \"/a\" # its path\n# still a\n"),
                (Kind::Loose, "\n# a section\n"),
                (Kind::Share, "\n# about b\n# more\n[[share]]\n"),
                (Kind::Pattern, "\n[[pattern]]\ndirectories = \"/x/*\"\n"),
                (Kind::Loose, "\n# the end\n"),
            ]
        );
    }

    #[test]
    fn headers_within_values_are_none() {
        let long = "[[share]]\ndescription = \"\"\"\n[[share]]\n\\\"\"\" '''\n\"\"\"\"\"\n";
        let text = format!(
            "{long}[[share]] # 2\nclients = [ # [[share]]\n  '\"', \"\\\"[\",\n]\n[[share.rule]]\n\
             [ \"share\" ]\n[other]\n"
        );
        let kinds: Vec<_> = pieces(&text).iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [Kind::Preamble, Kind::Share, Kind::Share, Kind::Share, Kind::Other]);
        assert_eq!(pieces(&text)[1].1, long);
    }

    #[test]
    fn what_is_left_open_ends_at_the_next_share() {
        for open in ["clients = [\"a\",", "path = \"/a", "path = \"\"\"/a", "path = '''", "x = {"] {
            let text = format!("[[share]]\n{open}\n[[share]]\npath = \"/b\"\n");
            let found = pieces(&text);
            assert_eq!(found.len(), 3, "{open}");
            assert_eq!(found[2].1, "[[share]]\npath = \"/b\"\n");
        }
    }

    proptest! {
        #[test]
        fn pieces_together_are_the_text(text in "\\PC{0,100}|[\\[\\]\"'#a=\n \\\\{}]{0,200}") {
            let whole: String = split(&text).iter().map(|piece| piece.text).collect();
            prop_assert_eq!(whole, text);
        }
    }
}
