//! The examples of the commands, which stand in `examples.txt`: sections `## COMMAND`, and in them what an example does
//! (`# …`) before what is typed. [`Examples`] is that text; a test parses each line that begins with `steadfast`.

use super::roff;

const TEXT: &str = include_str!("examples.txt");

/// All examples.
#[derive(Debug)]
pub(super) struct Examples(Vec<Section>);

/// Those of one command.
#[derive(Debug)]
struct Section {
    /// The words after `steadfast`; empty for the program itself.
    command: &'static str,
    examples: Vec<Example>,
}

#[derive(Debug, Default)]
struct Example {
    what: Vec<&'static str>,
    lines: Vec<&'static str>,
}

impl Examples {
    pub(super) fn read() -> Self {
        let mut sections: Vec<Section> = Vec::new();
        for line in TEXT.lines().map(str::trim_end).filter(|line| !line.is_empty()) {
            if let Some(command) = line.strip_prefix("##") {
                let command = command.trim();
                let command = if command == "steadfast" { "" } else { command };
                sections.push(Section { command, examples: Vec::new() });
                continue;
            }
            // The text begins with a section, as a test says.
            let Some(section) = sections.last_mut() else { continue };
            let what = line.strip_prefix("# ");
            match section.examples.last_mut() {
                Some(last) if what.is_none() || last.lines.is_empty() => last.add(what, line),
                _ => {
                    let mut example = Example::default();
                    example.add(what, line);
                    section.examples.push(example);
                }
            }
        }
        Self(sections)
    }

    fn of(&self, command: &str) -> Option<&Section> {
        self.0.iter().find(|section| section.command == command)
    }

    /// The section of a page.
    pub(super) fn section(&self, command: &str) -> String {
        let Some(section) = self.of(command) else { return String::new() };
        let mut text = String::from(".SH EXAMPLES\n");
        for (index, example) in section.examples.iter().enumerate() {
            if index > 0 {
                text.push_str(".PP\n");
            }
            text.push_str(&roff::markdown(&example.what.join(" ")));
            text.push_str(":\n");
            text.push_str(&roff::literal(&example.lines.join("\n")));
        }
        text
    }
}

impl Example {
    fn add(&mut self, what: Option<&'static str>, line: &'static str) {
        match what {
            Some(what) => self.what.push(what),
            None => self.lines.push(line),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use steadfast_mount::Options;

    use super::super::commands;
    use super::*;
    use crate::arguments::Arguments;
    use crate::environment;

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
        commands(&all, &mut |path, _| {
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
