//! exports(5): what `/etc/exports` says becomes shares, and shares are told as it would.
//!
//! There, of several entries that have a client the kind counts: hosts and addresses, then
//! networks, host names with wildcards, netgroups, and everybody; and of one kind the first in the
//! line. Here the first rule counts; so what is imported is put into that order, and what is
//! exported is looked at for whether its order means the same there.

mod export;
mod exportent;
mod import;
mod text;

#[cfg(test)]
mod tests;

pub use export::{Exported, HEAD, export};
pub use import::{Imported, import};

use steadfast_shares::{ClientPattern, ShareOptions};

/// What an entry of exports(5) means that says nothing.
fn entry_defaults() -> ShareOptions {
    let (options, _) = ShareOptions::default().with(&["ro"]);
    options
}

/// In which order exports(5) asks clients of an entry: the lowest first, and of one number in the
/// order in which they are written. An address with a length is a network, whatever the length.
fn precedence(pattern: &ClientPattern, is_network: bool) -> u8 {
    match pattern {
        ClientPattern::Host(_) => 0,
        ClientPattern::Network { .. } => u8::from(is_network),
        ClientPattern::Domain(_) => 2,
        ClientPattern::Netgroup(_) => 3,
        ClientPattern::Any => 4,
    }
}
