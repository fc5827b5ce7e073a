//! Makes lines of exports(5): plausible ones, and some with a few characters changed.

/// Numbers that look random and are the same in each run (`splitmix64`).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        let at = self.below(of.len());
        of.get(at).copied().unwrap_or_default()
    }
}

const PATHS: [&str; 8] = [
    "/mnt/a",
    "/mnt/a",
    "/mnt/d",
    "\"/mnt/b c\"",
    "/mnt/b\\040c",
    "/mnt/link",
    "/mnt/a/",
    "/mnt/e",
];

const CLIENTS: [&str; 34] = [
    "*",
    "",
    "10.0.0.1",
    "10.0.0.2",
    "10.0.0.0/8",
    "10.1.0.0/16",
    "10.0.0.1/32",
    "10.0.0.0/255.255.0.0",
    "10.1.2.3/8",
    "0.0.0.0/0",
    "fd00::1",
    "fd00::/8",
    "fd00::1/128",
    "2001:db8:9:e54::/64",
    "h1.x",
    "h2.x",
    "H1.x",
    "node7",
    "node[0-9]",
    "h[12].x",
    "h[^1].x",
    "*.x",
    "h?.x",
    "?*.x",
    "@g",
    "@staff",
    "@G",
    "unknown.example",
    "10.0.*",
    "[fd00::1]",
    "gss/krb5",
    "10.0.0.0/33",
    "::ffff:10.0.0.1",
    "-x",
];

const OPTIONS: [&str; 58] = [
    "rw",
    "rw",
    "rw",
    "ro",
    "ro",
    "root_squash",
    "no_root_squash",
    "no_root_squash",
    "all_squash",
    "no_all_squash",
    "all_squash",
    "secure",
    "insecure",
    "insecure",
    "crossmnt",
    "nocrossmnt",
    "anonuid=5",
    "anonuid=-2",
    "anongid=6",
    "anongid=0",
    "sec=sys",
    "sec=sys",
    "sec=none",
    "sec=krb5",
    "sec=sys:krb5",
    "sec=krb5:none:sys",
    "sec=unix",
    "sec=null",
    "sync",
    "async",
    "no_subtree_check",
    "subtree_check",
    "wdelay",
    "no_wdelay",
    "hide",
    "nohide",
    "acl",
    "no_acl",
    "fsid=0",
    "fsid=root",
    "fsid=7",
    "nordirplus",
    "pnfs",
    "no_pnfs",
    "security_label",
    "insecure_locks",
    "secure_locks",
    "auth_nlm",
    "no_auth_nlm",
    "mp",
    "mountpoint=/mnt",
    "refer=/x@h",
    "replicas=/x@h",
    "bogus",
    "anonuid=x",
    "fsid=x",
    "sec=x",
    "async=1",
];

fn options(numbers: &mut Numbers) -> String {
    let count = numbers.below(6);
    let words: Vec<&str> = (0..count)
        .map(|_| {
            // What is refused or left out is rarer: most lines should be worth comparing.
            let end = if numbers.below(4) == 0 { OPTIONS.len() } else { 36 };
            numbers.one(OPTIONS.get(..end).unwrap_or_default())
        })
        .collect();
    words.join(",")
}

fn line(numbers: &mut Numbers) -> String {
    let mut line = numbers.one(&PATHS).to_owned();
    for _ in 0..numbers.below(5) + usize::from(numbers.below(8) > 0) {
        line.push_str(numbers.one(&[" ", " ", " ", " ", "\t", "  ", " \\\n ", "\\\n"]));
        match numbers.below(7) {
            0 => {
                line.push('-');
                line.push_str(&options(numbers));
            }
            1 => line.push_str(numbers.one(&CLIENTS)),
            _ => {
                let end = if numbers.below(4) == 0 { CLIENTS.len() } else { 27 };
                line.push_str(numbers.one(CLIENTS.get(..end).unwrap_or_default()));
                line.push('(');
                line.push_str(&options(numbers));
                line.push(')');
            }
        }
    }
    line.push_str(numbers.one(&["", "", "", " # more", " ", "\r", "#"]));
    line
}

/// Changes a few characters.
fn disturbed(numbers: &mut Numbers, line: &str) -> String {
    const CHARACTERS: &[u8] = b" \t\"\\(),-#=*@[]:/0a\n4\r.?^";
    let mut bytes = line.as_bytes().to_vec();
    for _ in 0..=numbers.below(3) {
        let at = numbers.below(bytes.len() + 1);
        let character = CHARACTERS.get(numbers.below(CHARACTERS.len())).copied().unwrap_or(b' ');
        match numbers.below(3) {
            0 => bytes.insert(at, character),
            1 if at < bytes.len() => {
                bytes.remove(at);
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = character;
                }
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// So many texts, of one to three lines.
pub(crate) fn made(seed: u64, count: usize) -> Vec<String> {
    let mut numbers = Numbers(seed);
    let text = |numbers: &mut Numbers| {
        let mut text = String::new();
        for _ in 0..=numbers.below(5) / 3 {
            let mut line = line(numbers);
            if numbers.below(3) == 0 {
                line = disturbed(numbers, &line);
            }
            text.push_str(&line);
            text.push('\n');
        }
        text
    };
    (0..count).map(|_| text(&mut numbers)).collect()
}
