//! A rule as it is typed: `CLIENT,...:OPTION,...` or, as exports(5) has it, `CLIENT(OPTION,...)`.

use steadfast_shares::{ClientPattern, RuleSpec, ShareOptions};

/// Reads a rule. Addresses of IPv6 have colons, and so may options: the rule is parted where
/// clients are on the one side and options on the other.
pub(super) fn parse(text: &str) -> Result<RuleSpec, String> {
    let parted = match text.strip_suffix(')') {
        Some(rest) => rest.split_once('('),
        None => colons(text).find(|(clients, options)| is_rule(clients, options)),
    };
    if let Some((clients, options)) = parted.filter(|(clients, options)| is_rule(clients, options))
    {
        let list = |text: &str| text.split(',').map(|word| word.trim().to_owned()).collect();
        return Ok(RuleSpec { clients: list(clients), options: list(options) });
    }
    // What is wrong is told of the likeliest parts.
    let (clients, options) = parted.or_else(|| text.rsplit_once(':')).ok_or_else(|| {
        "write CLIENT,...:OPTION,... such as \"host.example:rw,no_root_squash\"".to_owned()
    })?;
    let mistake = clients
        .split(',')
        .find_map(|client| {
            client.trim().parse::<ClientPattern>().err().map(|e| (e.what, e.suggestion))
        })
        .or_else(|| {
            let words: Vec<&str> = options.split(',').map(str::trim).collect();
            let (_, mistakes) = ShareOptions::default().with(&words);
            mistakes.into_iter().next().map(|(_, error)| (error.what, error.suggestion))
        });
    Err(match mistake {
        Some((what, Some(suggestion))) => format!("{what}; did you mean {suggestion:?}?"),
        Some((what, None)) => what,
        None => "the rule is not understood".to_owned(),
    })
}

/// All ways to part a text at a colon.
fn colons(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.match_indices(':').filter_map(|(at, _)| Some((text.get(..at)?, text.get(at + 1..)?)))
}

fn is_rule(clients: &str, options: &str) -> bool {
    clients.split(',').all(|client| client.trim().parse::<ClientPattern>().is_ok()) && {
        let words: Vec<&str> = options.split(',').map(str::trim).collect();
        ShareOptions::default().with(&words).1.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    fn parsed(text: &str) -> (Vec<String>, Vec<String>) {
        let rule = parse(text).expect("a rule");
        (rule.clients, rule.options)
    }

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn rules_are_parted_where_options_begin() {
        for (text, clients, options) in [
            (
                "host.example:rw,no_root_squash",
                &["host.example"][..],
                &["rw", "no_root_squash"][..],
            ),
            ("fd00::1:ro", &["fd00::1"], &["ro"]),
            ("fd00::/8,10.0.0.1:sec=sys,rw", &["fd00::/8", "10.0.0.1"], &["sec=sys", "rw"]),
            ("@staff(ro)", &["@staff"], &["ro"]),
            ("*.example(rw, all_squash)", &["*.example"], &["rw", "all_squash"]),
        ] {
            assert_eq!(parsed(text), (words(clients), words(options)), "{text}");
        }
    }

    #[test]
    fn mistakes_are_told_of_the_part_they_are_in() {
        for (text, expected) in [
            ("host.example", "write CLIENT"),
            ("host.example:no_rootsquash", "did you mean \"no_root_squash\"?"),
            ("10.0.0.1/8:rw", "did you mean \"10.0.0.0/8\"?"),
            ("h(rw", "write CLIENT"),
            ("h(or)", "did you mean"),
        ] {
            let error = parse(text).expect_err("a mistake");
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
