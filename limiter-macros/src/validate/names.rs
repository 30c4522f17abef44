//! On an `impl` block: names of arguments that some methods have and others have not.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::Expr;

use super::Subject;
use crate::args::{Args, Written};
use crate::errors::Errors;
use crate::names::Argument;
use crate::params::Params;
use crate::template::{self, Piece};
use crate::value::string;

/// Only what another method calls an argument is taken for one: the rest may be anything, which rustc knows better.
pub(super) fn check(subject: &Subject<'_>, errors: &mut Errors) {
    if !subject.is_method_of_block() {
        return;
    }
    let known = Params::of(subject.signature()).names();
    let elsewhere = subject.methods.iter().flat_map(|method| Params::of(&method.signature).names());
    let mut missing: Vec<Ident> = elsewhere.filter(|name| !known.contains(name)).collect();
    missing.sort();
    missing.dedup();
    for written in subject.rules.iter().flat_map(Args::values) {
        for name in &missing {
            if let Some(place) = used(written, name) {
                let (argument, function) = (written.argument.name(), &subject.signature().ident);
                errors.at(
                    place,
                    format!(
                        "`{name}` in `{argument}` is no argument of `fn {function}`: give that method an attribute of its \
                         own, or exempt it by `#[rate_limited(skip)]`"
                    ),
                );
            }
        }
    }
}

/// Where the argument's value uses the name as a variable.
fn used(written: &Written, name: &Ident) -> Option<TokenStream> {
    match string(&written.value) {
        Some(text) if written.argument == Argument::Key => {
            let pieces = template::parse(&text.value()).ok()?;
            let uses = |piece: &Piece| match piece {
                Piece::Text(_) => false,
                Piece::Value { expression, .. } => {
                    expression.parse().is_ok_and(|tokens| variable(tokens, name).is_some())
                }
            };
            pieces.iter().any(uses).then(|| text.to_token_stream())
        }
        Some(_) => None,
        // What a closure or a block binds by itself is not told apart.
        None if matches!(written.value, Expr::Closure(_) | Expr::Block(_) | Expr::Match(_)) => None,
        None => variable(written.value.to_token_stream(), name).map(ToTokens::into_token_stream),
    }
}

/// The name where it stands for a value: not for a field, a method, a function, a macro or a part of a path.
fn variable(tokens: TokenStream, name: &Ident) -> Option<Ident> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (place, token) in tokens.iter().enumerate() {
        let before = place.checked_sub(1).and_then(|place| tokens.get(place));
        match token {
            TokenTree::Group(group) => {
                if let Some(found) = variable(group.stream(), name) {
                    return Some(found);
                }
            }
            TokenTree::Ident(ident)
                if ident == name
                    && !is_sign(before, ".:")
                    && !continues(tokens.get(place + 1), tokens.get(place + 2)) =>
            {
                return Some(ident.clone());
            }
            _ => {}
        }
    }
    None
}

fn is_sign(token: Option<&TokenTree>, signs: &str) -> bool {
    matches!(token, Some(TokenTree::Punct(sign)) if signs.contains(sign.as_char()))
}

/// Whether what follows a name makes it something else than a variable.
fn continues(next: Option<&TokenTree>, second: Option<&TokenTree>) -> bool {
    match next {
        Some(TokenTree::Group(_)) => true,
        Some(TokenTree::Punct(sign)) if sign.as_char() == '!' => !is_sign(second, "="),
        next => is_sign(next, ":"),
    }
}
