//! How a share is mounted, for people.

use std::fmt::Write as _;

use steadfast_control::api::{MountKind, Mounting};

/// All forms, each with its name before it.
#[must_use]
pub fn forms(mounting: &Mounting) -> String {
    let mut text = String::new();
    for form in &mounting.forms {
        if !text.is_empty() {
            text.push('\n');
        }
        // Writing to a string cannot fail.
        let _ = match &form.why_not {
            None => writeln!(text, "== {}\n{}", title(form.kind), form.text),
            Some(why) => writeln!(text, "== {}\nnone: {why}", title(form.kind)),
        };
    }
    text
}

/// The line of Linux, and where the others are told.
#[must_use]
pub fn in_short(mounting: &Mounting) -> String {
    let linux = mounting.forms.iter().find(|form| form.kind == MountKind::Linux);
    linux.map_or_else(String::new, |form| {
        format!("{:12} {}\n{:12} steadfast share mounting PATH\n", "mount:", form.text, "others:")
    })
}

const fn title(kind: MountKind) -> &'static str {
    match kind {
        MountKind::Linux => "Linux",
        MountKind::Fstab => "Linux, a line of /etc/fstab",
        MountKind::Systemd => "Linux, a unit of systemd",
        MountKind::Autofs => "Linux, autofs",
        MountKind::Steadfast => "Linux, with Steadfast's client",
        MountKind::Macos => "macOS",
        MountKind::Windows => "Windows, with Microsoft's client for NFS",
        MountKind::Kubernetes => "Kubernetes",
    }
}

#[cfg(test)]
mod tests {
    use steadfast_control::api::MountForm;

    use super::*;

    #[test]
    fn a_form_is_told_or_why_there_is_none() {
        let linux =
            MountForm { kind: MountKind::Linux, text: "mount a b".to_owned(), why_not: None };
        let windows = MountForm {
            kind: MountKind::Windows,
            text: String::new(),
            why_not: Some("no".to_owned()),
        };
        let mounting = Mounting { path: "/srv".to_owned(), forms: vec![linux, windows] };
        let told = forms(&mounting);
        assert_eq!(
            told,
            "== Linux\nmount a b\n\n== Windows, with Microsoft's client for NFS\nnone: no\n"
        );
        assert_eq!(
            in_short(&mounting),
            "mount:       mount a b\nothers:      steadfast share mounting PATH\n"
        );
    }
}
