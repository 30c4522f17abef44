//! A function: its signature is understood, its body stays tokens.

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
    /// What is limited: the body, or what runs in the future that it makes.
    pub(crate) body: TokenStream,
    /// What is around that, in a function that makes its future by hand.
    future: Option<BoxedFuture>,
}

impl Function {
    /// Whether the body can await.
    pub(crate) fn is_async(&self) -> bool {
        self.signature.asyncness.is_some() || self.future.is_some()
    }

    /// Whether the future is made by hand, as `#[async_trait]` does it.
    pub(crate) fn makes_its_future(&self) -> bool {
        self.future.is_some()
    }

    /// Arguments that are taken apart only where the future runs.
    pub(crate) fn patterns(&self) -> &[(Ident, Pat)] {
        self.future.as_ref().map_or(&[], BoxedFuture::patterns)
    }

    pub(crate) fn unchanged(mut self) -> TokenStream {
        let body = mem::take(&mut self.body);
        self.with_body(body)
    }

    /// The same function with other tokens as its body.
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
        // The decision will stand where inner attributes must; as outer ones they mean the same.
        attributes.extend(content.call(Attribute::parse_inner)?.into_iter().map(|mut attribute| {
            attribute.style = AttrStyle::Outer;
            attribute
        }));
        let mut body: TokenStream = content.parse()?;
        let mut future = None;
        if output::future(&signature).is_some()
            && let Some((made, block)) = BoxedFuture::open(&body)
        {
            (future, body) = (Some(made), block);
        }
        Ok(Self { attributes, visibility, signature, braces, body, future })
    }
}
