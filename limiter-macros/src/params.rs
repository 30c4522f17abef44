//! The function's own arguments: which names are bound, and how they are passed on to another function.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{FnArg, Pat, Signature};

use crate::errors::Errors;

pub(crate) struct Params<'a>(&'a Signature);

impl<'a> Params<'a> {
    pub(crate) fn of(signature: &'a Signature) -> Self {
        Self(signature)
    }

    /// The argument of this name as it was declared, also one that a pattern binds.
    ///
    /// By its tokens: a pattern's constructor counts too, which is no name anybody gives to a value.
    pub(crate) fn find(&self, name: &str) -> Option<Ident> {
        self.0.inputs.iter().find_map(|input| match input {
            FnArg::Receiver(receiver) => Some(Ident::from(receiver.self_token)).filter(|ident| ident == name),
            FnArg::Typed(typed) => find_ident(typed.pat.to_token_stream(), name),
        })
    }

    /// The arguments in order, to be passed on to another function.
    ///
    /// # Errors
    /// At each argument that has no name of its own.
    pub(crate) fn passed_on(&self) -> syn::Result<Vec<Ident>> {
        let mut errors = Errors::default();
        let mut names = Vec::new();
        for input in &self.0.inputs {
            match input {
                FnArg::Receiver(receiver) => names.push(Ident::from(receiver.self_token)),
                FnArg::Typed(typed) => match plain_name(&typed.pat) {
                    Some(name) if typed.attrs.is_empty() => names.push(name.clone()),
                    Some(_) => errors.at(typed, CONDITIONAL),
                    None => errors.at(&typed.pat, NAMELESS),
                },
            }
        }
        if errors.is_empty() { Ok(names) } else { Err(errors.into_error()) }
    }
}

const NAMELESS: &str = "an argument without a name of its own cannot be passed on to `fallback`: name it, or write \
                        `fallback = |denied| …`";
const CONDITIONAL: &str =
    "an argument with an attribute cannot be passed on to `fallback`: write `fallback = |denied| …`";

fn plain_name(pattern: &Pat) -> Option<&Ident> {
    match pattern {
        Pat::Ident(name) if name.by_ref.is_none() && name.subpat.is_none() => Some(&name.ident),
        _ => None,
    }
}

/// Whether the name stands anywhere in these tokens, in a format string too.
pub(crate) fn mentions(tokens: impl ToTokens, name: &str) -> bool {
    tokens.to_token_stream().into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == name,
        TokenTree::Group(group) => mentions(group.stream(), name),
        TokenTree::Literal(literal) => literal.to_string().contains(name),
        TokenTree::Punct(_) => false,
    })
}

fn find_ident(tokens: TokenStream, name: &str) -> Option<Ident> {
    tokens.into_iter().find_map(|token| match token {
        TokenTree::Ident(ident) => Some(ident).filter(|ident| ident == name),
        TokenTree::Group(group) => find_ident(group.stream(), name),
        _ => None,
    })
}
