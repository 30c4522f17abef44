//! An `impl` block: its methods are parsed, the rest stays tokens.

use proc_macro2::{TokenStream, TokenTree};
use quote::{ToTokens, TokenStreamExt};
use syn::parse::discouraged::Speculative;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, ImplItem, Token, braced, token};

use super::{Function, is_rule};
use crate::params::mentions;

pub(crate) struct ImplBlock {
    pub(crate) attributes: Vec<Attribute>,
    /// The tokens before the braces.
    header: TokenStream,
    pub(crate) impl_token: Token![impl],
    braces: token::Brace,
    members: Vec<Member>,
}

enum Member {
    /// A method that the block's attribute limits.
    Limited(Box<Function>),
    /// Any other member: a method with an attribute of its own, an exempt method, or an item that is no method.
    Other(TokenStream),
}

impl ImplBlock {
    /// Returns the methods that the block's attribute limits.
    pub(crate) fn limited_methods(&self) -> Vec<&Function> {
        let mut limited = Vec::new();
        for member in &self.members {
            if let Member::Limited(function) = member {
                limited.push(&**function);
            }
        }
        limited
    }

    /// Returns this block with other tokens for each of those methods.
    pub(crate) fn map_limited(self, mut expand: impl FnMut(Function) -> TokenStream) -> TokenStream {
        let mut output = TokenStream::new();
        output.append_all(&self.attributes);
        output.extend(self.header);
        self.braces.surround(&mut output, |inner| {
            for member in self.members {
                inner.extend(match member {
                    Member::Limited(function) => expand(*function),
                    Member::Other(tokens) => tokens,
                });
            }
        });
        output
    }
}

impl Parse for ImplBlock {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let attributes = input.call(Attribute::parse_outer)?;
        let mut header = TokenStream::new();
        if let Some(unsafety) = input.parse::<Option<Token![unsafe]>>()? {
            unsafety.to_tokens(&mut header);
        }
        let impl_token: Token![impl] = input.parse()?;
        impl_token.to_tokens(&mut header);
        // The header may contain braces too, as in `[u8; { N + 1 }]`. The block's own braces are the last.
        while !is_last(input) {
            header.append(input.parse::<TokenTree>()?);
        }
        let content;
        let braces = braced!(content in input);
        let mut members = Vec::new();
        for attribute in content.call(Attribute::parse_inner)? {
            members.push(Member::Other(attribute.to_token_stream()));
        }
        while !content.is_empty() {
            members.push(content.parse()?);
        }
        Ok(Self { attributes, header, impl_token, braces, members })
    }
}

fn is_last(input: ParseStream<'_>) -> bool {
    let ahead = input.fork();
    ahead.parse::<TokenTree>().is_ok() && ahead.is_empty()
}

impl Parse for Member {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let ahead = input.fork();
        let Ok(mut function) = ahead.parse::<Function>() else {
            return input.parse::<ImplItem>().map(|other| Self::Other(other.into_token_stream()));
        };
        if let Some(hidden) = function.attributes.iter().find(|attribute| is_hidden_rule(attribute)) {
            let message = "under `cfg_attr` a method's own `rate_limited` comes too late for that of its `impl` block: \
                 write the method twice under `#[cfg]`, or annotate the methods one by one";
            return Err(syn::Error::new_spanned(hidden, message));
        }
        input.advance_to(&ahead);
        let own = function.attributes.iter().filter(|attribute| is_rule(attribute)).count();
        if own == 0 {
            return Ok(Self::Limited(Box::new(function)));
        }
        if own == 1 {
            function.attributes.retain(|attribute| !is_skip(attribute));
        }
        Ok(Self::Other(function.unchanged()))
    }
}

/// Returns whether it is `#[cfg_attr(…, rate_limited(…))]`, which the compiler resolves after the block's attribute.
fn is_hidden_rule(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg_attr") && mentions(&attribute.meta, "rate_limited")
}

/// Returns whether it is `#[rate_limited(skip)]`.
pub(super) fn is_skip(attribute: &Attribute) -> bool {
    is_rule(attribute) && attribute.meta.require_list().is_ok_and(|list| list.tokens.to_string() == crate::names::SKIP)
}
