//! `steadfast man`: man pages, which `steadfast-manual` makes of the definitions of the arguments. The tests here are those
//! of its examples and pages that need these definitions.

use anyhow::{Context, Result};

use crate::arguments::ManArguments;
use crate::environment;

/// Writes all pages into a directory, which is made if it is missing.
///
/// # Errors
/// When one cannot be written.
pub(crate) fn write(arguments: &ManArguments) -> Result<()> {
    let directory = &arguments.directory;
    steadfast_manual::write(environment::described(), directory)
        .with_context(|| format!("cannot write man pages into {}", directory.display()))
}

#[cfg(test)]
mod tests {
    //! Unit ring.

    use clap::Parser;
    use steadfast_manual::{Edition, Examples};
    use steadfast_mount::Options;

    use super::*;
    use crate::arguments::Arguments;

    fn edition() -> Edition {
        Edition { date: "2026-01-02".to_owned(), source: "steadfast 0".to_owned() }
    }

    fn text_of(file: &str) -> String {
        let pages = steadfast_manual::pages(environment::described(), &edition()).expect("pages");
        pages.into_iter().find(|page| page.file == file).expect(file).text
    }

    #[test]
    fn each_command_has_a_page_with_its_sections() {
        let text = text_of("steadfast-share-add.1");
        for part in [
            ".TH steadfast-share-add 1 2026-01-02 \"steadfast 0\"",
            ".SH NAME\n",
            ".SH SYNOPSIS\n",
            ".SH OPTIONS\n",
            ".SH EXAMPLES\n",
            ".SH SEE ALSO\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let client = "\n[\\fB\\-c\\fR|\\fB\\-\\-client\\fR \\fICLIENT\\fR]...\n";
        assert!(text.contains(client) && text.contains("\n\\fIPATH\\fR...\n"), "{text}");
        let explain = text_of("steadfast-share-explain.1");
        assert!(explain.contains("\n\\fICLIENT\\fR [\\fIUSER\\fR] \\fIPATH\\fR\n"), "{explain}");
        // Its last sentence ends as the others do.
        let expire = text_of("steadfast-clients-expire.1");
        assert!(expire.contains("their locks have ended: stop them first.\n"), "{expire}");
        let pages = steadfast_manual::pages(environment::described(), &edition()).expect("pages");
        assert!(pages.len() > 60, "{}", pages.len());
        for page in &pages {
            assert!(page.text.contains(".SH EXAMPLES\n"), "{}", page.file);
        }
        let hidden = ["steadfast-names-helper.1", "steadfast-disk-usage.1"];
        assert!(pages.iter().all(|page| !hidden.contains(&page.file.as_str())));
    }

    /// What stands in a page, without what roff wants of it.
    fn plain(page: &str) -> String {
        page.replace("\\-", "-").replace("\\fB", "").replace("\\fR", "").replace("\\fI", "")
    }

    /// Whether a package installs a file of this path below /usr/share.
    fn is_installed(path: &str) -> bool {
        let packaging = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
        let read = |file: &str| {
            let file = packaging.join("debian").join(file);
            std::fs::read_to_string(&file)
                .unwrap_or_else(|error| panic!("{}: {error}", file.display()))
        };
        let has_line = |file: &str, line: &str| read(file).lines().any(|one| one == line);
        if let Some(name) = path.strip_prefix("/usr/share/doc/steadfast/") {
            // Not compressed, so that the name is this one.
            return has_line("steadfast.docs", "staged/docs/*")
                && read("rules").contains("dh_compress -X.md")
                && is_document(name)
                && packaging.join("../docs").join(name).is_file();
        }
        let staged = ["prometheus", "grafana"].into_iter().find_map(|directory| {
            let file = path.strip_prefix(&format!("/usr/share/steadfast/{directory}/"))?;
            Some((directory, file))
        });
        staged.is_some_and(|(directory, file)| {
            has_line("steadfast.install", &format!("staged/{directory} usr/share/steadfast"))
                && packaging.join(directory).join(file).is_file()
        })
    }

    fn is_document(name: &str) -> bool {
        std::path::Path::new(name).extension().is_some_and(|extension| extension == "md")
    }

    #[test]
    fn pages_name_files_by_where_packages_install_them() {
        let pages = steadfast_manual::pages(environment::described(), &edition()).expect("pages");
        let is_of_path = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
        let mut count = 0;
        for page in &pages {
            let text = plain(&page.text);
            let words = text.split(|c: char| !is_of_path(c));
            let words = words.map(|word| word.trim_end_matches('.'));
            for word in words.filter(|word| !word.is_empty()) {
                if word.starts_with("/usr/share/") {
                    assert!(is_installed(word), "{} names {word}", page.file);
                    count += 1;
                } else {
                    // As it stands in the sources.
                    assert!(!is_document(word), "{} names {word}", page.file);
                }
            }
        }
        assert!(count >= 5, "{count}");
        assert!(!is_installed("/usr/share/doc/steadfast/none.md"));
        assert!(!is_installed("/usr/share/doc/steadfast/openapi.json"), "no page needs it");
        assert!(!is_installed("/usr/share/elsewhere/index.md"));
    }

    /// The words of a line, as a shell makes them; what is after a pipe, a redirection or `&&` is another
    /// program's, and so is what is behind a number sign.
    fn words(line: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        let (mut quote, mut is_between) = (None, true);
        for c in line.chars() {
            match (quote, c) {
                (Some(open), c) if c == open => quote = None,
                (None, '\'' | '"') => {
                    quote = Some(c);
                    is_between = false;
                }
                (None, '|' | '>' | '&' | ';') => break,
                (None, '#') if is_between => break,
                (None, ' ') if !is_between => {
                    words.push(String::new());
                    is_between = true;
                }
                (None, ' ') => {}
                (_, c) => {
                    words.last_mut().expect("a word").push(c);
                    is_between = false;
                }
            }
        }
        if is_between {
            words.pop();
        }
        words
    }

    #[test]
    fn no_command_lacks_examples_and_no_example_lacks_its_command() {
        let examples = Examples::read();
        let mut paths = vec!["mount.steadfast".to_owned()];
        let mut all = environment::described().disable_help_subcommand(true);
        all.build();
        steadfast_manual::commands(&all, &mut |path, _| {
            paths.push(path.join(" "));
            Ok(())
        })
        .expect("visited");
        for path in &paths {
            let section = examples.of(path).unwrap_or_else(|| panic!("no example of {path:?}"));
            assert!(!section.examples.is_empty(), "{path}");
            for example in &section.examples {
                assert!(
                    !example.what.is_empty() && !example.lines.is_empty(),
                    "{path}: {example:?}"
                );
            }
        }
        for section in &examples.0 {
            assert!(paths.iter().any(|path| path == section.command), "{:?}", section.command);
        }
        assert_eq!(examples.0.len(), paths.len(), "a command has its examples twice");
    }

    #[test]
    fn each_example_is_understood() {
        let mut count = 0;
        for section in Examples::read().0 {
            let mut is_shown = false;
            for line in section.examples.iter().flat_map(|example| &example.lines) {
                // What the shell puts in is the number of a process.
                let words = words(&line.replace("$(pidof steadfast)", "812"));
                let first = words.first().map(String::as_str);
                if first == Some("steadfast") {
                    let parsed = Arguments::try_parse_from(&words);
                    // --help and --version are told as errors.
                    let is_right =
                        parsed.as_ref().map_or_else(|error| error.exit_code() == 0, |_| true);
                    assert!(is_right, "{line}: {}", parsed.expect_err("an error"));
                    count += 1;
                    let own = section.command.split(' ').filter(|word| !word.is_empty());
                    is_shown |= words.iter().skip(1).zip(own.clone()).all(|(a, b)| a == b);
                }
                // Those of mount(8), and lines of fstab(5).
                if section.command == "mount.steadfast" {
                    let options = words.iter().skip_while(|word| *word != "-o").nth(1);
                    let is_of_fstab = first != Some("mount") && line.contains(" steadfast ");
                    let field = is_of_fstab.then(|| words.get(3)).flatten();
                    for options in options.into_iter().chain(field.filter(|_| options.is_none())) {
                        Options::parse(options).unwrap_or_else(|error| panic!("{line}: {error}"));
                        count += 1;
                    }
                    is_shown = true;
                }
            }
            assert!(is_shown, "{:?} is in none of its examples", section.command);
        }
        assert!(count > 80, "{count}");
    }

    #[test]
    fn words_are_those_of_a_shell() {
        assert_eq!(words("a 'b c' \"d\"e  f | g"), ["a", "b c", "de", "f"]);
        assert_eq!(words("a # b"), ["a"]);
        assert_eq!(words("a#b ''"), ["a#b", ""]);
    }
}
