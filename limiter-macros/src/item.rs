//! The annotated function: its signature is understood, its body stays tokens.

use proc_macro2::TokenStream;
use quote::{ToTokens, TokenStreamExt};
use syn::parse::{Parse, ParseStream};
use syn::{AttrStyle, Attribute, Item, Signature, Token, Visibility, braced, token};

pub(crate) struct Function {
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) visibility: Visibility,
    pub(crate) signature: Signature,
    pub(crate) braces: token::Brace,
    pub(crate) body: TokenStream,
}

impl Function {
    /// # Errors
    /// When the item is none, with a sentence on what to annotate instead.
    pub(crate) fn parse(item: TokenStream) -> syn::Result<Self> {
        let signature_only = item.clone();
        syn::parse2(item).map_err(|error| match syn::parse2::<Item>(signature_only) {
            Ok(other) => not_a_function(&other).unwrap_or(error),
            Err(_) => error,
        })
    }

    pub(crate) fn is_async(&self) -> bool {
        self.signature.asyncness.is_some()
    }

    /// The same function with other tokens as its body.
    pub(crate) fn with_body(self, body: TokenStream) -> TokenStream {
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
        Ok(Self { attributes, visibility, signature, braces, body: content.parse()? })
    }
}

/// Why this kind of item is not limited, at its keyword.
fn not_a_function(item: &Item) -> Option<syn::Error> {
    let (keyword, message): (&dyn ToTokens, String) = match item {
        Item::Struct(item) => (&item.struct_token, data("a struct")),
        Item::Enum(item) => (&item.enum_token, data("an enum")),
        Item::Union(item) => (&item.union_token, data("a union")),
        Item::Static(item) => (&item.static_token, data("a static")),
        Item::Const(item) => (&item.const_token, data("a constant")),
        Item::Type(item) => (&item.type_token, data("a type alias")),
        Item::Use(item) => (&item.use_token, data("an import")),
        Item::Macro(item) => (&item.mac.path, data("a macro")),
        Item::Impl(item) => (&item.impl_token, each("an `impl` block", "of its methods")),
        Item::Trait(item) => {
            (&item.trait_token, each("a trait", "method that has a body, or the methods of its impls"))
        }
        Item::Mod(item) => (&item.mod_token, each("a module", "of its functions")),
        Item::ForeignMod(item) => (&item.abi, each("a foreign block", "function that calls into it")),
        _ => return None,
    };
    Some(syn::Error::new_spanned(keyword, message))
}

fn each(whole: &str, part: &str) -> String {
    format!("{whole} is not limited as a whole: annotate each {part}")
}

fn data(kind: &str) -> String {
    format!("{kind} does not run, so there is nothing to limit: annotate a function")
}
