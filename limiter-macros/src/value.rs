//! The kind of expression of an argument's value.

use proc_macro2::Ident;
use syn::{Expr, ExprLit, ExprPath, ExprUnary, Lit, LitStr, UnOp};

/// Returns the value as a literal, or `None` for another expression. A minus sign belongs to the literal.
pub(crate) fn literal(value: &Expr) -> Option<&Lit> {
    match value {
        Expr::Lit(ExprLit { lit, .. }) => Some(lit),
        Expr::Unary(ExprUnary { op: UnOp::Neg(_), expr, .. }) => literal(expr),
        _ => None,
    }
}

/// Returns the value as a string literal.
pub(crate) fn string(value: &Expr) -> Option<&LitStr> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text),
        _ => None,
    }
}

/// Returns the value if it is a name alone, including `self`.
pub(crate) fn bare_name(value: &Expr) -> Option<&Ident> {
    match value {
        Expr::Path(ExprPath { qself: None, path, .. }) => path.get_ident(),
        _ => None,
    }
}
