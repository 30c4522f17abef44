//! The spans of generated tokens: the place to which errors point, and the names that the tokens can see.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};

use crate::pattern::as_used;

/// Returns a variable that only generated code can name. No constant has its name, which a `let` would match against.
pub(super) fn local(name: &str) -> Ident {
    Ident::new(&format!("__{name}"), Span::mixed_site())
}

/// Returns the generated `tokens` with spans for which rustc points at `place`, from its first token to its last. A
/// single token, such as a call's arguments, points at the last name of a path. The contents of groups keep their
/// spans.
pub(super) fn point_at(place: &impl ToTokens, tokens: TokenStream) -> TokenStream {
    let mut spans = place.to_token_stream().into_iter().map(|token| token.span());
    let first = spans.next().unwrap_or_else(Span::call_site);
    let last = spans.last().unwrap_or(first);
    let mut tokens: Vec<TokenTree> = tokens.into_iter().collect();
    if let [start, end @ ..] = tokens.as_mut_slice() {
        start.set_span(start.span().located_at(if end.is_empty() { last } else { first }));
        end.iter_mut().for_each(|token| token.set_span(token.span().located_at(last)));
    }
    tokens.into_iter().collect()
}

/// Returns `&(value)`, with spans for which rustc points at the value.
pub(super) fn borrowed(value: &impl ToTokens) -> TokenStream {
    point_at(value, quote!(&(#value)))
}

/// Returns the variable with a span for which rustc points at `place`. It keeps its hygiene, which resolves it.
pub(super) fn passed(variable: &Ident, place: &impl ToTokens) -> TokenStream {
    point_at(place, as_used(variable).to_token_stream())
}
