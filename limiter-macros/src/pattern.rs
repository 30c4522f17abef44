//! Patterns of arguments: the variables that they bind, and the expression that rebuilds the argument.

use proc_macro2::{Group, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::{FieldPat, Ident, Pat, PatIdent, Token};

use crate::params::{has_sign, mentions};

/// Returns the name, if the pattern is a name alone.
pub(crate) fn plain_name(pattern: &Pat) -> Option<&Ident> {
    match pattern {
        Pat::Ident(name) if name.by_ref.is_none() && name.subpat.is_none() => Some(&name.ident),
        _ => None,
    }
}

/// Returns the variable as generated code uses it. A name that begins with `_` gets the attribute's span, because
/// clippy accepts uses of such a name from an attribute. A name that begins with `__` is a macro's, and keeps its
/// hygiene.
pub(crate) fn as_used(variable: &Ident) -> Ident {
    let mut variable = variable.clone();
    let name = variable.to_string();
    if name.starts_with('_') && !name.starts_with("__") {
        variable.set_span(Span::call_site().located_at(variable.span()));
    }
    variable
}

/// Returns the variables that the pattern binds, in order, each with its `mut`.
pub(crate) fn bindings(pattern: &Pat) -> Vec<(Ident, Option<Token![mut]>)> {
    if let Pat::Ident(name) = pattern
        && name.by_ref.is_none()
        && name.subpat.is_none()
    {
        return if is_variable(name) { vec![(name.ident.clone(), name.mutability)] } else { Vec::new() };
    }
    let mut bindings = Vec::new();
    each_binding(&mut pattern.clone(), &mut |name| {
        // The `mut` of `ref mut` belongs to the borrow, not to the variable.
        bindings.push((name.ident.clone(), name.mutability.filter(|_| name.by_ref.is_none())));
    });
    bindings
}

/// Returns the pattern with the same variables, none of them `mut`.
pub(crate) fn immutable(pattern: &Pat) -> Pat {
    let mut pattern = pattern.clone();
    each_binding(&mut pattern, &mut |name| name.mutability = name.mutability.filter(|_| name.by_ref.is_some()));
    pattern
}

/// Returns a pattern that borrows, and the expression to match with it.
///
/// A shared reference is copied, and a unique one is reborrowed. For other types the variables become references.
pub(crate) fn borrowing_pattern(pattern: &Pat, ty: &syn::Type, argument: &Ident) -> (TokenStream, TokenStream) {
    let mut borrowing = pattern.clone();
    let value = match ty {
        syn::Type::Reference(reference) if reference.mutability.is_none() => quote!(#argument),
        syn::Type::Reference(_) if mentions(pattern, "mut") => quote!(&mut *#argument),
        syn::Type::Reference(_) => quote!(&*#argument),
        // Below a `&` of the pattern itself, and only there, a variable needs `ref` to borrow.
        _ if has_sign(pattern.to_token_stream(), '&') => {
            each_binding(&mut borrowing, &mut |name| {
                name.mutability = None;
                name.by_ref = Some(Token![ref](name.ident.span()));
            });
            quote!(#argument)
        }
        _ => {
            each_binding(&mut borrowing, &mut |name| (name.mutability, name.by_ref) = (None, None));
            quote!(&#argument)
        }
    };
    (generated(borrowing.into_token_stream()), value)
}

/// Returns the tokens with generated spans for their signs, so that lints do not take the pattern for the user's.
fn generated(tokens: TokenStream) -> TokenStream {
    let generated = |token| match token {
        TokenTree::Punct(mut sign) => {
            sign.set_span(Span::mixed_site().located_at(sign.span()));
            TokenTree::Punct(sign)
        }
        TokenTree::Group(group) => TokenTree::Group(Group::new(group.delimiter(), generated(group.stream()))),
        other => other,
    };
    tokens.into_iter().map(generated).collect()
}

/// Returns the expression that rebuilds the destructured value, or `None` if the pattern omits or borrows a part of it.
pub(crate) fn rebuilt(pattern: &Pat) -> Option<TokenStream> {
    let all = |patterns: &mut dyn Iterator<Item = &Pat>| patterns.map(rebuilt).collect::<Option<Vec<_>>>();
    match pattern {
        Pat::Ident(name) => {
            plain_name(pattern).filter(|_| name.attrs.is_empty()).map(|name| as_used(name).into_token_stream())
        }
        Pat::Paren(inner) => rebuilt(&inner.pat),
        Pat::Path(path) => Some(path.to_token_stream()),
        Pat::Tuple(tuple) => {
            let elements = all(&mut tuple.elems.iter())?;
            let comma = (elements.len() == 1).then(<Token![,]>::default);
            Some(quote!((#(#elements),* #comma)))
        }
        Pat::Slice(slice) => all(&mut slice.elems.iter()).map(|elements| quote!([#(#elements),*])),
        Pat::TupleStruct(tuple) => {
            let (elements, path) = (all(&mut tuple.elems.iter())?, &tuple.path);
            tuple.qself.is_none().then(|| quote!(#path(#(#elements),*)))
        }
        Pat::Struct(whole) if whole.rest.is_none() && whole.qself.is_none() => {
            let field = |field: &FieldPat| {
                let (member, value) = (&field.member, rebuilt(&field.pat)?);
                field.attrs.is_empty().then(|| quote!(#member: #value))
            };
            let (path, fields) = (&whole.path, whole.fields.iter().map(field).collect::<Option<Vec<_>>>()?);
            Some(quote!(#path { #(#fields),* }))
        }
        _ => None,
    }
}

fn each_binding(pattern: &mut Pat, change: &mut impl FnMut(&mut PatIdent)) {
    match pattern {
        Pat::Ident(name) => {
            if is_variable(name) {
                change(name);
            }
            if let Some((_, inner)) = &mut name.subpat {
                each_binding(inner, change);
            }
        }
        Pat::Tuple(tuple) => tuple.elems.iter_mut().for_each(|inner| each_binding(inner, change)),
        Pat::TupleStruct(tuple) => tuple.elems.iter_mut().for_each(|inner| each_binding(inner, change)),
        Pat::Slice(slice) => slice.elems.iter_mut().for_each(|inner| each_binding(inner, change)),
        Pat::Struct(whole) => whole.fields.iter_mut().for_each(|field| each_binding(&mut field.pat, change)),
        Pat::Or(or) => or.cases.iter_mut().for_each(|inner| each_binding(inner, change)),
        Pat::Reference(reference) => each_binding(&mut reference.pat, change),
        Pat::Paren(inner) => each_binding(&mut inner.pat, change),
        _ => {}
    }
}

/// Returns false for a capitalised name, which is a constant or a unit struct by Rust's conventions.
fn is_variable(name: &PatIdent) -> bool {
    let plain = name.by_ref.is_none() && name.mutability.is_none() && name.subpat.is_none();
    !(plain && name.ident.to_string().starts_with(char::is_uppercase))
}
