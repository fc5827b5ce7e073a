//! mount.steadfast(8): its options are the table of docs/mount.md.

use super::examples::Examples;
use super::table::{self, Row};
use super::{Edition, Page, roff};

const DOCUMENT: &str = include_str!("../../../docs/mount.md");

const NAME: &str = "mount.steadfast";

pub(super) fn page(edition: &Edition, examples: &Examples) -> Page {
    let mut text = roff::head(NAME, 8, edition);
    text += ".SH NAME\nmount.steadfast \\- mount a share of an NFSv3 server through FUSE\n\
             .SH SYNOPSIS\n\\fBmount \\-t steadfast\\fR [\\fB\\-o\\fR \\fIOPTIONS\\fR] \
             \\fISERVER\\fR:\\fI/SHARE\\fR \\fIDIR\\fR\n.PP\n\
             \\fBmount.steadfast\\fR \\fISERVER\\fR:\\fI/SHARE\\fR \\fIDIR\\fR [\\fB\\-fsnvrw\\fR] \
             [\\fB\\-o\\fR \\fIOPTIONS\\fR]\n\
             .SH DESCRIPTION\n\
             \\fBmount\\fR(8) calls this helper for file systems of the type \\fBsteadfast\\fR, on the command line and\n\
             in \\fBfstab\\fR(5). It is another name of \\fBsteadfast mount\\fR.\n\
             The share may be any NFSv3 server's; FUSE is needed, an NFS client in the kernel is not.\n\
             \\fBumount\\fR(8) ends the mount.\n\
             .SH OPTIONS\n";
    text += &table::list(&options());
    text += ".SH EXIT STATUS\n0: mounted. 1: a wrong option or command line. 32: not mounted.\n";
    text += &examples.section(NAME);
    text += &roff::see_also(&[
        ("steadfast-mount", 1),
        ("steadfast-mount-status", 1),
        ("steadfast-journal", 1),
        ("mount", 8),
        ("nfs", 5),
    ]);
    Page { file: format!("{NAME}.8"), text }
}

fn options() -> Vec<Row<'static>> {
    table::rows(DOCUMENT, "## Options")
}

#[cfg(test)]
mod tests {
    use steadfast_mount::Options;

    use super::*;

    #[test]
    fn each_option_of_the_table_is_one_that_the_mount_takes() {
        let rows = options();
        assert!(rows.len() > 15, "{}", rows.len());
        for row in &rows {
            assert!(!row.what.is_empty() && !row.what.contains('|'), "{}", row.words);
            let words = row.words.split('`').enumerate().filter(|(index, _)| index % 2 == 1);
            for (_, word) in words {
                let word = word
                    .replace("journal=DIR", "journal=/journal")
                    .replace("=V", "=4.2")
                    .replace("=W", "=always")
                    .replace("=N", if word.contains("size") { "=1048576" } else { "=2" })
                    .replace("=S", "=5");
                // Values that need another option, or are shown without theirs.
                let word = match word.as_str() {
                    "journal_size=1048576" => "journal=/journal,journal_size=64M".to_owned(),
                    "journal_sync=always" => format!("journal=/journal,{word}"),
                    "minorversion=2" => format!("nfsvers=4,{word}"),
                    "acregmin" | "acregmax" | "acdirmin" | "acdirmax" => format!("{word}=40"),
                    _ => word,
                };
                Options::parse(&word).unwrap_or_else(|error| panic!("{word}: {error}"));
            }
        }
    }
}
