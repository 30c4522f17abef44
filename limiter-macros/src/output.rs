//! The return type as written. Its meaning is left to rustc.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{
    GenericArgument, Path, PathArguments, PathSegment, ReturnType, Signature, Type, TypeGroup, TypeParamBound,
    TypeParen, TypePath, parse_quote,
};

use crate::item::Function;
use crate::params::mentions;

/// Returns the tokens for errors about the function's result: its type or, if none is written, the function's name.
pub(crate) fn error_place(function: &Function) -> TokenStream {
    match (body_type(function), &function.signature.output) {
        (Some(value), _) => value.to_token_stream(),
        (None, ReturnType::Type(_, output)) => output.to_token_stream(),
        (None, ReturnType::Default) => function.signature.ident.to_token_stream(),
    }
}

/// Returns the type of the body's value, if it is written. For a future made by hand it is the future's output.
pub(crate) fn body_type(function: &Function) -> Option<&Type> {
    match &function.signature.output {
        ReturnType::Default => None,
        ReturnType::Type(_, output) if function.makes_its_future() => future_output(output),
        ReturnType::Type(_, output) => Some(output),
    }
}

/// Returns whether the body's value is an `impl Trait` itself, and not a type with one in it.
pub(crate) fn is_impl_trait(function: &Function) -> bool {
    let mut value = body_type(function);
    while let Some(Type::Paren(TypeParen { elem, .. }) | Type::Group(TypeGroup { elem, .. })) = value {
        value = Some(elem);
    }
    matches!(value, Some(Type::ImplTrait(_)))
}

pub(crate) fn contains_impl_trait(function: &Function) -> bool {
    match body_type(function) {
        Some(value) => mentions(value, "impl"),
        None => false,
    }
}

/// Returns the type with `_` for each part that the signature hides as an `impl Trait`.
pub(crate) fn visible(value: &Type) -> Type {
    let mut visible = value.clone();
    hide(&mut visible);
    if mentions(&visible, "impl") { parse_quote!(_) } else { visible }
}

fn hide(value: &mut Type) {
    match value {
        Type::ImplTrait(_) => *value = parse_quote!(_),
        _ => parts(value).into_iter().for_each(hide),
    }
}

/// Returns whether a value of this type sends its content later. The names of the traits are those of `futures`.
pub(crate) fn is_stream(value: &Type) -> bool {
    contains_stream(&mut value.clone())
}

fn contains_stream(value: &mut Type) -> bool {
    let is_stream_bound = |bound: &TypeParamBound| match bound {
        TypeParamBound::Trait(bound) => is_last(&bound.path, &["Stream", "TryStream"]),
        _ => false,
    };
    match value {
        Type::ImplTrait(value) => value.bounds.iter().any(is_stream_bound),
        Type::TraitObject(value) => value.bounds.iter().any(is_stream_bound),
        Type::Path(value) if is_last(&value.path, &["BoxStream", "LocalBoxStream"]) => true,
        _ => parts(value).into_iter().any(contains_stream),
    }
}

fn is_last(path: &Path, names: &[&str]) -> bool {
    path.segments.last().is_some_and(|segment| names.iter().any(|name| segment.ident == name))
}

/// Returns the types that a type is written with, such as the two of a `Result`.
fn parts(value: &mut Type) -> Vec<&mut Type> {
    match value {
        Type::Array(value) => vec![&mut value.elem],
        Type::Group(value) => vec![&mut value.elem],
        Type::Paren(value) => vec![&mut value.elem],
        Type::Reference(value) => vec![&mut value.elem],
        Type::Slice(value) => vec![&mut value.elem],
        Type::Tuple(value) => value.elems.iter_mut().collect(),
        Type::Path(value) => value.path.segments.iter_mut().flat_map(type_arguments).collect(),
        _ => Vec::new(),
    }
}

fn type_arguments(segment: &mut PathSegment) -> Vec<&mut Type> {
    let PathArguments::AngleBracketed(arguments) = &mut segment.arguments else { return Vec::new() };
    let mut types = Vec::new();
    for argument in &mut arguments.args {
        if let GenericArgument::Type(value) = argument {
            types.push(value);
        }
    }
    types
}

/// Returns the return type of a function that only makes a future, which runs after the function has returned.
pub(crate) fn future_type(signature: &Signature) -> Option<&Type> {
    match &signature.output {
        ReturnType::Type(_, output) if signature.asyncness.is_none() && is_future(output) => Some(output),
        _ => None,
    }
}

fn is_future(output: &Type) -> bool {
    match output {
        Type::ImplTrait(output) => output.bounds.iter().any(is_future_bound),
        Type::TraitObject(output) => output.bounds.iter().any(is_future_bound),
        Type::Paren(output) => is_future(&output.elem),
        Type::Group(output) => is_future(&output.elem),
        Type::Path(output) => is_boxed_future(output),
        _ => false,
    }
}

fn is_boxed_future(output: &TypePath) -> bool {
    let Some(last) = output.path.segments.last() else { return false };
    let boxes_future = |arguments: &PathArguments| match arguments {
        PathArguments::AngleBracketed(arguments) => arguments.args.iter().any(|argument| match argument {
            GenericArgument::Type(inner) => is_future(inner),
            _ => false,
        }),
        _ => false,
    };
    match last.ident.to_string().as_str() {
        "BoxFuture" | "LocalBoxFuture" => true,
        "Pin" | "Box" => boxes_future(&last.arguments),
        _ => false,
    }
}

fn is_future_bound(bound: &TypeParamBound) -> bool {
    match bound {
        TypeParamBound::Trait(bound) => bound.path.segments.last().is_some_and(|segment| segment.ident == "Future"),
        _ => false,
    }
}

/// Returns the `T` of a type that is some form of `Future<Output = T>`.
fn future_output(future: &Type) -> Option<&Type> {
    match future {
        Type::ImplTrait(future) => future.bounds.iter().find_map(bound_output),
        Type::TraitObject(future) => future.bounds.iter().find_map(bound_output),
        Type::Paren(future) => future_output(&future.elem),
        Type::Group(future) => future_output(&future.elem),
        Type::Path(path) => {
            let last = path.path.segments.last()?;
            let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
            let inner = arguments.args.iter().find_map(|argument| match argument {
                GenericArgument::Type(inner) => Some(inner),
                _ => None,
            })?;
            if last.ident == "Pin" || last.ident == "Box" { future_output(inner) } else { Some(inner) }
        }
        _ => None,
    }
}

fn bound_output(bound: &TypeParamBound) -> Option<&Type> {
    let TypeParamBound::Trait(bound) = bound else { return None };
    let PathArguments::AngleBracketed(arguments) = &bound.path.segments.last()?.arguments else { return None };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::AssocType(output) if output.ident == "Output" => Some(&output.ty),
        _ => None,
    })
}
