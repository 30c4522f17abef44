//! `key` and `name`: the key that calls share, and the name of the rule.

use limiter_syntax::Piece;
use syn::{Expr, ExprPath, Ident, LitStr};

use crate::args::Args;
use crate::errors::Errors;
use crate::names::Argument;
use crate::params::Params;
use crate::plan::{Captured, Key, Part};
use crate::template;
use crate::value::{bare_name, string};

/// Returns the rule's name: as given, or the key's text as written.
pub(super) fn name(args: &Args, errors: &mut Errors) -> Option<LitStr> {
    let key = args.value(Argument::Key);
    match (args.value(Argument::Name), key) {
        (Some(name), _) => match string(name) {
            Some(text) if text.value().contains(['{', '}']) => errors.push_at(
                name,
                format!(
                    "`name` is the rule's, so it has no `{{` and no `}}`, got `{:?}`: write one such as \
                     `\"get-user\"`, and values in `key`",
                    text.value()
                ),
            ),
            Some(text) if !text.value().is_empty() => return Some(text.clone()),
            _ => errors.push_at(name, "`name` must be a string that is not empty, such as `\"get-user\"`"),
        },
        (None, Some(key)) => match string(key) {
            Some(text) => return Some(text.clone()),
            None => errors.push_at(key, "a `key` that is no string leaves the rule without a name: add `name = \"…\"`"),
        },
        // The missing key is reported once, by `key`.
        (None, None) => {}
    }
    None
}

pub(super) fn key(args: &Args, params: Params<'_>, errors: &mut Errors) -> Option<Key> {
    let Some(key) = args.value(Argument::Key) else {
        if !args.any_unreadable(&[Argument::Key]) {
            let message = "`key` is missing: name what is counted together, such as `key = \"getId\"` or \
                           `key = \"user:{user_id}\"`";
            args.report_missing(message, errors);
        }
        return None;
    };
    match string(key) {
        Some(text) => errors.take(template(text, params)).map(Key::Template),
        None => Some(Key::Value(key.clone())),
    }
}

fn template(text: &LitStr, params: Params<'_>) -> syn::Result<Vec<Part>> {
    let template = text.value();
    if template.is_empty() {
        let message = "`key` is empty: name what is counted together, such as `\"getId\"` or `\"user:{user_id}\"`";
        return Err(syn::Error::new(text.span(), message));
    }
    let pieces = template::parse(&template).map_err(|problem| syn::Error::new(text.span(), problem))?;
    let part = |(place, piece): (usize, &Piece<'_>)| match piece {
        Piece::Text(static_text) => Ok(Part::Text(LitStr::new(static_text, text.span()))),
        Piece::Value { expression, spec } => {
            let value = expression_in(text, expression)?;
            let argument = bare_name(&value).and_then(|name| argument(name, text, params));
            let is_constant = argument.is_none() && bare_name(&value).is_some();
            let value = argument.unwrap_or(value);
            Ok(match spec {
                Some(spec) => Part::Formatted(LitStr::new(&format!("{{:{spec}}}"), text.span()), value),
                None if is_constant => captured(text, &pieces, place).map_or(Part::Value(value), Part::Captured),
                None => Part::Value(value),
            })
        }
    };
    pieces.iter().enumerate().map(part).collect()
}

fn expression_in(text: &LitStr, expression: &str) -> syn::Result<Expr> {
    LitStr::new(expression, text.span()).parse().map_err(|error| {
        let message =
            format!("`{{{expression}}}` in `key` cannot be read ({error}): write a value, as in `{{user_id}}`");
        syn::Error::new(text.span(), message)
    })
}

/// Returns the function's argument of this name, with a span for which errors point at the string.
fn argument(name: &Ident, text: &LitStr, params: Params<'_>) -> Option<Expr> {
    let mut argument = params.find(&name.to_string())?;
    argument.set_span(argument.span().located_at(text.span()));
    Some(Expr::Path(ExprPath { attrs: Vec::new(), qself: None, path: argument.into() }))
}

/// Returns the name at `place`, if `format!` could capture all names of the template and each of them occurs once.
fn captured(text: &LitStr, pieces: &[Piece<'_>], place: usize) -> Option<Captured> {
    let mut captured = Captured { template: text.clone(), others: Vec::new(), text_before: 0, text_after: 0 };
    let mut names: Vec<&str> = Vec::new();
    for (index, piece) in pieces.iter().enumerate() {
        match piece {
            Piece::Text(static_text) if index < place => captured.text_before += static_text.len(),
            Piece::Text(static_text) => captured.text_after += static_text.len(),
            Piece::Value { expression, spec: None } if !names.contains(expression) => {
                let name: Ident = syn::parse_str(expression).ok().filter(|_| !expression.starts_with("r#"))?;
                names.push(expression);
                if index != place {
                    captured.others.push(Ident::new(&name.to_string(), text.span()));
                }
            }
            Piece::Value { .. } => return None,
        }
    }
    Some(captured)
}
