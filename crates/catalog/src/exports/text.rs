//! The text of exports(5): entries, clients and option words, each with its place.
//!
//! Words are told apart as exportfs(8) does (nfs-utils, `support/nfs/xio.c` and `exports.c`): what
//! it takes for one word, or refuses, is one word here, or refused. The least that is read
//! otherwise could give somebody what he was not to have.

use steadfast_shares::shown;

use crate::configuration::{ConfigurationError, Place, Placed};

/// exportfs(8) has room for so many bytes of a client with its options.
const CLIENT_BYTES_MAX: usize = 511;

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
    /// Empty for everybody.
    pub(super) name: Placed<String>,
    /// Options that stand before it for all that follow: `-ro,sync`. One list for each word that
    /// begins with a dash.
    pub(super) defaults: Vec<Vec<Placed<String>>>,
    /// Its own, in brackets.
    pub(super) options: Vec<Placed<String>>,
    pub(super) has_brackets: bool,
    /// Whether nobody wrote it: the line ends after its path, or after options.
    pub(super) is_implied: bool,
}

/// Entries, and what cannot be read.
pub(super) struct Text {
    pub(super) entries: Vec<Entry>,
    pub(super) errors: Vec<ConfigurationError>,
}

/// Goes through the characters, and knows the place of each.
struct Reader<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    place: Place,
    /// Whether all that follows cannot be understood.
    is_lost: bool,
}

/// What stands between blanks, without quotes and escapes.
struct Word {
    bytes: Vec<u8>,
    /// Of each byte, and of the end.
    places: Vec<Place>,
}

impl Word {
    fn place(&self, at: usize) -> Place {
        self.places.get(at).or(self.places.last()).copied().unwrap_or(Place { line: 1, column: 1 })
    }

    /// A part of it as text.
    fn text(&self, range: std::ops::Range<usize>) -> Result<Placed<String>, String> {
        let place = self.place(range.start);
        let bytes = self.bytes.get(range).unwrap_or_default();
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Placed { value: text.to_owned(), place }),
            Err(_) => Err("the word has bytes that are not UTF-8".to_owned()),
        }
    }

    fn find(&self, byte: u8, from: usize) -> Option<usize> {
        let rest = self.bytes.get(from..)?;
        rest.iter().position(|other| *other == byte).map(|at| from + at)
    }

    /// An octal number at the end, `\040`, becomes the byte that it is. Its digits may come from
    /// anywhere, as from another number.
    fn take_octal(&mut self) {
        let Some(start) = self.bytes.len().checked_sub(4) else { return };
        let Some([b'\\', digits @ ..]) = self.bytes.get(start..) else { return };
        let mut number = 0_u32;
        for digit in digits {
            if !(b'0'..=b'7').contains(digit) {
                return;
            }
            number = number * 8 + u32::from(digit - b'0');
        }
        if let Ok(byte) = u8::try_from(number) {
            self.bytes.truncate(start);
            self.places.truncate(start + 1);
            self.bytes.push(byte);
        }
    }
}

impl Reader<'_> {
    /// The next character; a blank where a backslash at the end of a line makes the next line go on
    /// with it.
    fn peek(&self) -> Option<char> {
        let mut ahead = self.rest.clone();
        match ahead.next()? {
            '\\' if ahead.next() == Some('\n') => Some(' '),
            c => Some(c),
        }
    }

    fn next(&mut self) -> Option<char> {
        let peeked = self.peek()?;
        if self.step()? == '\\' && peeked == ' ' {
            self.step();
            while self.rest.peek().is_some_and(|c| matches!(c, ' ' | '\t')) {
                self.step();
            }
        }
        Some(peeked)
    }

    fn step(&mut self) -> Option<char> {
        let c = self.rest.next()?;
        if c == '\n' {
            self.place = Place { line: self.place.line + 1, column: 1 };
        } else {
            self.place.column += 1;
        }
        Some(c)
    }

    /// Spaces within an entry; a return before the end of a line is one.
    fn skip_blanks(&mut self) {
        while self.peek().is_some_and(|c| matches!(c, ' ' | '\t')) || self.is_return() {
            self.next();
        }
    }

    fn is_return(&self) -> bool {
        let mut ahead = self.rest.clone();
        ahead.next() == Some('\r') && matches!(ahead.next(), None | Some('\n'))
    }

    /// The rest of the line: a backslash at its end means nothing.
    fn skip_line(&mut self) {
        while self.rest.peek().is_some_and(|c| *c != '\n') {
            self.step();
        }
    }

    /// What stands until the next blank that is not within quotes.
    fn word(&mut self) -> Result<Word, String> {
        let mut word = Word { bytes: Vec::new(), places: vec![self.place] };
        let mut is_quoted = false;
        while let Some(c) = self.peek() {
            if is_quoted && c == '\n' {
                break;
            }
            if !is_quoted && matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c') {
                break;
            }
            let place = self.place;
            self.next();
            if c == '"' {
                is_quoted = !is_quoted;
                continue;
            }
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                word.bytes.push(byte);
                if let Some(last) = word.places.last_mut() {
                    *last = place;
                }
                word.places.push(self.place);
                word.take_octal();
            }
        }
        let shown_start = || shown(&String::from_utf8_lossy(&word.bytes));
        if is_quoted {
            // There they go on with the next lines.
            self.is_lost = true;
            let what = format!("the quotes of {} are not closed", shown_start());
            return Err(format!("{what}: what follows in this file is not read"));
        }
        if word.bytes.is_empty() && self.peek().is_none_or(|c| c != '\r') {
            return Err("a word has nothing in it".to_owned());
        }
        if word.bytes.is_empty() || (self.peek() == Some('\r') && !self.is_return()) {
            return Err(format!("{} is followed by a control character", shown_start()));
        }
        if matches!(self.peek(), Some('\x0b' | '\x0c')) || word.bytes.contains(&0) {
            return Err(format!("{} has a control character", shown_start()));
        }
        Ok(word)
    }
}

/// The entries of a text, and what cannot be read.
pub(super) fn entries(text: &str) -> Text {
    let place = Place { line: 1, column: 1 };
    let mut reader = Reader { rest: text.chars().peekable(), place, is_lost: false };
    let mut entries = Vec::new();
    let mut errors = Vec::new();
    while !reader.is_lost {
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
    Text { entries, errors }
}

fn entry(reader: &mut Reader<'_>, errors: &mut Vec<ConfigurationError>) -> Entry {
    let place = reader.place;
    let path = Placed { value: String::new(), place };
    let mut entry = Entry { path, clients: Vec::new(), is_broken: false };
    let path = reader.word().and_then(|word| word.text(0..word.bytes.len()));
    let read = path.map_err(|what| (place, what)).and_then(|path| {
        entry.path = path;
        clients(reader, &mut entry.clients)
    });
    if let Err((place, what)) = read {
        errors.push(ConfigurationError { place, what, suggestion: None });
        entry.is_broken = true;
        reader.skip_line();
    }
    entry
}

/// All clients of an entry, or what is wrong, and where. If the line ends after its path or after
/// options, everybody is a client that nobody wrote.
fn clients(reader: &mut Reader<'_>, clients: &mut Vec<Client>) -> Result<(), (Place, String)> {
    let mut defaults: Vec<Vec<Placed<String>>> = Vec::new();
    let mut is_after_options = false;
    loop {
        reader.skip_blanks();
        let place = reader.place;
        if matches!(reader.peek(), None | Some('\n' | '#')) {
            if clients.is_empty() || is_after_options {
                let name = Placed { value: String::new(), place };
                let (options, has_brackets) = (Vec::new(), false);
                clients.push(Client { name, defaults, options, has_brackets, is_implied: true });
            }
            reader.skip_line();
            return Ok(());
        }
        let word = reader.word().map_err(|what| (place, what))?;
        if word.bytes.first() != Some(&b'-') {
            clients.push(client(&word, &defaults).map_err(|what| (place, what))?);
            is_after_options = false;
        } else if is_after_options {
            let text = shown(&String::from_utf8_lossy(&word.bytes));
            let what = "follows other options directly, and exportfs(8) takes it for a client: \
                        write both as one list";
            return Err((place, format!("{text} {what}")));
        } else {
            let words = option_words(&word, 1..word.bytes.len()).map_err(|what| (place, what))?;
            defaults.push(words);
            is_after_options = true;
        }
    }
}

fn client(word: &Word, defaults: &[Vec<Placed<String>>]) -> Result<Client, String> {
    let end = word.bytes.len();
    let open = word.find(b'(', 0);
    let name = word.text(0..open.unwrap_or(end))?;
    if end > CLIENT_BYTES_MAX {
        return Err(format!(
            "{} with its options is longer than the {CLIENT_BYTES_MAX} bytes of exportfs(8)",
            shown(&name.value)
        ));
    }
    let mut options = Vec::new();
    if let Some(open) = open {
        let Some(close) = word.find(b')', open) else {
            return Err(format!(
                "the options of {} have no closing bracket before the next blank",
                shown(&name.value)
            ));
        };
        if close + 1 != end {
            return Err(format!(
                "the options of {} are followed by something without a space",
                shown(&name.value)
            ));
        }
        options = option_words(word, open + 1..close)?;
    }
    let defaults = defaults.to_vec();
    Ok(Client { name, defaults, options, has_brackets: open.is_some(), is_implied: false })
}

/// Words between commas. Blanks before them mean nothing (they can be there within quotes).
fn option_words(word: &Word, range: std::ops::Range<usize>) -> Result<Vec<Placed<String>>, String> {
    let mut words = Vec::new();
    let mut at = range.start;
    loop {
        while at < range.end && matches!(word.bytes.get(at), Some(b' ' | b'\t')) {
            at += 1;
        }
        if at >= range.end {
            return Ok(words);
        }
        let end = word.find(b',', at).filter(|end| *end < range.end).unwrap_or(range.end);
        if end == at {
            return Err("there is a comma with no option before it".to_owned());
        }
        words.push(word.text(at..end)?);
        at = end + 1;
    }
}
