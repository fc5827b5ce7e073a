//! `[metrics]`: where monitoring asks by TCP.

use std::net::SocketAddr;
use std::path::PathBuf;

use steadfast_shares::shown;

use super::Placed;
use super::document::{Document, Table};

const KEYS: [&str; 2] = ["listen", "token_file"];

/// `[metrics]`; what is `None` was not said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetricsSettings {
    /// Where to listen.
    pub listen: Option<Placed<SocketAddr>>,
    /// The file with the token that scrapers send.
    pub token_file: Option<Placed<PathBuf>>,
}

pub(super) fn read(document: &mut Document<'_>, root: Table<'_>) -> MetricsSettings {
    let Some(table) = document.table(root, "metrics") else {
        return MetricsSettings::default();
    };
    document.known_keys(table, "[metrics]", &KEYS);
    let token_file = document
        .string(table, "token_file")
        .and_then(|path| super::absolute_path(document, "token_file", &path));
    let listen = listen(document, table);
    let has_key = |key| table.entries.contains_key(key);
    if let Some(Placed { value, place }) = &listen
        && !value.ip().to_canonical().is_loopback()
        && !has_key("token_file")
    {
        let what = format!(
            "{value} can be reached from other machines: set token_file, or listen at 127.0.0.1"
        );
        document.refuse(*place, what, None);
    }
    if has_key("token_file") && !has_key("listen") {
        let place = document.place_of(table, "token_file");
        let what = "token_file needs listen: nobody sends a token elsewhere";
        document.refuse(place, what.to_owned(), None);
    }
    MetricsSettings { listen, token_file }
}

fn listen(document: &mut Document<'_>, table: Table<'_>) -> Option<Placed<SocketAddr>> {
    let text = document.string(table, "listen")?;
    let address = text.value.parse();
    if address.is_err() {
        let what = format!(
            "{} is not an address with a port like \"127.0.0.1:9449\" or \"[::1]:9449\"",
            shown(text.value)
        );
        document.refuse(text.place, what, None);
    }
    address.ok().map(|value| Placed { value, place: text.place })
}

#[cfg(test)]
mod tests {
    use super::super::Configuration;

    #[track_caller]
    fn one_mistake(text: &str, expected: &str) {
        let errors = Configuration::parse(text).expect_err("a mistake");
        let mistakes: Vec<_> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(mistakes, [expected], "in {text}");
    }

    #[test]
    fn other_machines_need_a_token_and_this_one_does_not() {
        for address in ["127.0.0.1:9449", "[::1]:9449", "[::ffff:127.0.0.1]:0"] {
            let text = format!("[metrics]\nlisten = \"{address}\"\n");
            let settings = Configuration::parse(&text).expect("no mistakes").metrics;
            assert_eq!(settings.listen.expect("an address").value.to_string(), address);
        }
        for address in ["0.0.0.0:9449", "192.0.2.1:9449", "[::]:9449", "[::ffff:192.0.2.1]:1"] {
            let text = format!("[metrics]\nlisten = \"{address}\"\n");
            one_mistake(
                &text,
                &format!(
                    "2:10: {address} can be reached from other machines: set token_file, or listen \
                     at 127.0.0.1"
                ),
            );
            let text = text + "token_file = \"/etc/token\"\n";
            let settings = Configuration::parse(&text).expect("no mistakes").metrics;
            let path = settings.token_file.expect("a path").value;
            assert_eq!(path.to_str(), Some("/etc/token"));
        }
    }

    #[test]
    fn mistakes_are_told_at_their_place() {
        one_mistake(
            "[metrics]\nlisten = \"9449\"\n",
            "2:10: \"9449\" is not an address with a port like \"127.0.0.1:9449\" or \"[::1]:9449\"",
        );
        one_mistake(
            "[metrics]\ntoken_file = \"/t\"\n",
            "2:14: token_file needs listen: nobody sends a token elsewhere",
        );
        one_mistake(
            "[metrics]\nlisten = \"[::]:1\"\ntoken_file = \"t\"\n",
            "3:14: token_file \"t\" must be absolute; did you mean \"/t\"?",
        );
        one_mistake("[metrics]\ntoken = \"x\"\n", "2:1: unknown key \"token\" in [metrics]");
    }
}
