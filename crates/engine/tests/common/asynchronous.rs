//! A share that becomes `async`, or ceases to be so, while it is served.

use std::sync::Arc;

use steadfast_engine::{Engine, Export};
use steadfast_shares::{ClientRule, Rights, Share, ShareId};

/// From now on changes by share 1 are acknowledged before they are stable, or not any more.
pub(crate) fn set_async(engine: &Engine, is_async: bool) {
    let id = ShareId(1);
    let table = engine.exports();
    let export = table.by_id(id).unwrap();
    let rules: Vec<ClientRule> =
        export.share.rules.rules().iter().map(|rule| of(rule, is_async)).collect();
    let share = Share { rules: Arc::new(rules.into()), ..Share::clone(&export.share) };
    let changed = Export { share: Arc::new(share), ..export.clone() };
    engine.set_exports(table.changed(&[id], vec![changed]));
}

fn of(rule: &ClientRule, is_async: bool) -> ClientRule {
    let grants = rule.grants.iter().map(|rights| Rights { is_async, ..rights.clone() });
    ClientRule { pattern: rule.pattern.clone(), grants: grants.collect() }
}
