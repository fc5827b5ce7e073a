//! Clients of a share with what each may do, as other servers' files name them.

use steadfast_shares::{ClientPattern, RuleSpec, ShareOptions};

use crate::manage::ShareSpec;

/// A client of a share.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entitled {
    pub(crate) pattern: ClientPattern,
    pub(crate) options: ShareOptions,
}

/// The share with its clients: in a list if all may do the same, else with rules. `inherited` is what its group
/// gives it.
pub(crate) fn share_of(
    mut share: ShareSpec,
    clients: &[Entitled],
    inherited: &ShareOptions,
) -> ShareSpec {
    let Some(Entitled { options: first, .. }) = clients.first() else { return share };
    if clients.iter().all(|client| client.options == *first) {
        share.options = first.words(inherited);
        share.clients = clients.iter().map(|client| client.pattern.to_string()).collect();
        return share;
    }
    let common = ShareOptions {
        crosses_mounts: first.crosses_mounts,
        required_mounts: first.required_mounts.clone(),
        size: first.size,
        ..inherited.clone()
    };
    share.options = common.words(inherited);
    let mut last: Option<&ShareOptions> = None;
    for Entitled { pattern, options } in clients {
        if last.replace(options) != Some(options) {
            let options = options.words(&common);
            share.rules.push(RuleSpec { clients: Vec::new(), options });
        }
        if let Some(rule) = share.rules.last_mut() {
            rule.clients.push(pattern.to_string());
        }
    }
    share
}
