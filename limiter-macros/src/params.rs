//! The function's own arguments: the names that they bind, and the expressions that forward them to another function.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Attribute, FnArg, Pat, PatType, Signature, Type};

use crate::pattern::{bindings, plain_name, rebuilt};

#[derive(Clone, Copy)]
pub(crate) struct Params<'a>(&'a Signature);

impl<'a> Params<'a> {
    pub(crate) fn new(signature: &'a Signature) -> Self {
        Self(signature)
    }

    /// Returns the argument of this name as it was declared, including one that a pattern binds.
    pub(crate) fn find(&self, name: &str) -> Option<Ident> {
        self.names().into_iter().find(|ident| ident == name)
    }

    /// Returns every bound name, including `self`.
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

    /// Returns the arguments in order, as another function gets them.
    pub(crate) fn forwarded(&self) -> Vec<ForwardedArgument> {
        let forward = |(place, input): (usize, &FnArg)| match input {
            FnArg::Receiver(receiver) => ForwardedArgument::Named(Vec::new(), Ident::from(receiver.self_token)),
            FnArg::Typed(typed) => {
                let conditions = typed.attrs.iter().filter(|attribute| is_condition(attribute)).cloned().collect();
                match plain_name(&typed.pat).cloned().or_else(|| renamed(place, typed)) {
                    Some(name) => ForwardedArgument::Named(conditions, name),
                    None => ForwardedArgument::Rebuilt(conditions, rebuilt(&typed.pat).unwrap_or_default()),
                }
            }
        };
        self.0.inputs.iter().enumerate().map(forward).collect()
    }
}

/// An argument of the annotated function as another function gets it, with the `cfg` attributes that it depends on.
pub(crate) enum ForwardedArgument {
    Named(Vec<Attribute>, Ident),
    /// An argument that is rebuilt from the variables of its pattern.
    Rebuilt(Vec<Attribute>, TokenStream),
}

/// Returns a new name for an argument that is no plain name and cannot be rebuilt from its pattern.
///
/// The name has the attribute's hygiene, so the user's code cannot refer to it, even with equal spelling.
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

/// Returns whether the type has a reference. Its pattern then binds references, from which it cannot be rebuilt.
fn has_reference(ty: &Type) -> bool {
    has_sign(ty.to_token_stream(), '&')
}

/// Returns whether these tokens contain the sign.
pub(crate) fn has_sign(tokens: TokenStream, sign: char) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Punct(punct) => punct.as_char() == sign,
        TokenTree::Group(group) => has_sign(group.stream(), sign),
        _ => false,
    })
}

/// Returns whether the attribute makes an argument conditional.
pub(crate) fn is_condition(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
}

/// Returns whether these tokens contain the name, also inside a format string.
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

/// Returns whether a pattern binds one of these tokens' names.
pub(crate) fn binds_any(pattern: &Pat, tokens: &TokenStream) -> bool {
    bindings(pattern).iter().any(|(name, _)| mentions(tokens, &name.to_string()))
}
