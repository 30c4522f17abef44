//! What is not limited, and the item as it was, for when something is wrong.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use quote::ToTokens;
use syn::Item;
use syn::parse::Parser;

use super::{impl_block, is_rule};

/// Why this kind of item is not limited, at its keyword.
pub(super) fn not_limited(item: &Item) -> Option<syn::Error> {
    let (keyword, message): (&dyn ToTokens, String) = match item {
        Item::Struct(item) => (&item.struct_token, data("a struct")),
        Item::Enum(item) => (&item.enum_token, data("an enum")),
        Item::Union(item) => (&item.union_token, data("a union")),
        Item::Static(item) => (&item.static_token, data("a static")),
        Item::Const(item) => (&item.const_token, data("a constant")),
        Item::Type(item) => (&item.type_token, data("a type alias")),
        Item::Use(item) => (&item.use_token, data("an import")),
        Item::ExternCrate(item) => (&item.crate_token, data("an import")),
        Item::Macro(item) => (&item.mac.path, data("a macro")),
        Item::Trait(item) => {
            (&item.trait_token, each("a trait", "method that has a body, or the `impl` blocks of the trait"))
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

/// The item without the attributes that were taken for part of this one: they would only repeat what is wrong.
pub(crate) fn without_attributes(item: TokenStream) -> TokenStream {
    let item: Vec<TokenTree> = item.into_iter().collect();
    let is_impl = item.iter().any(|token| matches!(token, TokenTree::Ident(ident) if ident == "impl"))
        && !item.iter().any(|token| matches!(token, TokenTree::Ident(ident) if ident == "fn"));
    let last = item.len().saturating_sub(1);
    let inside = |(place, token)| match token {
        TokenTree::Group(block) if is_impl && place == last => {
            let members = without(block.stream().into_iter().collect(), impl_block::exempts);
            let mut inside = Group::new(Delimiter::Brace, members.into_iter().collect());
            inside.set_span(block.span());
            TokenTree::Group(inside)
        }
        other => other,
    };
    let item: Vec<TokenTree> = item.into_iter().enumerate().map(inside).collect();
    without(item, is_rule).into_iter().collect()
}

fn without(tokens: Vec<TokenTree>, unwanted: fn(&syn::Attribute) -> bool) -> Vec<TokenTree> {
    let mut kept = Vec::new();
    let mut rest = tokens.into_iter().peekable();
    while let Some(token) = rest.next() {
        if let (TokenTree::Punct(sign), Some(TokenTree::Group(brackets))) = (&token, rest.peek())
            && sign.as_char() == '#'
            && is_attribute(&token, brackets, unwanted)
        {
            rest.next();
            continue;
        }
        kept.push(token);
    }
    kept
}

fn is_attribute(sign: &TokenTree, brackets: &Group, wanted: fn(&syn::Attribute) -> bool) -> bool {
    let tokens = [sign.clone(), TokenTree::Group(brackets.clone())].into_iter().collect();
    let attributes = syn::Attribute::parse_outer.parse2(tokens);
    attributes.is_ok_and(|attributes| attributes.iter().any(wanted))
}
