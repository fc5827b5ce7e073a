//! The text of exports(5): entries, clients and option words, each with its place.

use crate::configuration::{ConfigurationError, Place, Placed};
use crate::options::shown;

/// A directory with its clients.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) path: Placed<String>,
    pub(super) clients: Vec<Client>,
    /// Whether the entry cannot be understood.
    pub(super) is_broken: bool,
}

/// A client with its options.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) name: Placed<String>,
    /// Options that stand before it for all that follow: `-ro,sync`.
    pub(super) defaults: Vec<Placed<String>>,
    /// Its own, in brackets.
    pub(super) options: Vec<Placed<String>>,
    pub(super) has_brackets: bool,
}

/// Goes through the characters, and knows the place of each.
struct Reader<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    place: Place,
}

impl Reader<'_> {
    fn peek(&mut self) -> Option<char> {
        self.rest.peek().copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.rest.next()?;
        if c == '\n' {
            self.place = Place { line: self.place.line + 1, column: 1 };
        } else {
            self.place.column += 1;
        }
        Some(c)
    }

    /// Whether a backslash at the end of a line comes, which makes the next go on with it. Goes
    /// over it.
    fn continues(&mut self) -> bool {
        let mut ahead = self.rest.clone();
        if ahead.next() != Some('\\') {
            return false;
        }
        let is_end = match ahead.next() {
            Some('\n') => true,
            Some('\r') => ahead.next() == Some('\n'),
            _ => false,
        };
        if is_end {
            while self.next().is_some_and(|c| c != '\n') {}
        }
        is_end
    }

    /// Spaces within an entry.
    fn skip_blanks(&mut self) {
        while self.continues() || self.peek().is_some_and(|c| matches!(c, ' ' | '\t' | '\r')) {
            if self.peek().is_some_and(|c| matches!(c, ' ' | '\t' | '\r')) {
                self.next();
            }
        }
    }

    fn skip_line(&mut self) {
        while self.peek().is_some_and(|c| c != '\n') {
            self.next();
        }
    }

    /// A character of a word: `\040` is one that is written by its octal number.
    fn character(&mut self) -> Option<char> {
        let mut ahead = self.rest.clone();
        if ahead.next() == Some('\\') {
            let digits: String = ahead.take(3).collect();
            if digits.len() == 3
                && let Ok(number) = u8::from_str_radix(&digits, 8)
            {
                for _ in 0..4 {
                    self.next();
                }
                return Some(char::from(number));
            }
        }
        self.next()
    }

    /// A word that ends where `is_end` says, if not within quotes. Octal numbers may be the bytes
    /// of characters.
    fn word(&mut self, is_end: impl Fn(char) -> bool) -> Result<Placed<String>, String> {
        let place = self.place;
        let mut bytes = Vec::new();
        let mut is_quoted = false;
        while let Some(c) = self.peek() {
            if c == '\n' || !is_quoted && (is_end(c) || self.continues()) {
                break;
            }
            let was_escaped = c == '\\';
            let Some(c) = self.character() else { break };
            if c == '"' && !was_escaped {
                is_quoted = !is_quoted;
            } else if was_escaped && c != '\\' && !c.is_ascii() {
                bytes.push(c as u8);
            } else {
                bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
        let value = String::from_utf8(bytes)
            .map_err(|_| "the word has bytes that are not UTF-8".to_owned())?;
        if is_quoted {
            return Err(format!("the quotes of {} are not closed", shown(&value)));
        }
        Ok(Placed { value, place })
    }
}

/// The entries of a text, and what cannot be read.
pub(super) fn entries(text: &str) -> (Vec<Entry>, Vec<ConfigurationError>) {
    let mut reader = Reader { rest: text.chars().peekable(), place: Place { line: 1, column: 1 } };
    let mut entries = Vec::new();
    let mut errors = Vec::new();
    loop {
        reader.skip_blanks();
        match reader.peek() {
            None => break,
            Some('\n') => {
                reader.next();
            }
            Some('#') => reader.skip_line(),
            Some(_) => entries.push(entry(&mut reader, &mut errors)),
        }
    }
    (entries, errors)
}

fn entry(reader: &mut Reader<'_>, errors: &mut Vec<ConfigurationError>) -> Entry {
    let place = reader.place;
    let mut entry = Entry {
        path: Placed { value: String::new(), place },
        clients: Vec::new(),
        is_broken: false,
    };
    let mut refuse = |place, what| {
        errors.push(ConfigurationError { place, what, suggestion: None });
    };
    match reader.word(char::is_whitespace) {
        Ok(path) => entry.path = path,
        Err(what) => {
            refuse(place, what);
            entry.is_broken = true;
        }
    }
    let mut defaults = Vec::new();
    loop {
        reader.skip_blanks();
        let place = reader.place;
        match reader.peek() {
            None | Some('\n') => return entry,
            Some('#') => {
                reader.skip_line();
                return entry;
            }
            Some('-') => {
                reader.next();
                match option_words(reader, char::is_whitespace) {
                    Ok(words) => defaults = words,
                    Err(what) => {
                        refuse(place, what);
                        entry.is_broken = true;
                    }
                }
            }
            Some(_) => match client(reader, &defaults) {
                Ok(client) => entry.clients.push(client),
                Err(what) => {
                    refuse(place, what);
                    entry.is_broken = true;
                    reader.skip_line();
                }
            },
        }
    }
}

fn client(reader: &mut Reader<'_>, defaults: &[Placed<String>]) -> Result<Client, String> {
    let name = reader.word(|c| c.is_whitespace() || c == '(')?;
    let has_brackets = reader.peek() == Some('(');
    let mut options = Vec::new();
    if has_brackets {
        reader.next();
        options = option_words(reader, |c| c == ')')?;
        if reader.peek() != Some(')') {
            return Err(format!("the options of {} have no closing bracket", shown(&name.value)));
        }
        reader.next();
        if reader.peek().is_some_and(|c| !(c.is_whitespace() || c == '#' || c == '\\')) {
            return Err(format!(
                "the options of {} are followed by something without a space",
                shown(&name.value)
            ));
        }
    } else if name.value.is_empty() {
        return Err("nothing is written here that could be a client".to_owned());
    }
    Ok(Client { name, defaults: defaults.to_vec(), options, has_brackets })
}

/// Words between commas.
fn option_words(
    reader: &mut Reader<'_>,
    is_end: impl Fn(char) -> bool,
) -> Result<Vec<Placed<String>>, String> {
    let mut words = Vec::new();
    loop {
        let word = reader.word(|c| c == ',' || is_end(c))?;
        if !word.value.trim().is_empty() {
            let value = word.value.trim().to_owned();
            words.push(Placed { value, place: word.place });
        }
        while reader.continues() {}
        match reader.peek() {
            Some(',') => {
                reader.next();
            }
            Some(c) if c != '\n' && !is_end(c) => {}
            _ => return Ok(words),
        }
    }
}
