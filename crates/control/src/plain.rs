//! What others wrote (names of directories, above all) does not command the administrator's terminal:
//! control characters are told as escapes.

use std::borrow::Cow;
use std::fmt::Write;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Whether a character does something to a terminal, or to the order in which others are shown.
pub fn is_command(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A text in one line, with nothing in it but what is seen.
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, is_command)
}

/// A text of several lines.
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c != '\n' && is_command(c))
}

fn escaped(text: &str, is_bad: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_bad) {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_bad(c) { plain.extend(c.escape_default()) } else { plain.push(c) }
    }
    Cow::Owned(plain)
}

/// What a server told, with every text in it in one line.
pub fn document<T: Serialize + DeserializeOwned>(told: &T) -> serde_json::Result<T> {
    let mut value = serde_json::to_value(told)?;
    escape(&mut value);
    serde_json::from_value(value)
}

fn escape(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(plain) = line(text) {
                *text = plain;
            }
        }
        Value::Array(values) => values.iter_mut().for_each(escape),
        Value::Object(fields) => fields.values_mut().for_each(escape),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// JSON in one line. It means the same to programs, and does nothing to a terminal.
pub fn json(value: &impl Serialize) -> serde_json::Result<String> {
    let text = serde_json::to_string(value)?;
    if !text.contains(is_command) {
        return Ok(text);
    }
    let mut plain = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_command(c) {
            // All are of the basic plane. Writing to a string cannot fail.
            let _ = write!(plain, "\\u{:04x}", u32::from(c));
        } else {
            plain.push(c);
        }
    }
    Ok(plain)
}

/// A word as a shell reads it.
pub fn quoted(word: &str) -> String {
    if word.chars().all(|c| c.is_ascii_alphanumeric() || "/._-:@%+,".contains(c)) {
        return word.to_owned();
    }
    if !word.contains(is_command) {
        return format!("'{}'", word.replace('\'', "'\\''"));
    }
    // As bash and others read it, so that it can be seen and pasted.
    let mut quoted = "$'".to_owned();
    for c in word.chars() {
        match c {
            '\'' | '\\' => quoted.extend(['\\', c]),
            // Writing to a string cannot fail.
            c if is_command(c) => drop(write!(quoted, "\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted + "'"
}

#[cfg(test)]
mod tests {
    use super::*;

    const BAD: &str = "a\u{1b}[31m\n\t\u{9b}2J\u{7f}\u{202e}\u{0}é";

    #[test]
    fn nothing_that_commands_a_terminal_is_left() {
        let expected = "a\\u{1b}[31m\\n\\t\\u{9b}2J\\u{7f}\\u{202e}\\u{0}é";
        assert_eq!(line(BAD), expected);
        assert_eq!(lines("a\nb\u{1b}"), "a\nb\\u{1b}");
        assert!(matches!(line("plain é"), Cow::Borrowed("plain é")));
        for c in (0..=0x2100).filter_map(char::from_u32) {
            let text = c.to_string();
            assert!(!line(&text).contains(is_command), "{c:?}");
        }
    }

    #[test]
    fn programs_get_what_it_is() {
        let told = json(&vec![BAD]).expect("JSON");
        assert!(!told.contains(is_command), "{told}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&told).expect("read"), [BAD]);
        let shown = document(&vec![BAD.to_owned()]).expect("a document");
        assert_eq!(shown, [line(BAD)]);
    }
}
