use super::*;
use proptest::prelude::*;

fn shares(mix: &Mix) -> Vec<(&'static str, f64)> {
    let all = NAMES.iter().enumerate().map(|(number, name)| (*name, mix.percent(number)));
    all.filter(|(_, percent)| *percent > 0.0).collect()
}

#[test]
fn names_are_the_procedures_in_their_order() {
    for (name, procedure) in NAMES.iter().zip(procedure::ALL) {
        assert_eq!(*name, procedure.name.to_ascii_lowercase());
    }
}

#[test]
fn the_preset_is_legatos_figure() {
    let mix = Mix::preset("oleinick").unwrap();
    let sum: f64 = shares(&mix).iter().map(|(_, percent)| percent).sum();
    assert!((sum - 100.0).abs() < 1e-9);
    let changing = mix.without_changes().unwrap();
    assert!((changing.percent(operation("write").unwrap()) - 15.0 / 0.96).abs() < 1e-9);
    assert!(Mix::preset("unheard-of").is_none());
}

#[test]
fn the_share_of_changes_can_be_chosen() {
    let mix = Mix::legato().with_changes(10.0).unwrap();
    let percent = |name| mix.percent(operation(name).unwrap());
    // 19 of 100 calls are changes in the preset, 15 of them WRITEs.
    assert!((percent("write") - 15.0 / 1.9).abs() < 1e-9);
    assert!((percent("lookup") - 34.0 * 90.0 / 81.0).abs() < 1e-9);
    let changes: f64 = ["write", "setattr", "create", "remove"].map(percent).iter().sum();
    assert!((changes - 10.0).abs() < 1e-9);
    assert!(Mix::legato().with_changes(0.0).unwrap().percent(operation("write").unwrap()) == 0.0);
    for percent in [-1.0, 101.0, f64::NAN] {
        assert!(Mix::legato().with_changes(percent).is_err());
    }
    let reads = Mix::parse("read 1").unwrap();
    assert!(reads.with_changes(5.0).is_err() && reads.with_changes(0.0).is_ok());
    assert!(Mix::parse("write 1").unwrap().with_changes(5.0).is_err());
}

#[test]
fn lines_may_be_counts_or_percentages() {
    let mix = Mix::parse("# ours\nlookup 30\n\nREAD: 10  # much\nstatfs=0\nroot 0\n").unwrap();
    assert_eq!(shares(&mix), [("lookup", 75.0), ("read", 25.0)]);
    let mix = Mix::parse("getattr 60.5%\nread 39.5 %").unwrap();
    assert_eq!(shares(&mix), [("getattr", 60.5), ("read", 39.5)]);
}

#[test]
fn the_statistics_of_a_server_are_a_mix() {
    let operation = |program: u32, procedure: u32, calls: u32| {
        format!(
            "{{\"program\":{program},\"version\":3,\"procedure\":{procedure},\"calls\":{calls},\
             \"latency\":{{\"buckets\":[[0,31,2]]}}}}"
        )
    };
    let operations =
        [operation(100_003, 3, 30), operation(100_003, 6, 10), operation(100_005, 1, 500)];
    let text = |version: u32| {
        let operations = operations.join(",");
        format!("{{\"version\":{version},\"server\":{{}},\"operations\":[{operations}]}}\n")
    };
    assert_eq!(shares(&Mix::parse(&text(1)).unwrap()), [("lookup", 75.0), ("read", 25.0)]);
    assert!(Mix::parse(&text(2)).unwrap_err().to_string().contains("version 2"));
    assert!(matches!(Mix::parse("{}\n"), Err(MixError::Line { line: 1, .. })));
}

#[test]
fn faults_are_told_with_their_line() {
    for (text, line, part) in [
        ("lookup 1\nlokup 2", 2, "lokup"),
        ("lookup", 1, "its weight"),
        ("lookup 1 2", 1, "its weight"),
        ("\nlookup -1", 2, "-1"),
        ("lookup nan", 1, "nan"),
        ("lookup 1\nread 2\nlookup 3", 3, "before"),
        ("Server nfs v3:\nnull getattr\n1 0% x 0%", 2, "not a count"),
        ("Server nfs v3:\nnull getattr\n1 0%", 2, "no count"),
        ("Server nfs v3:\nnull\n1 0% 3 4%", 2, "no operation above"),
        ("Server nfs v3:\nnull nix\n1 0% 3 4%", 2, "nix"),
        ("Server nfs v3:\nnull getattr", 2, "without their counts"),
    ] {
        let error = Mix::parse(text).unwrap_err();
        assert!(matches!(error, MixError::Line { line: l, .. } if l == line), "{text}: {error}");
        assert!(error.to_string().contains(part), "{text}: {error}");
    }
    for text in ["", "# nothing", "read 0", "read 40%\nwrite 40%", "Server nfs v4:\nnull\n1 2%"] {
        assert!(matches!(Mix::parse(text), Err(MixError::Whole(_))), "{text}");
    }
    assert!(Mix::legato().without(&["reed"]).is_err());
    assert!(Mix::parse("read 1").unwrap().without(&["read"]).is_err());
}

/// As nfs-utils prints it.
const NFSSTAT: &str = "\
Server rpc stats:
calls      badcalls   badfmt     badauth    badclnt
1210       0          0          0          0

Server nfs v3:
null             getattr          setattr          lookup           access
2         0%     500      41%     8         0%     300      24%     100       8%
readlink         read             write            create           mkdir
0         0%     200      16%     60        4%     10        0%     0         0%
symlink          mknod            remove           rmdir            rename
0         0%     0         0%     5         0%     0         0%     0         0%
link             readdir          readdirplus      fsstat           fsinfo
0         0%     0         0%     10        0%     5         0%     4         0%
pathconf         commit
1         0%     5         0%

Server nfs v4:
null             compound
6         0%     5000     99%

Server nfs v4 operations:
op0-unused       op1-unused       op2-future       access           close
0         0%     0         0%     0         0%     17        0%     1         0%

Client nfs v3:
null             getattr
9         0%     9         1%
";

#[test]
fn nfsstat_s_own_words_are_read() {
    let mix = Mix::parse(NFSSTAT).unwrap();
    let percent = |name| mix.percent(operation(name).unwrap());
    assert!((percent("getattr") - 500.0 / 1210.0 * 100.0).abs() < 1e-9);
    assert!((percent("commit") - 5.0 / 1210.0 * 100.0).abs() < 1e-9);
    let v2 = "Server nfs v2:\nnull getattr root wrcache\n0 0% 3 1% 5 2% 7 3%\n";
    assert_eq!(shares(&Mix::parse(v2).unwrap()), [("getattr", 100.0)]);
}

proptest! {
    #[test]
    fn every_pass_of_a_deck_has_the_mix(
        weights in proptest::collection::vec(0_u32..1000, OPERATIONS), seed: u64,
    ) {
        let mut array = [0.0; OPERATIONS];
        for (place, weight) in array.iter_mut().zip(&weights) {
            *place = f64::from(*weight);
        }
        let Some(mix) = Mix::from_weights(&array) else { return Ok(()) };
        let mut deck = mix.deck(seed);
        let size = deck.cards.len();
        for _pass in 0..2 {
            let mut counts = [0_usize; OPERATIONS];
            for _ in 0..size {
                counts[deck.draw()] += 1;
            }
            for (number, count) in counts.iter().enumerate() {
                let expected = mix.percent(number) / 100.0 * size as f64;
                prop_assert_eq!(*count == 0, expected <= 0.0);
                // Rounded, or raised to the one card that every operation gets.
                prop_assert!((*count as f64 - expected).abs() <= 1.0, "{} {}", count, expected);
            }
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text: String) {
        let _ = Mix::parse(&text);
    }

    #[test]
    fn anything_like_nfsstat_is_read_or_refused(
        lines in proptest::collection::vec("[a-z0-9%: ]{0,30}", 0..8),
    ) {
        let _ = Mix::parse(&format!("Server nfs v3:\n{}", lines.join("\n")));
    }
}
