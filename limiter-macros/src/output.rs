//! What the return type says at a glance; what it means is for rustc to find out.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{GenericArgument, PathArguments, ReturnType, Signature, Type, TypeParamBound, TypePath};

use crate::params::mentions;

/// Where an error about the function's result points: its type, or its name where none is written.
pub(crate) fn place(signature: &Signature) -> TokenStream {
    match &signature.output {
        ReturnType::Default => signature.ident.to_token_stream(),
        ReturnType::Type(_, output) => output.to_token_stream(),
    }
}

pub(crate) fn contains_impl_trait(signature: &Signature) -> bool {
    mentions(&signature.output, "impl")
}

/// The return type of a function that only makes a future, which runs after it has returned.
pub(crate) fn future(signature: &Signature) -> Option<&Type> {
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
