//! Literals among the arguments' values.

use syn::{Expr, ExprLit, ExprUnary, Lit, LitStr, UnOp};

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
