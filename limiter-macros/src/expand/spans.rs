//! Where generated tokens point, and whose names they can see.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};

use crate::pattern::used;

/// A variable that only generated code can name; nor is there a constant of its name, which a `let` would compare with.
pub(super) fn local(name: &str) -> Ident {
    Ident::new(&format!("__{name}"), Span::mixed_site())
}

/// The generated `tokens`, for rustc to point at `place` from its first token to its last: a path as a whole, and a
/// single token, such as a call's arguments, at the path's last name. Groups keep what is in them.
pub(super) fn over(place: &impl ToTokens, tokens: TokenStream) -> TokenStream {
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

/// `&(value)`, for rustc to point at the value.
pub(super) fn borrowed(value: &impl ToTokens) -> TokenStream {
    over(value, quote!(&(#value)))
}

/// The variable, for rustc to point at `place`. It keeps its own mark, which tells where it comes from.
pub(super) fn passed(variable: &Ident, place: &impl ToTokens) -> TokenStream {
    over(place, used(variable).to_token_stream())
}
