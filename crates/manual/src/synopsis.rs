//! The synopsis of a command: its options, each with its value, and its operands.

use clap::{Arg, ArgAction, Command};

use super::roff;

/// The section.
pub(super) fn section(command: &Command) -> String {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let mut words = vec![bold(name)];
    let is_shown = |one: &&Arg| !one.is_hide_set();
    let options = command.get_arguments().filter(|one| !one.is_positional());
    words.extend(options.filter(is_shown).map(option));
    words.extend(command.get_positionals().filter(is_shown).map(operand));
    if command.get_subcommands().any(|one| !one.is_hide_set()) {
        let word = italic("COMMAND");
        let must = command.is_subcommand_required_set();
        words.push(if must { word } else { format!("[{word}]") });
    }
    // A word a line: they are filled.
    format!(".SH SYNOPSIS\n{}\n", words.join("\n"))
}

fn option(one: &Arg) -> String {
    let short = one.get_short().map(|short| bold(&format!("-{short}")));
    let long = one.get_long().map(|long| bold(&format!("--{long}")));
    let mut word = short.into_iter().chain(long).collect::<Vec<_>>().join("|");
    if one.get_action().takes_values() {
        word = format!("{word} {}", italic(&names(one).join(" ")));
    }
    with_bounds(one, word)
}

/// Of several values of which one may be left out, that is one in the middle.
fn operand(one: &Arg) -> String {
    let names = names(one);
    let most = names.len();
    let may_lack = most > 2 && one.get_num_args().is_some_and(|count| count.min_values() < most);
    let words = names.iter().enumerate().map(|(place, name)| {
        let is_inner = place > 0 && place + 1 < most;
        if may_lack && is_inner { format!("[{}]", italic(name)) } else { italic(name) }
    });
    with_bounds(one, words.collect::<Vec<_>>().join(" "))
}

/// Brackets around what may be left out, and dots behind what may be repeated.
fn with_bounds(one: &Arg, word: String) -> String {
    let word = if one.is_required_set() { word } else { format!("[{word}]") };
    let names = one.get_value_names().map_or(1, <[_]>::len);
    let has_many = one.get_num_args().is_some_and(|count| count.max_values() > names);
    let is_repeated = matches!(one.get_action(), ArgAction::Append | ArgAction::Count);
    if has_many || is_repeated && names == 1 { word + "..." } else { word }
}

fn names(one: &Arg) -> Vec<String> {
    let told = one.get_value_names().map(|names| names.iter().map(ToString::to_string).collect());
    told.unwrap_or_else(|| vec![one.get_id().as_str().to_uppercase()])
}

fn bold(text: &str) -> String {
    format!("\\fB{}\\fR", roff::escaped(text))
}

fn italic(text: &str) -> String {
    format!("\\fI{}\\fR", roff::escaped(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_their_values_and_what_may_be_repeated_has_dots() {
        let mut command = Command::new("tell")
            .disable_help_flag(true)
            .arg(Arg::new("as").long("as").required(true))
            .arg(Arg::new("of").short('o').long("of").value_name("WHOM").action(ArgAction::Append))
            .arg(Arg::new("dry").long("dry-run").action(ArgAction::SetTrue))
            .arg(Arg::new("hidden").long("hidden").hide(true))
            .arg(Arg::new("words").value_names(["WHO", "HOW", "WHAT"]).num_args(2..=3));
        command.build();
        assert_eq!(
            section(&command),
            ".SH SYNOPSIS\n\\fBtell\\fR\n\\fB\\-\\-as\\fR \\fIAS\\fR\n\
             [\\fB\\-o\\fR|\\fB\\-\\-of\\fR \\fIWHOM\\fR]...\n[\\fB\\-\\-dry\\-run\\fR]\n\
             [\\fIWHO\\fR [\\fIHOW\\fR] \\fIWHAT\\fR]\n"
        );
        let mut many = Command::new("tell").disable_help_flag(true);
        many = many.arg(Arg::new("more").num_args(1..));
        many.build();
        assert_eq!(section(&many), ".SH SYNOPSIS\n\\fBtell\\fR\n[\\fIMORE\\fR]...\n");
        let above = Command::new("tell")
            .disable_help_flag(true)
            .disable_help_subcommand(true)
            .subcommand(Command::new("one"));
        assert_eq!(section(&above), ".SH SYNOPSIS\n\\fBtell\\fR\n[\\fICOMMAND\\fR]\n");
        let text = section(&above.subcommand_required(true));
        assert!(text.ends_with("\n\\fICOMMAND\\fR\n"), "{text}");
    }
}
