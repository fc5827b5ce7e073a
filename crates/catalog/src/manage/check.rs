//! What may stand in a share, a group or a pattern, whoever writes it.

use std::path::{Component, Path, PathBuf};

use steadfast_shares::{Field, FieldMistake, nearest, shown};

use crate::manage::{GroupSpec, PatternSpec, ShareSpec};

/// Longest path that the MOUNT protocol can ask for (RFC 1813 §5.1.3), in bytes.
pub const PATH_BYTES_MAX: usize = 1024;
/// Longest name of a group, in bytes: its file's name has some more.
pub const GROUP_NAME_BYTES_MAX: usize = 64;
/// Longest description, in bytes.
pub const DESCRIPTION_BYTES_MAX: usize = 1024;
/// Longest name of a resource or plug-in, in bytes.
pub const NAME_BYTES_MAX: usize = 80;

/// Keys of a share.
pub const SHARE_KEYS: [&str; 12] = [
    "path",
    "directory",
    "id",
    "description",
    "resource",
    "protocols",
    "options",
    "clients",
    "rule",
    "log",
    "enabled",
    "draining",
];
/// Keys of a rule.
pub const RULE_KEYS: [&str; 2] = ["clients", "options"];
/// Keys of a group, without its name, patterns and shares.
pub const GROUP_KEYS: [&str; 5] = ["description", "options", "clients", "protocols", "enabled"];
/// Keys of a pattern.
pub const PATTERN_KEYS: [&str; 5] = ["directories", "except", "options", "clients", "mounted"];

/// Whether a group may have the name: it is a file's name too.
///
/// # Errors
/// Why not.
pub fn check_group_name(name: &str) -> Result<(), String> {
    let is_character = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let problem = if name.is_empty() {
        "must not be empty".to_owned()
    } else if name.len() > GROUP_NAME_BYTES_MAX {
        format!("is longer than {GROUP_NAME_BYTES_MAX} bytes")
    } else if !name.bytes().all(is_character) {
        "may have letters, digits, \"-\", \"_\" and \".\" alone".to_owned()
    } else if name.starts_with('.') {
        "must not begin with a dot".to_owned()
    } else {
        return Ok(());
    };
    Err(format!("a group's name {problem}: {}", shown(name)))
}

impl ShareSpec {
    /// Makes the path plain (`/a//b/` is `/a/b`), and tells what is wrong; not with the words,
    /// which mean nothing without what they inherit.
    pub fn check(&mut self) -> Vec<FieldMistake> {
        let mut mistakes = Vec::new();
        if self.path.is_empty() {
            let mut mistake = FieldMistake::new(Field::Whole, "the share has no path");
            mistake.suggestion = self.directory.is_some().then(|| "path".to_owned());
            mistakes.push(mistake);
        } else if let Some(mistake) = path_mistake("path", &self.path) {
            mistakes.push(mistake);
        } else if self.path.len() > PATH_BYTES_MAX {
            let what = format!("the path is longer than {PATH_BYTES_MAX} bytes");
            mistakes.push(FieldMistake::new(Field::Key("path"), what));
        } else {
            plain_path(&mut self.path);
        }
        if let Some(directory) = &self.directory {
            mistakes.extend(path_mistake("directory", directory));
        }
        mistakes.extend(line_mistake(
            "description",
            self.description.as_ref(),
            DESCRIPTION_BYTES_MAX,
        ));
        mistakes.extend(line_mistake("resource", self.resource.as_ref(), NAME_BYTES_MAX));
        mistakes.extend(protocols_mistake(&self.protocols));
        mistakes
    }
}

impl GroupSpec {
    /// What is wrong; not with the words, which mean nothing without what they inherit, nor with
    /// the patterns.
    pub fn check(&self) -> Vec<FieldMistake> {
        let mut mistakes = Vec::new();
        if let Err(what) = check_group_name(&self.name) {
            mistakes.push(FieldMistake::new(Field::Key("name"), what));
        }
        mistakes.extend(line_mistake(
            "description",
            self.description.as_ref(),
            DESCRIPTION_BYTES_MAX,
        ));
        mistakes.extend(protocols_mistake(&self.protocols));
        mistakes
    }
}

impl PatternSpec {
    /// What is wrong; not with the words, which mean nothing without what they inherit.
    pub fn check(&mut self) -> Vec<FieldMistake> {
        const KEY: &str = "directories";
        let mut mistakes = Vec::new();
        if self.directories.is_empty() {
            mistakes.push(FieldMistake::new(Field::Whole, "the pattern has no directories"));
        } else if let Some(mistake) = path_mistake(KEY, &self.directories) {
            mistakes.push(mistake);
        } else {
            plain_path(&mut self.directories);
            let (parent, name) = self.directories.rsplit_once('/').unwrap_or_default();
            let problem = if !name.contains(['*', '?']) {
                "needs a wildcard (* or ?) in its last part"
            } else if parent.contains(['*', '?']) {
                "may have wildcards in its last part alone"
            } else if self.directories.len() > PATH_BYTES_MAX {
                "is too long"
            } else {
                ""
            };
            if !problem.is_empty() {
                let what = format!("{KEY} {} {problem}", shown(&self.directories));
                mistakes.push(FieldMistake::new(Field::Key(KEY), what));
            }
        }
        if let Some(name) = self.except.iter().find(|name| name.contains('/') || name.is_empty()) {
            let what = format!("except has names, not paths: {}", shown(name));
            mistakes.push(FieldMistake::new(Field::Key("except"), what));
        }
        mistakes
    }
}

/// `/a//b/` becomes `/a/b`.
fn plain_path(path: &mut String) {
    let is_plain = path == "/" || !path.ends_with('/') && !path.contains("//");
    if !is_plain {
        let plain: PathBuf = Path::new(path).components().collect();
        plain.to_str().unwrap_or_default().clone_into(path);
    }
}

fn path_mistake(key: &'static str, text: &str) -> Option<FieldMistake> {
    let (problem, suggestion) = path_problem(text)?;
    let mut mistake =
        FieldMistake::new(Field::Key(key), format!("{key} {} {problem}", shown(text)));
    mistake.suggestion = suggestion;
    Some(mistake)
}

/// What is wrong with a path that is to be absolute, without `.` or `..` in it.
pub(crate) fn path_problem(text: &str) -> Option<(&'static str, Option<String>)> {
    let path = Path::new(text);
    let has_dots = text.split('/').any(|part| part == "." || part == "..");
    if text.contains('\0') {
        Some(("must not contain NUL", None))
    } else if !path.is_absolute() {
        let is_plain = !has_dots && !text.is_empty();
        Some(("must be absolute", is_plain.then(|| format!("/{text}"))))
    } else if has_dots || path.components().any(|c| c == Component::ParentDir) {
        Some(("must not have \".\" or \"..\" in it", None))
    } else {
        None
    }
}

fn line_mistake(
    key: &'static str,
    text: Option<&String>,
    bytes_max: usize,
) -> Option<FieldMistake> {
    let text = text?;
    let problem = if text.len() > bytes_max {
        format!("is longer than {bytes_max} bytes")
    } else if text.chars().any(char::is_control) {
        "must be one line of text".to_owned()
    } else {
        return None;
    };
    Some(FieldMistake::new(Field::Key(key), format!("{key} {problem}")))
}

fn protocols_mistake(protocols: &[String]) -> Option<FieldMistake> {
    let is_character = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_".contains(&b);
    let is_name = |name: &String| {
        (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_character)
    };
    let wrong = protocols.iter().find(|name| !is_name(name))?;
    let mut mistake = FieldMistake::new(
        Field::Key("protocols"),
        format!("{} is no protocol's name: lower-case letters, digits, - and _", shown(wrong)),
    );
    mistake.suggestion = nearest(wrong, ["nfs", "smb", "exportfs", "mdns"]).map(String::from);
    Some(mistake)
}
