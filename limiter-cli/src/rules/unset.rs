//! `limiter rules unset`.

use toml_edit::TableLike;

use super::publication::Publication;
use super::rule_edit::{override_index, override_mut, remove_override};
use crate::arguments::UnsetArguments;
use crate::exit::Exit;
use crate::failure::Failure;

/// Removes a rule, one of its overrides, or settings of one of them.
pub(super) async fn run(arguments: &UnsetArguments, publication: &Publication<'_>) -> Result<Exit, Failure> {
    let UnsetArguments { name, keys, .. } = arguments;
    let name = &name.rule;
    let mut text = publication.text()?;
    text.expect_rule(name)?;
    let fields = fields(arguments);
    let has_keys = keys.key.is_some() || !keys.matches.is_empty();
    if !has_keys && fields.is_empty() {
        text.remove_rule(name);
        return publication.publish(&text.write()).await;
    }
    let rule = text.rule_mut(name)?;
    if has_keys && override_index(rule, keys).is_none() {
        return Err(Failure::usage(format!(
            "`--match` and `--key` must be those of an override of `{name}`, got others: `limiter rules get` shows them"
        )));
    }
    match (has_keys, fields.is_empty()) {
        (true, true) => {
            remove_override(rule, keys);
        }
        (true, false) => remove_fields(override_mut(rule, keys)?.0, &fields),
        (false, _) => remove_fields(rule, &fields),
    }
    publication.publish(&text.write()).await
}

fn fields(arguments: &UnsetArguments) -> Vec<&'static str> {
    let UnsetArguments { limit, mode, on_error, deadline, algorithm, burst, .. } = arguments;
    let all = [
        (*limit, "limit"),
        (*limit, "limits"),
        (*mode, "mode"),
        (*on_error, "on_error"),
        (*deadline, "deadline"),
        (*algorithm, "algorithm"),
        (*burst, "burst"),
    ];
    all.into_iter().filter_map(|(is_removed, field)| is_removed.then_some(field)).collect()
}

fn remove_fields(settings: &mut dyn TableLike, fields: &[&str]) {
    for field in fields {
        settings.remove(field);
    }
}
