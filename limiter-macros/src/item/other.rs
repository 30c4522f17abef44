//! Items that cannot be limited, and the unchanged item beside an error.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use quote::ToTokens;
use syn::Item;
use syn::parse::Parser;

use super::{impl_block, is_rule};

/// Returns the error for an item of this kind. It points at the item's keyword.
pub(super) fn not_limited(item: &Item) -> Option<syn::Error> {
    let (keyword, message): (&dyn ToTokens, String) = match item {
        Item::Struct(item) => (&item.struct_token, data_message("a struct")),
        Item::Enum(item) => (&item.enum_token, data_message("an enum")),
        Item::Union(item) => (&item.union_token, data_message("a union")),
        Item::Static(item) => (&item.static_token, data_message("a static")),
        Item::Const(item) => (&item.const_token, data_message("a constant")),
        Item::Type(item) => (&item.type_token, data_message("a type alias")),
        Item::Use(item) => (&item.use_token, data_message("an import")),
        Item::ExternCrate(item) => (&item.crate_token, data_message("an import")),
        Item::Macro(item) => (&item.mac.path, data_message("a macro")),
        Item::Trait(item) => {
            (&item.trait_token, each_message("a trait", "method that has a body, or the `impl` blocks of the trait"))
        }
        Item::Mod(item) => (&item.mod_token, each_message("a module", "of its functions")),
        Item::ForeignMod(item) => (&item.abi, each_message("a foreign block", "function that calls into it")),
        _ => return None,
    };
    Some(syn::Error::new_spanned(keyword, message))
}

fn each_message(whole: &str, part: &str) -> String {
    format!("{whole} is not limited as a whole: annotate each {part}")
}

fn data_message(kind: &str) -> String {
    format!("{kind} does not run, so there is nothing to limit: annotate a function")
}

/// Returns the item without its other attributes of this kind, because they would repeat the error.
pub(crate) fn without_attributes(item: TokenStream) -> TokenStream {
    let item: Vec<TokenTree> = item.into_iter().collect();
    let is_impl = item.iter().any(|token| matches!(token, TokenTree::Ident(ident) if ident == "impl"))
        && !item.iter().any(|token| matches!(token, TokenTree::Ident(ident) if ident == "fn"));
    let last = item.len().saturating_sub(1);
    let inside = |(place, token)| match token {
        TokenTree::Group(block) if is_impl && place == last => {
            let members = remove_attributes(block.stream().into_iter().collect(), impl_block::is_skip);
            let mut inside = Group::new(Delimiter::Brace, members.into_iter().collect());
            inside.set_span(block.span());
            TokenTree::Group(inside)
        }
        other => other,
    };
    let item: Vec<TokenTree> = item.into_iter().enumerate().map(inside).collect();
    remove_attributes(item, is_rule).into_iter().collect()
}

fn remove_attributes(tokens: Vec<TokenTree>, unwanted: fn(&syn::Attribute) -> bool) -> Vec<TokenTree> {
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
