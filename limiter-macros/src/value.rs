//! What kind of expression an argument's value is.

use proc_macro2::Ident;
use syn::{Expr, ExprLit, ExprPath, ExprUnary, Lit, LitStr, UnOp};

/// The value as a literal, `None` where it is another expression; a minus sign belongs to the literal.
pub(crate) fn literal(value: &Expr) -> Option<&Lit> {
    match value {
        Expr::Lit(ExprLit { lit, .. }) => Some(lit),
        Expr::Unary(ExprUnary { op: UnOp::Neg(_), expr, .. }) => literal(expr),
        _ => None,
    }
}

/// The value as a string literal.
pub(crate) fn string(value: &Expr) -> Option<&LitStr> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text),
        _ => None,
    }
}

/// The name that is all there is of the value, `self` too.
pub(crate) fn bare_name(value: &Expr) -> Option<&Ident> {
    match value {
        Expr::Path(ExprPath { qself: None, path, .. }) => path.get_ident(),
        _ => None,
    }
}
