//! The text of `ganesha.conf`: blocks, parameters and their values, each with its place.
//!
//! ```text
//! EXPORT {                       # a block; names are the same in capitals and small letters
//!     Path = "/srv/data";        # a parameter
//!     CLIENT { Clients = 10.0.0.0/8, @trusted; }
//! }
//! %include "other.conf"          # only outside of blocks
//! ```

use steadfast_shares::shown;

use crate::configuration::{ConfigurationError, Place, Placed, TEXT_BYTES_MAX};

/// nfs-ganesha's own blocks are three deep at the most.
const DEPTH_MAX: usize = 8;

/// A parameter or a block.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) name: Placed<String>,
    pub(super) value: Value,
}

#[derive(Debug)]
pub(super) enum Value {
    /// `Name = word, word;`
    Words(Words),
    /// `Name { … }`
    Block(Vec<Item>),
}

/// The value of a parameter.
#[derive(Debug, Default)]
pub(super) struct Words {
    pub(super) words: Vec<Placed<String>>,
    /// Whether one of them is in quotation marks, which nfs-ganesha does not take everywhere.
    pub(super) has_quoted: bool,
}

/// What another file is taken in by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Included {
    /// `%include`, `%dir` or `%url`.
    pub directive: String,
    /// What it names.
    pub name: Placed<String>,
}

/// What a text says, and what cannot be read.
#[derive(Debug, Default)]
pub(super) struct Text {
    pub(super) items: Vec<Item>,
    pub(super) included: Vec<Included>,
    pub(super) errors: Vec<ConfigurationError>,
}

/// The other files that a text takes in, in their order. Whoever reads files reads these, too.
pub fn included(text: &str) -> Vec<Included> {
    read(text).included
}

/// Reads a text. After something that cannot be understood nothing is read.
pub(super) fn read(text: &str) -> Text {
    let mut read = Text::default();
    if text.len() > TEXT_BYTES_MAX {
        let place = Place { line: 1, column: 1 };
        let what = format!("the file is longer than {TEXT_BYTES_MAX} bytes");
        read.errors.push(ConfigurationError { place, what, suggestion: None });
        return read;
    }
    let mut reader = Reader { tokens: Tokens::new(text), included: Vec::new() };
    match reader.items(0) {
        Ok(items) => read.items = items,
        Err(error) => read.errors.push(error),
    }
    read.included = reader.included;
    read
}

fn error<T>(place: Place, what: impl Into<String>) -> Result<T, ConfigurationError> {
    Err(ConfigurationError { place, what: what.into(), suggestion: None })
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Word(String),
    /// A word in quotation marks.
    Quoted(String),
    /// `{`, `}`, `=`, `;` or `,`
    Mark(char),
    End,
}

impl Token {
    fn told(&self) -> String {
        match self {
            Self::Word(word) | Self::Quoted(word) => shown(word),
            Self::Mark(mark) => format!("{mark:?}"),
            Self::End => "the end of the file".to_owned(),
        }
    }
}

/// Goes through the text, and knows the place of each character.
struct Tokens<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    place: Place,
}

impl<'a> Tokens<'a> {
    fn new(text: &'a str) -> Self {
        Self { rest: text.chars().peekable(), place: Place { line: 1, column: 1 } }
    }

    fn step(&mut self) -> Option<char> {
        let letter = self.rest.next()?;
        if letter == '\n' {
            self.place = Place { line: self.place.line + 1, column: 1 };
        } else {
            self.place.column += 1;
        }
        Some(letter)
    }

    fn skip_blanks(&mut self) {
        while let Some(letter) = self.rest.peek() {
            if *letter == '#' {
                while self.rest.peek().is_some_and(|letter| *letter != '\n') {
                    self.step();
                }
            } else if letter.is_whitespace() {
                self.step();
            } else {
                return;
            }
        }
    }

    fn next(&mut self) -> Result<Placed<Token>, ConfigurationError> {
        self.skip_blanks();
        let place = self.place;
        let value = match self.rest.peek() {
            None => Token::End,
            Some(mark @ ('{' | '}' | '=' | ';' | ',')) => {
                let mark = *mark;
                self.step();
                Token::Mark(mark)
            }
            Some('"' | '\'') => self.quoted(place)?,
            Some(_) => self.word(),
        };
        Ok(Placed { value, place })
    }

    fn word(&mut self) -> Token {
        let mut word = String::new();
        let is_end = |letter: &char| letter.is_whitespace() || "{}=;,#\"'".contains(*letter);
        while self.rest.peek().is_some_and(|letter| !is_end(letter)) {
            word.extend(self.step());
        }
        Token::Word(word)
    }

    /// In double quotation marks a backslash takes the next character as it is.
    fn quoted(&mut self, place: Place) -> Result<Token, ConfigurationError> {
        let mark = self.step();
        let mut word = String::new();
        loop {
            match self.step() {
                None => return error(place, "a quotation mark is never closed"),
                letter if letter == mark => return Ok(Token::Quoted(word)),
                Some('\\') if mark == Some('"') => word.extend(self.step()),
                letter => word.extend(letter),
            }
        }
    }
}

struct Reader<'a> {
    tokens: Tokens<'a>,
    included: Vec<Included>,
}

impl Reader<'_> {
    /// What stands in a block, up to its end, or in the whole text.
    fn items(&mut self, depth: usize) -> Result<Vec<Item>, ConfigurationError> {
        let mut items = Vec::new();
        loop {
            let Placed { value, place } = self.tokens.next()?;
            match value {
                Token::End if depth == 0 => return Ok(items),
                Token::End => {
                    return error(place, "the file ends inside a block: \"}\" is missing");
                }
                Token::Mark('}') if depth > 0 => return Ok(items),
                Token::Word(word) if word.starts_with('%') => {
                    let directive = Placed { value: word, place };
                    self.directive(directive, depth)?;
                }
                Token::Word(word) => {
                    let name = Placed { value: word, place };
                    let value = self.value(&name, depth)?;
                    items.push(Item { name, value });
                }
                other => {
                    return error(place, format!("a name has to be here, not {}", other.told()));
                }
            }
        }
    }

    fn value(&mut self, name: &Placed<String>, depth: usize) -> Result<Value, ConfigurationError> {
        let Placed { value, place } = self.tokens.next()?;
        match value {
            Token::Mark('{') if depth >= DEPTH_MAX => error(place, "blocks are too deep"),
            Token::Mark('{') => self.items(depth + 1).map(Value::Block),
            Token::Mark('=') => self.words(name).map(Value::Words),
            other => {
                let what = format!(
                    "\"=\" or \"{{\" has to follow {}, not {}",
                    shown(&name.value),
                    other.told()
                );
                error(place, what)
            }
        }
    }

    /// Words with commas between them, up to a semicolon.
    fn words(&mut self, name: &Placed<String>) -> Result<Words, ConfigurationError> {
        let mut read = Words::default();
        loop {
            let Placed { value, place } = self.tokens.next()?;
            match value {
                Token::Word(value) => read.words.push(Placed { value, place }),
                Token::Quoted(value) => {
                    read.words.push(Placed { value, place });
                    read.has_quoted = true;
                }
                Token::Mark(';') if read.words.is_empty() => return Ok(read),
                other => {
                    let what =
                        format!("{} needs a value, not {}", shown(&name.value), other.told());
                    return error(place, what);
                }
            }
            let Placed { value, place } = self.tokens.next()?;
            match value {
                Token::Mark(',') => {}
                Token::Mark(';') => return Ok(read),
                other => {
                    let what = format!(
                        "\",\" or \";\" has to follow the value of {}, not {}",
                        shown(&name.value),
                        other.told()
                    );
                    return error(place, what);
                }
            }
        }
    }

    fn directive(
        &mut self,
        directive: Placed<String>,
        depth: usize,
    ) -> Result<(), ConfigurationError> {
        let Placed { value: directive, place } = directive;
        let directive = directive.to_ascii_lowercase();
        if !matches!(directive.as_str(), "%include" | "%dir" | "%url") {
            return error(place, format!("unknown directive {}", shown(&directive)));
        }
        if depth > 0 {
            return error(place, format!("{directive} stands outside of blocks only"));
        }
        let Placed { value, place } = self.tokens.next()?;
        match value {
            Token::Word(value) | Token::Quoted(value) if !value.is_empty() => {
                self.included.push(Included { directive, name: Placed { value, place } });
                Ok(())
            }
            other => error(place, format!("{directive} needs a name, not {}", other.told())),
        }
    }
}
