//! The parts that an override names, compared with those of the rule's template.

use std::borrow::Cow;
use std::mem::replace;

use limiter_syntax::nearest;

use super::methods::method_problem;
use super::networks::address_problem;
use super::part_value::PartValue;
use crate::key::{KeyTemplate, MAX_OUTLINE_PARTS, PartKind, TemplatePart};

/// The most combinations of values that the overrides of a rule have: each takes an entry in a table.
pub(super) const MAX_COMBINATIONS: usize = 200_000;

/// A name in an override: its positions in the template, and the values of which one must be there.
pub(super) struct NamedPart {
    pub(super) positions: Vec<usize>,
    pub(super) values: Vec<PartValue>,
}

/// Returns the parts that an override names.
pub(super) fn named_parts<'a>(
    template: &KeyTemplate,
    parts: &'a [(String, Vec<String>)],
) -> Result<Vec<NamedPart>, OverrideProblem<'a>> {
    if template.parts.len() > MAX_OUTLINE_PARTS {
        return Err(OverrideProblem::ManyParts);
    }
    if parts.is_empty() {
        return Err(OverrideProblem::NoParts);
    }
    let mut is_named = vec![false; template.parts.len()];
    let mut named = Vec::with_capacity(parts.len());
    for (name, texts) in parts {
        let positions = positions_of(template, name);
        if positions.is_empty() {
            return Err(OverrideProblem::UnknownPart { name, names: template.parts.iter().map(full_name).collect() });
        }
        if positions.iter().any(|position| replace(&mut is_named[*position], true)) {
            return Err(OverrideProblem::DoubledPart(name));
        }
        let kinds = || positions.iter().map(|position| template.parts[*position].kind);
        let value = |text: &String| match kinds().find_map(|kind| value_problem(kind, name, text)) {
            Some(problem) => Err(OverrideProblem::Value(problem)),
            None => PartValue::parse(name, text).map_err(OverrideProblem::Value),
        };
        named.push(NamedPart { values: texts.iter().map(value).collect::<Result<_, _>>()?, positions });
    }
    Ok(named)
}

/// Returns the message for a value that no key has in a part of this kind.
fn value_problem(kind: PartKind, name: &str, value: &str) -> Option<String> {
    match kind {
        PartKind::Any => None,
        PartKind::Addresses(prefixes) => address_problem(name, value, prefixes),
        PartKind::Methods => method_problem(value),
    }
}

/// Returns the positions of the parts with a name: the text between the braces, or else the only expression that is
/// equal to the name.
fn positions_of(template: &KeyTemplate, name: &str) -> Vec<usize> {
    let having = |is_named: &dyn Fn(&TemplatePart) -> bool| -> Vec<usize> {
        (0..template.parts.len()).filter(|position| is_named(&template.parts[*position])).collect()
    };
    let by_full_name = having(&|part| full_name(part) == name);
    if !by_full_name.is_empty() {
        return by_full_name;
    }
    let by_expression = having(&|part| part.expression == name);
    let is_one_name = by_expression.windows(2).all(|pair| template.parts[pair[0]] == template.parts[pair[1]]);
    if is_one_name { by_expression } else { Vec::new() }
}

/// The template as users write it, without the kinds of its parts.
pub(crate) fn without_kinds(template: &str) -> Cow<'_, str> {
    let has_kinds = |parsed: &KeyTemplate| parsed.parts.iter().any(|part| part.kind != PartKind::Any);
    let Some(parsed) = KeyTemplate::parse(template).filter(has_kinds) else { return Cow::Borrowed(template) };
    let mut texts = parsed.texts.iter().map(|text| text.replace('{', "{{").replace('}', "}}"));
    let first = texts.next().unwrap_or_default();
    let rest = parsed.parts.iter().zip(texts).map(|(part, text)| format!("{{{}}}{text}", full_name(part)));
    Cow::Owned(rest.fold(first, |template, part| template + &part))
}

/// The text between the braces of a part.
fn full_name(part: &TemplatePart) -> String {
    match &part.spec {
        None => part.expression.clone(),
        Some(spec) => format!("{}:{spec}", part.expression),
    }
}

/// The reason why an override cannot be in the index.
pub(super) enum OverrideProblem<'a> {
    NoTemplate,
    ManyParts,
    NoParts,
    UnknownPart {
        name: &'a str,
        names: Vec<String>,
    },
    DoubledPart(&'a str),
    ManyCombinations,
    /// No key has the value: the message.
    Value(String),
    HashedKey,
    Equal {
        earlier: u32,
        index: usize,
    },
}

/// Returns the message for an override that cannot be in the index. It has no values, which may be personal data.
pub(super) fn override_problem(template: Option<&str>, problem: &OverrideProblem<'_>) -> String {
    match problem {
        OverrideProblem::NoTemplate => {
            "`match` must be used with a key that is a template such as `user:{user_id}`, got a rule whose key is \
             an expression: use `key` in its place"
                .to_owned()
        }
        OverrideProblem::ManyParts => {
            format!(
                "`match` must be used with a key of at most {MAX_OUTLINE_PARTS} parts, got more: use `key` in its \
                 place"
            )
        }
        OverrideProblem::NoParts => {
            "`match` must name at least one part, got none: write the settings into the rule itself".to_owned()
        }
        OverrideProblem::UnknownPart { name, names } => {
            let template = template.map(without_kinds).unwrap_or_default();
            let list = names.join("`, `");
            match nearest(name, names.iter().map(String::as_str)) {
                Some(nearest) => {
                    let nearest = toml_name(nearest);
                    format!("`match` must name parts of the key `{template}`, got `{name}`: write `{nearest}`")
                }
                None if names.is_empty() => {
                    format!("`match` must be left out for `{template}`, a key without parts: use `key` in its place")
                }
                None => {
                    format!("`match` must name parts of the key `{template}`, got `{name}`: write one of `{list}`")
                }
            }
        }
        OverrideProblem::DoubledPart(name) => {
            format!("`match` must name each part once, got `{name}` twice: remove one")
        }
        OverrideProblem::ManyCombinations => format!(
            "`match` must have lists with at most {MAX_COMBINATIONS} combinations in all overrides of a rule, got more: \
             write shorter lists, or a list for one part alone"
        ),
        OverrideProblem::Value(message) => message.clone(),
        OverrideProblem::HashedKey => {
            "`key` of an override must be a plain key or its SHA-256 digest, got a digest of `hash_keys`: write \
             the key itself"
                .to_owned()
        }
        OverrideProblem::Equal { earlier, index } => {
            let (first, second) = (u64::from(*earlier) + 1, index + 1);
            format!(
                "`override` must match other keys than those before it, got number {second} that matches the same \
                 keys as number {first}: remove one"
            )
        }
    }
}

/// Returns the name of a part as a key of a table: in quotes, if it has a dot as in `user.id`.
fn toml_name(part: &str) -> String {
    let is_bare = part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
    if is_bare { part.to_owned() } else { format!("\"{part}\"") }
}
