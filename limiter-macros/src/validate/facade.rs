//! `crate`: the path of the run time in generated code.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Expr, ExprPath, Path};

/// Returns the path of the facade: `::rate_limited` unless another is given.
///
/// # Errors
/// The path is relative, so it means different things in different modules.
pub(super) fn facade(given: Option<&Expr>) -> syn::Result<TokenStream> {
    match given {
        None => Ok(quote!(::rate_limited)),
        Some(Expr::Path(ExprPath { qself: None, path, .. })) if is_absolute(path) => Ok(path.to_token_stream()),
        Some(other) => {
            let message =
                "`crate` must be an absolute path such as `::my_crate::rate_limited` or `crate::rate_limited`";
            Err(syn::Error::new_spanned(other, message))
        }
    }
}

fn is_absolute(path: &Path) -> bool {
    let from_root = path.leading_colon.is_some();
    let from_crate = path.segments.first().is_some_and(|first| first.ident == "crate" || first.ident == "$crate");
    (from_root || from_crate) && path.segments.iter().all(|segment| segment.arguments.is_none())
}
