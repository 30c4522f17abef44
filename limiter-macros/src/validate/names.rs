//! Names of arguments that only some methods of an `impl` block have.

use limiter_syntax::Piece;
use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::Expr;

use super::Subject;
use crate::args::{Args, Written};
use crate::errors::Errors;
use crate::names::Argument;
use crate::params::Params;
use crate::template;
use crate::value::string;

/// Reports uses of a name that is an argument of another method only. All other names are left to rustc.
pub(super) fn check(subject: &Subject<'_>, errors: &mut Errors) {
    if !subject.is_method_of_block() {
        return;
    }
    let known = Params::new(subject.signature()).names();
    let elsewhere = subject.methods.iter().flat_map(|method| Params::new(&method.signature).names());
    let mut missing: Vec<Ident> = elsewhere.filter(|name| !known.contains(name)).collect();
    missing.sort();
    missing.dedup();
    for written in subject.rules.iter().flat_map(Args::values) {
        for name in &missing {
            if let Some(place) = find_use(written, name) {
                let (argument, function) = (written.argument.name(), &subject.signature().ident);
                errors.push_at(
                    place,
                    format!(
                        "`{name}` in `{argument}` is no argument of `fn {function}`: give that method an attribute of \
                         its own, or exempt it by `#[rate_limited(skip)]`"
                    ),
                );
            }
        }
    }
}

/// Returns the tokens in which the argument's value uses the name as a variable.
fn find_use(written: &Written, name: &Ident) -> Option<TokenStream> {
    match string(&written.value) {
        Some(text) if written.argument == Argument::Key => {
            let template = text.value();
            let uses = |piece: &Piece<'_>| match piece {
                Piece::Text(_) => false,
                Piece::Value { expression, .. } => {
                    expression.parse().is_ok_and(|tokens| find_variable(tokens, name).is_some())
                }
            };
            template::parse(&template).ok()?.iter().any(uses).then(|| text.to_token_stream())
        }
        Some(_) => None,
        // A closure or a block may bind the name itself, which is not analysed.
        None if matches!(written.value, Expr::Closure(_) | Expr::Block(_) | Expr::Match(_)) => None,
        None => find_variable(written.value.to_token_stream(), name).map(ToTokens::into_token_stream),
    }
}

/// Returns the name where it is a variable, not a field, a method, a function, a macro or a part of a path.
fn find_variable(tokens: TokenStream, name: &Ident) -> Option<Ident> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (place, token) in tokens.iter().enumerate() {
        let before = place.checked_sub(1).and_then(|place| tokens.get(place));
        match token {
            TokenTree::Group(group) => {
                if let Some(found) = find_variable(group.stream(), name) {
                    return Some(found);
                }
            }
            TokenTree::Ident(ident)
                if ident == name
                    && !is_sign(before, ".:")
                    && !is_no_variable(tokens.get(place + 1), tokens.get(place + 2)) =>
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

/// Returns whether the next tokens make a name something other than a variable.
fn is_no_variable(next: Option<&TokenTree>, second: Option<&TokenTree>) -> bool {
    match next {
        Some(TokenTree::Group(_)) => true,
        Some(TokenTree::Punct(sign)) if sign.as_char() == '!' => !is_sign(second, "="),
        next => is_sign(next, ":"),
    }
}
