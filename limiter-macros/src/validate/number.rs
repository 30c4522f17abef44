//! Numbers of permits: literals or expressions.

use syn::{Expr, Lit};

use crate::plan::Given;
use crate::value::literal;

/// # Errors
/// The value is a literal other than a `u32` of at least 1. The error has this message.
pub(super) fn permits(value: &Expr, message: &str) -> syn::Result<Given<u32>> {
    match (value, literal(value)) {
        (_, None) => return Ok(Given::Expression(value.clone())),
        (Expr::Lit(_), Some(Lit::Int(number))) if matches!(number.suffix(), "" | "u32") => {
            if let Ok(number @ 1..) = number.base10_parse() {
                return Ok(Given::Literal(number));
            }
        }
        _ => {}
    }
    Err(syn::Error::new_spanned(value, message))
}
