//! A function: its signature is parsed, its body stays tokens.

use std::mem;

use proc_macro2::TokenStream;
use quote::{ToTokens, TokenStreamExt};
use syn::parse::{Parse, ParseStream};
use syn::{AttrStyle, Attribute, Ident, Pat, Signature, Token, Visibility, braced, token};

use super::boxed_future::BoxedFuture;
use crate::output;

pub(crate) struct Function {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) visibility: Visibility,
    pub(crate) signature: Signature,
    pub(crate) braces: token::Brace,
    /// The limited tokens: the body, or the block of the future that it makes.
    pub(crate) body: TokenStream,
    /// The code around that block, in a function that makes its future by hand.
    future: Option<BoxedFuture>,
}

impl Function {
    /// Returns whether the body can await.
    pub(crate) fn is_async(&self) -> bool {
        self.signature.asyncness.is_some() || self.future.is_some()
    }

    /// Returns whether the function makes its future by hand, as `#[async_trait]` does.
    pub(crate) fn makes_its_future(&self) -> bool {
        self.future.is_some()
    }

    /// Returns the arguments that are destructured only inside the future.
    pub(crate) fn patterns(&self) -> &[(Ident, Pat)] {
        self.future.as_ref().map_or(&[], BoxedFuture::patterns)
    }

    pub(crate) fn unchanged(mut self) -> TokenStream {
        let body = mem::take(&mut self.body);
        self.with_body(body)
    }

    /// Returns this function with another body.
    pub(crate) fn with_body(self, body: TokenStream) -> TokenStream {
        let body = match self.future {
            Some(future) => future.with_block(body),
            None => body,
        };
        let mut output = TokenStream::new();
        output.append_all(&self.attributes);
        self.visibility.to_tokens(&mut output);
        self.signature.to_tokens(&mut output);
        self.braces.surround(&mut output, |inner| inner.extend(body));
        output
    }
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut attributes = input.call(Attribute::parse_outer)?;
        let visibility = input.parse()?;
        let signature: Signature = input.parse()?;
        if input.peek(Token![;]) {
            let message = "a function without a body has nothing to limit: annotate the methods of the impls";
            return Err(syn::Error::new(signature.fn_token.span, message));
        }
        let content;
        let braces = braced!(content in input);
        // Inner attributes must come first in a body, where the decision will be. As outer ones they mean the same.
        attributes.extend(content.call(Attribute::parse_inner)?.into_iter().map(|mut attribute| {
            attribute.style = AttrStyle::Outer;
            attribute
        }));
        let mut body: TokenStream = content.parse()?;
        let mut future = None;
        if output::future_type(&signature).is_some()
            && let Some((made, block)) = BoxedFuture::parse(&body)
        {
            (future, body) = (Some(made), block);
        }
        Ok(Self { attributes, visibility, signature, braces, body, future })
    }
}
