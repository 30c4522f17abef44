//! The function's own arguments: which names are bound, and how they are handed on to another function.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Attribute, FnArg, Pat, PatType, Signature, Type};

use crate::pattern::{bindings, plain_name, rebuilt};

#[derive(Clone, Copy)]
pub(crate) struct Params<'a>(&'a Signature);

impl<'a> Params<'a> {
    pub(crate) fn of(signature: &'a Signature) -> Self {
        Self(signature)
    }

    /// The argument of this name as it was declared, also one that a pattern binds.
    pub(crate) fn find(&self, name: &str) -> Option<Ident> {
        self.names().into_iter().find(|ident| ident == name)
    }

    /// Every name that is bound, `self` too.
    pub(crate) fn names(&self) -> Vec<Ident> {
        let mut names = Vec::new();
        for input in &self.0.inputs {
            match input {
                FnArg::Receiver(receiver) => names.push(Ident::from(receiver.self_token)),
                FnArg::Typed(typed) => names.extend(bindings(&typed.pat).into_iter().map(|(name, _)| name)),
            }
        }
        names
    }

    /// The arguments in order, for another function.
    pub(crate) fn handed_on(&self) -> Vec<HandedOn> {
        let hand_on = |(place, input): (usize, &FnArg)| match input {
            FnArg::Receiver(receiver) => HandedOn::Named(Vec::new(), Ident::from(receiver.self_token)),
            FnArg::Typed(typed) => {
                let conditions = typed.attrs.iter().filter(|attribute| is_condition(attribute)).cloned().collect();
                match plain_name(&typed.pat).cloned().or_else(|| renamed(place, typed)) {
                    Some(name) => HandedOn::Named(conditions, name),
                    None => HandedOn::Rebuilt(conditions, rebuilt(&typed.pat).unwrap_or_default()),
                }
            }
        };
        self.0.inputs.iter().enumerate().map(hand_on).collect()
    }
}

/// An argument of the annotated function, as another function gets it, on the conditions under which it is there.
pub(crate) enum HandedOn {
    Named(Vec<Attribute>, Ident),
    /// Put together again from what its pattern binds.
    Rebuilt(Vec<Attribute>, TokenStream),
}

/// The name that an argument gets which has none, and whose pattern does not say all of it.
///
/// Nothing that a user writes can mean it, not even by the same letters.
pub(crate) fn renamed(place: usize, argument: &PatType) -> Option<Ident> {
    if plain_name(&argument.pat).is_some() || rebuilt(&argument.pat).is_some() && !has_reference(&argument.ty) {
        return None;
    }
    let mut name = match bindings(&argument.pat).as_slice() {
        [(only, _)] if !only.to_string().starts_with('_') => only.clone(),
        _ => Ident::new(&format!("argument{place}"), Span::call_site()),
    };
    name.set_span(Span::mixed_site().located_at(name.span()));
    Some(name)
}

/// A pattern that goes through a reference binds references: from them, nothing is put together again.
fn has_reference(ty: &Type) -> bool {
    has_sign(ty.to_token_stream(), '&')
}

/// Whether the sign stands anywhere in these tokens.
pub(crate) fn has_sign(tokens: TokenStream, sign: char) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Punct(punct) => punct.as_char() == sign,
        TokenTree::Group(group) => has_sign(group.stream(), sign),
        _ => false,
    })
}

/// Whether the attribute says that an argument is not always there.
pub(crate) fn is_condition(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
}

/// Whether the name stands anywhere in these tokens, in a format string too.
pub(crate) fn mentions(tokens: impl ToTokens, name: &str) -> bool {
    tokens.to_token_stream().into_iter().any(|token| match token {
        TokenTree::Ident(ident) => ident == name,
        TokenTree::Group(group) => mentions(group.stream(), name),
        TokenTree::Literal(literal) => {
            literal.to_string().split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == name)
        }
        TokenTree::Punct(_) => false,
    })
}

/// Whether a pattern binds one of these tokens' names.
pub(crate) fn binds_any(pattern: &Pat, tokens: &TokenStream) -> bool {
    bindings(pattern).iter().any(|(name, _)| mentions(tokens, &name.to_string()))
}
