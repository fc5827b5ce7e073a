//! Options as they are in effect, however they were written.

use steadfast_shares::{ShareOptions, names_clients};

/// The words that several lists come to, each of which inherits what those before it say: whether
/// clients may write and whether root is squashed always, the rest where it is not as it is without a
/// word. Lists of clients stay as they were written. `None` if there is a mistake among them.
pub fn in_effect(lists: &[&[String]]) -> Option<Vec<String>> {
    let mut options = ShareOptions::default();
    for words in lists {
        let (read, errors) = options.with(words);
        if !errors.is_empty() {
            return None;
        }
        options = read;
    }
    let default = ShareOptions::default();
    let mut base = default.clone();
    base.access.is_read_only = !options.access.is_read_only;
    base.access.squashes_root = !options.access.squashes_root && !options.access.squashes_all;
    if options.access.squashes_all {
        // It says both.
        base.access.squashes_root = options.access.squashes_root;
    }
    let mut words = options.words(&base);
    let is_list = |word: &&String| {
        names_clients(word) || word.starts_with("root=") || word.starts_with("none=")
    };
    words.extend(lists.iter().flat_map(|words| words.iter()).filter(is_list).cloned());
    Some(words)
}

#[cfg(test)]
mod tests {
    use super::in_effect;

    fn told(lists: &[&str]) -> String {
        let lists: Vec<Vec<String>> = lists
            .iter()
            .map(|list| list.split(' ').filter(|word| !word.is_empty()).map(String::from).collect())
            .collect();
        let lists: Vec<&[String]> = lists.iter().map(Vec::as_slice).collect();
        in_effect(&lists).map_or_else(|| "mistake".to_owned(), |words| words.join(","))
    }

    #[test]
    fn what_was_written_last_is_in_effect() {
        for (lists, expected) in [
            (&["rw root_squash", "rw no_root_squash"][..], "rw,no_root_squash"),
            (&["", "", ""], "rw,root_squash"),
            (&["ro", ""], "ro,root_squash"),
            (&["ro", "rw anonuid=7", "anonuid=8 crossmnt"], "crossmnt,rw,root_squash,anonuid=8"),
            (&["all_squash no_root_squash"], "rw,all_squash"),
            (&["all_squash", "no_all_squash"], "rw,root_squash"),
            (&["async", ""], "rw,async,root_squash"),
            (&["async", "sync"], "rw,root_squash"),
            (&["ro sync", "rw=@admins root=10.0.0.1"], "ro,root_squash,rw=@admins,root=10.0.0.1"),
            (&["mp"], "mp,rw,root_squash"),
            (&["rw", "sec=sys ro"], "rw,root_squash,sec=sys,ro"),
            (&["rw", "readonly"], "mistake"),
        ] {
            assert_eq!(told(lists), expected, "{lists:?}");
        }
    }
}
