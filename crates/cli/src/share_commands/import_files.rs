//! The files of `steadfast import`.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use steadfast_catalog::ganesha::{Included, included};
use steadfast_control::api::{ExportsFile, ImportForm};

use super::arguments::ImportFrom;

/// Most files that one configuration of nfs-ganesha takes in.
const FILES_MAX: usize = 10_000;

pub(super) fn form(from: ImportFrom) -> ImportForm {
    match from {
        ImportFrom::Exports => ImportForm::Exports,
        ImportFrom::Ganesha => ImportForm::Ganesha,
    }
}

/// Reads the files that are named, or those that the other server reads.
pub(super) fn read(from: ImportFrom, named: &[PathBuf]) -> Result<Vec<ExportsFile>> {
    match (from, named) {
        (ImportFrom::Exports, []) => exports_files(Path::new("/etc"))?.iter().map(file).collect(),
        (ImportFrom::Exports, named) => named.iter().map(file).collect(),
        (ImportFrom::Ganesha, []) => ganesha_files(&["/etc/ganesha/ganesha.conf".into()]),
        (ImportFrom::Ganesha, named) => ganesha_files(named),
    }
}

fn file(path: &PathBuf) -> Result<ExportsFile> {
    let name = path.display().to_string();
    let bytes = std::fs::read(path).with_context(|| format!("{name} cannot be read"))?;
    let text = String::from_utf8(bytes).map_err(|_| anyhow!("{name} is not UTF-8"))?;
    Ok(ExportsFile { name, text })
}

/// The files that exportfs(8) reads, in its order.
fn exports_files(etc: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let directory = etc.join("exports.d");
    match directory.read_dir() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        entries => {
            let context = || format!("{} cannot be read", directory.display());
            for entry in entries.with_context(context)? {
                let path = entry.with_context(context)?.path();
                let is_hidden =
                    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
                if !is_hidden && path.extension().is_some_and(|extension| extension == "exports") {
                    files.push(path);
                }
            }
        }
    }
    files.sort();
    let exports = etc.join("exports");
    if exports.exists() {
        files.insert(0, exports.clone());
    }
    if files.is_empty() {
        bail!("there is neither {} nor anything in {}", exports.display(), directory.display());
    }
    Ok(files)
}

/// These files, each followed by those that it takes in.
fn ganesha_files(named: &[PathBuf]) -> Result<Vec<ExportsFile>> {
    let directory = named.first().and_then(|path| path.parent()).unwrap_or(Path::new(""));
    let mut files = Vec::new();
    let mut seen = HashSet::new();
    let mut to_read: Vec<(PathBuf, Option<String>)> =
        named.iter().rev().map(|path| (path.clone(), None)).collect();
    while let Some((path, by)) = to_read.pop() {
        let taken_in = || by.clone().unwrap_or_else(|| "steadfast import".to_owned());
        if !seen.insert(path.clone()) {
            bail!("{}: {} is read already", taken_in(), path.display());
        }
        if files.len() >= FILES_MAX {
            bail!("{}: more than {FILES_MAX} files are taken in", taken_in());
        }
        let file = file(&path).with_context(taken_in)?;
        let mut inner = Vec::new();
        for included in included(&file.text) {
            let by = format!("{}:{}", file.name, included.name.place);
            let paths = paths_of(&included, directory).with_context(|| by.clone())?;
            inner.extend(paths.into_iter().map(|path| (path, Some(by.clone()))));
        }
        to_read.extend(inner.into_iter().rev());
        files.push(file);
    }
    Ok(files)
}

/// The files that `%include` or `%dir` names. Relative paths are relative to the directory of the first file.
fn paths_of(included: &Included, directory: &Path) -> Result<Vec<PathBuf>> {
    let name = included.name.value.as_str();
    match included.directive.as_str() {
        "%include" => Ok(vec![directory.join(name)]),
        "%dir" => {
            let path = directory.join(name);
            let last = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let (parent, pattern) = match path.parent() {
                Some(parent) if last.contains('*') => (parent, last),
                _ => (path.as_path(), "*"),
            };
            matching(parent, pattern)
        }
        other => bail!("{other} {name}: only files can be imported, save it as one"),
    }
}

/// The regular files of a directory whose names have a pattern, in the order of their names.
fn matching(directory: &Path, pattern: &str) -> Result<Vec<PathBuf>> {
    let context = || format!("{} cannot be read", directory.display());
    let mut paths = Vec::new();
    for entry in directory.read_dir().with_context(context)? {
        let entry = entry.with_context(context)?;
        let is_file = entry.file_type().with_context(context)?.is_file();
        if is_file && entry.file_name().to_str().is_some_and(|name| has_pattern(name, pattern)) {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

/// Whether a name has a pattern in which `*` stands for anything.
fn has_pattern(name: &str, pattern: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return name == pattern };
    let Some(name) = name.strip_prefix(first) else { return false };
    let Some((middle, last)) = rest.rsplit_once('*') else { return name.ends_with(rest) };
    let Some(mut name) = name.strip_suffix(last) else { return false };
    for part in middle.split('*') {
        let Some((_, behind)) = name.split_once(part) else { return false };
        name = behind;
    }
    true
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn names_have_patterns() {
        for (name, pattern, is_so) in [
            ("a.conf", "*.conf", true),
            ("a.confx", "*.conf", false),
            ("a.conf", "*", true),
            ("export.1.conf", "export.*.conf", true),
            ("export.conf", "export.*.conf", false),
            ("abcabc", "a*b*c*c", true),
            ("abab", "a*b*c", false),
            ("aXbYc", "a*b*c", true),
            ("a", "a", true),
            ("ab", "a", false),
        ] {
            assert_eq!(has_pattern(name, pattern), is_so, "{name} {pattern}");
        }
    }

    #[test]
    fn files_are_read_with_those_that_they_take_in() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        std::fs::create_dir(at("exports")).unwrap();
        std::fs::write(at("g.conf"), "%include \"one.conf\"\n%dir exports/*.conf\n").unwrap();
        std::fs::write(at("one.conf"), "LOG { }").unwrap();
        for name in ["b.conf", "a.conf", "c.conf~"] {
            std::fs::write(at("exports").join(name), "").unwrap();
        }
        let names = |files: Vec<ExportsFile>| -> Vec<String> {
            let start = format!("{}/", place.path().display());
            files.iter().map(|file| file.name.replace(&start, "")).collect()
        };
        let files = read(ImportFrom::Ganesha, &[at("g.conf")]).unwrap();
        assert_eq!(names(files), ["g.conf", "one.conf", "exports/a.conf", "exports/b.conf"]);
        let told = |text: &str| {
            std::fs::write(at("one.conf"), text).unwrap();
            format!("{:#}", read(ImportFrom::Ganesha, &[at("g.conf")]).unwrap_err())
        };
        assert!(
            told("\n%include g.conf").contains("one.conf:2:10: "),
            "{}",
            told("\n%include g.conf")
        );
        assert!(told("%include none.conf").contains("none.conf cannot be read"));
        assert!(told("%url rados://a/b").contains("save it as one"));
        assert!(told("%dir nowhere").contains("nowhere cannot be read"));
    }

    #[test]
    fn exports_are_read_from_where_exportfs_reads_them() {
        let etc = tempfile::tempdir().expect("a directory");
        assert!(exports_files(etc.path()).expect_err("none").to_string().contains("neither"));
        std::fs::create_dir(etc.path().join("exports.d")).expect("made");
        for name in
            ["exports", "exports.d/b.exports", "exports.d/a.exports", "exports.d/.c.exports"]
        {
            std::fs::write(etc.path().join(name), "").expect("written");
        }
        std::fs::write(etc.path().join("exports.d/README"), "").expect("written");
        let found = exports_files(etc.path()).expect("files");
        let names: Vec<_> =
            found.iter().filter_map(|path| path.strip_prefix(etc.path()).ok()).collect();
        let expected = ["exports", "exports.d/a.exports", "exports.d/b.exports"];
        assert_eq!(names, expected.map(Path::new));
    }
}
