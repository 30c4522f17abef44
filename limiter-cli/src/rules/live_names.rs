//! Rules, parts and keys of a change that no limiter that lives has.
//!
//! They are warnings: rules may be published before a deploy, and at night a program may not run. A new name that is nearly
//! that of a rule which lives is probably a mistake, which would leave the limit as it is. So are rules that cannot be packed
//! beside what limiters have.

use rate_limited::Key;

use crate::arguments::KeysArguments;
use crate::failure::Failure;
use crate::output::{Output, visible};
use limiter_inspect::{Fleet, fits, is_misspelt, packed_conflicts, parts};

/// The most names of a text that are warned of.
const MAX_WARNINGS: usize = 10;

/// Checks the name of a rule that is set, and warns of keys of its override that no limiter has.
///
/// # Errors
/// A wrong usage for a new rule whose name is nearly that of one that lives, unless it is forced.
pub(super) fn check(
    fleet: &Fleet,
    name: &str,
    keys: &KeysArguments,
    is_new: bool,
    is_forced: bool,
    output: &Output,
) -> Result<(), Failure> {
    if !fleet.is_known() {
        return Ok(());
    }
    let Some(live) = fleet.rule(name) else {
        let similar = fleet.rules().map(|(live, _)| live).find(|live| is_misspelt(name, live));
        let similar = similar.filter(|_| is_new && !is_forced);
        return similar.map_or(Ok(()), |similar| {
            Err(Failure::usage(format!(
                "`RULE` must be one that a limiter has, got `{}`, which none has: write `{}`, or add `--force` for a new rule",
                visible(name),
                visible(similar)
            )))
        });
    };
    if live.keys.is_empty() {
        // Direct calls have keys that no template states.
        return Ok(());
    }
    let templates = || live.keys.iter().map(|key| format!("`{}`", visible(key))).collect::<Vec<_>>().join(", ");
    for (part, _) in &keys.matches {
        let part = part.split(':').next().unwrap_or(part);
        if !live.keys.iter().any(|template| parts(template).contains(&part)) {
            output.warn(format_args!(
                "no limiter that lives has keys of `{}` with the part `{}`: they are {}",
                visible(name),
                visible(part),
                templates()
            ));
        }
    }
    if let Some(text) = &keys.key
        && let Ok(key) = Key::from_encoded(text)
        && live.keys.iter().all(|template| fits(template, &key) == Some(false))
    {
        output.warn(format_args!(
            "no limiter that lives has the key `{}` of `{}`: they are {}",
            visible(text),
            visible(name),
            templates()
        ));
    }
    Ok(())
}

/// Warns of rules that no limiter has.
pub(super) fn warn_of_unknown<'n>(fleet: &Fleet, names: impl Iterator<Item = &'n str>, output: &Output) {
    if fleet.is_known() {
        let unknown_names = names.filter(|name| fleet.rule(name).is_none());
        for name in unknown_names.take(MAX_WARNINGS) {
            output.warn(format_args!(
                "no limiter that lives has the rule `{}`: it changes nothing until one has",
                visible(name)
            ));
        }
    }
}

/// Warns of rules whose counts cannot be packed in the limiters that live.
pub(super) fn warn_of_packed(fleet: &Fleet, old: &str, new: &str, output: &Output) {
    for conflict in packed_conflicts(fleet, old, new).iter().take(MAX_WARNINGS) {
        output.warn(visible(&conflict.message));
    }
}
