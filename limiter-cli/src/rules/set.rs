//! `limiter rules set`.

use toml_edit::TableLike;

use super::publication::Publication;
use super::rule_edit::{override_mut, remove_replaced, set_field, set_limits};
use super::{idle_overrides, live_names, validity};
use crate::arguments::{KeysArguments, SetArguments};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::visible;
use crate::suggestion;
use limiter_inspect::is_other_case;

/// Checks a command line without the store.
pub(super) fn check(arguments: &SetArguments) -> Result<(), Failure> {
    let SetArguments { limits, mode, on_error, deadline, algorithm, burst, .. } = arguments;
    let has_setting = !limits.is_empty()
        || mode.is_some()
        || on_error.is_some()
        || deadline.is_some()
        || algorithm.is_some()
        || burst.is_some();
    if !has_setting {
        return Err(Failure::usage(
            "`rules set` must have a setting, got none: write a limit such as `50/10s`, or an option such as `--mode shadow`",
        ));
    }
    Ok(())
}

/// Changes the settings of a rule or of one of its overrides.
pub(super) async fn run(arguments: &SetArguments, publication: &Publication<'_>) -> Result<Exit, Failure> {
    let name = &arguments.name.rule;
    let mut text = publication.text()?;
    let is_new = text.rule(name).is_none();
    let similar = text.similar_rule(name).filter(|_| is_new);
    let note = match &similar {
        Some(similar) => format!("`{}` is a new rule: did you mean `{similar}`?", visible(name)),
        None => format!("`{}` is a new rule", visible(name)),
    };
    // A mistyped name would leave the limit as it is.
    let is_other_case = similar.is_some_and(|similar| is_other_case(similar, name));
    let risk = is_other_case.then_some("adds a rule whose name differs from another one only in case or punctuation");
    let stated = text.rule(name).and_then(|rule| rule.get("key")?.as_str());
    if let Some(fleet) = &publication.fleet {
        live_names::check(fleet, name, &arguments.keys, is_new, arguments.force, publication.output)?;
    }
    check_parts(stated.unwrap_or(name), &arguments.keys)?;
    for (part, value) in &arguments.keys.matches {
        if let Some(warning) = idle_overrides::value_warning(name, stated, part, value) {
            publication.output.warn(warning);
        }
    }
    let rule = text.rule_mut(name)?;
    let has_keys = arguments.keys.key.is_some() || !arguments.keys.matches.is_empty();
    let (warning, is_new_override) = if has_keys {
        let (of_override, is_new) = override_mut(rule, &arguments.keys)?;
        set(of_override, arguments);
        (validity::warning(name, of_override), is_new)
    } else {
        set(rule, arguments);
        (validity::warning(name, rule), false)
    };
    if let Some(warning) = warning {
        publication.output.warn(warning);
    }
    if is_new && has_keys {
        text.hide_empty(name);
    }
    if is_new {
        publication.output.note(note);
    } else if is_new_override {
        publication.output.note(format_args!("the override of `{}` is new", visible(name)));
    }
    publication.publish_after(&text.write(), risk).await
}

/// Checks that a key such as `user:{id}` has the parts that an override names.
fn check_parts(key: &str, keys: &KeysArguments) -> Result<(), Failure> {
    let mut names: Vec<_> = keys.matches.iter().map(|(name, _)| name).collect();
    names.sort();
    if let Some(twice) = names.windows(2).find(|names| names[0] == names[1]) {
        return Err(Failure::usage(format!(
            "`--match` must name each part once, got `{}` twice: remove one",
            twice[0]
        )));
    }
    // A part may omit its format spec: `{id:08}` is `id`.
    let whole = key.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(part, _)| part);
    let parts: Vec<&str> = whole.flat_map(|part| [part, part.split(':').next().unwrap_or(part)]).collect();
    let Some((wrong, _)) = keys.matches.iter().find(|(name, _)| !parts.contains(&&**name)) else { return Ok(()) };
    // The name of a rule need not be its key.
    let Some(first) = parts.first() else { return Ok(()) };
    let part = suggestion::nearest(wrong, parts.iter().copied()).unwrap_or(first);
    Err(Failure::usage(format!("`--match` must name parts of `{key}`, got `{wrong}`: write `{part}`")))
}

fn set(settings: &mut dyn TableLike, arguments: &SetArguments) {
    let SetArguments { limits, mode, on_error, deadline, algorithm, burst, .. } = arguments;
    set_limits(settings, limits);
    remove_replaced(settings, algorithm.map(|algorithm| algorithm.name()), burst.is_some());
    let words = [
        ("algorithm", algorithm.map(|algorithm| algorithm.name())),
        ("mode", mode.map(|mode| mode.name())),
        ("on_error", on_error.map(|policy| policy.name())),
    ];
    for (field, word) in words {
        if let Some(word) = word {
            set_field(settings, field, word);
        }
    }
    if let Some(burst) = burst {
        set_field(settings, "burst", i64::from(*burst));
    }
    if let Some(deadline) = deadline {
        let millis = deadline.as_millis();
        let text = if millis > 0 && millis % 1000 == 0 { format!("{}s", millis / 1000) } else { format!("{millis}ms") };
        set_field(settings, "deadline", text);
    }
}
