//! A function that makes its future by hand, as `#[async_trait]` does:
//!
//! ```text
//! fn get(&self) -> Pin<Box<dyn Future<Output = u64> + Send + '_>> { …; Box::pin(async move { … }) }
//! ```
//!
//! The attribute limits the block, which runs later, not the call that only makes the future.

use proc_macro2::TokenStream;
use quote::TokenStreamExt;
use syn::parse::Parser;
use syn::{Block, Expr, ExprAsync, Ident, Local, LocalInit, Pat, Stmt};

use crate::pattern::plain_name;
use crate::value::bare_name;

pub(crate) struct BoxedFuture {
    /// The body, whose last expression holds the block.
    statements: Vec<Stmt>,
    /// Arguments that the block destructures in its first statements: `async_trait` moves their patterns there.
    patterns: Vec<(Ident, Pat)>,
}

/// Methods of a future that leave its output as it is.
const TRANSPARENT_METHODS: [&str; 5] = ["boxed", "boxed_local", "in_current_span", "instrument", "with_subscriber"];

impl BoxedFuture {
    /// Finds the block at the body's end, and returns it with its content.
    pub(super) fn parse(body: &TokenStream) -> Option<(Self, TokenStream)> {
        let statements = Block::parse_within.parse2(body.clone()).ok()?;
        let mut future = Self { statements, patterns: Vec::new() };
        let block = &future.block()?.block;
        let mut content = TokenStream::new();
        content.append_all(&block.stmts);
        future.patterns = block.stmts.iter().filter_map(destructured_argument).collect();
        Some((future, content))
    }

    pub(super) fn patterns(&self) -> &[(Ident, Pat)] {
        &self.patterns
    }

    /// Returns the body with another content of the block.
    pub(super) fn with_block(mut self, content: TokenStream) -> TokenStream {
        if let Some(block) = self.block() {
            block.block.stmts = vec![Stmt::Expr(Expr::Verbatim(content), None)];
        }
        let mut body = TokenStream::new();
        body.append_all(&self.statements);
        body
    }

    fn block(&mut self) -> Option<&mut ExprAsync> {
        match self.statements.last_mut()? {
            Stmt::Expr(last, None) => find_block(last),
            _ => None,
        }
    }
}

/// Parses `let (id, _) = { let __arg1 = __arg1; __arg1 };`, or the same without the block.
fn destructured_argument(statement: &Stmt) -> Option<(Ident, Pat)> {
    let Stmt::Local(Local { pat, init: Some(LocalInit { expr, diverge: None, .. }), .. }) = statement else {
        return None;
    };
    let argument = match (&**expr, bare_name(expr)) {
        (Expr::Block(moved), _) => match moved.block.stmts.last()? {
            Stmt::Expr(last, None) => bare_name(last)?,
            _ => return None,
        },
        (_, name) => name?,
    };
    if plain_name(pat).is_some() {
        return None;
    }
    Some((argument.clone(), pat.clone()))
}

fn find_block(expression: &mut Expr) -> Option<&mut ExprAsync> {
    match expression {
        Expr::Async(block) => Some(block),
        Expr::Paren(inner) => find_block(&mut inner.expr),
        Expr::Group(inner) => find_block(&mut inner.expr),
        Expr::MethodCall(call) if TRANSPARENT_METHODS.iter().any(|name| call.method == name) => {
            find_block(&mut call.receiver)
        }
        Expr::Call(call) if call.args.len() == 1 && is_box(&call.func) => find_block(call.args.first_mut()?),
        _ => None,
    }
}

/// Returns whether it is `Box::pin`, `Box::new` or `Pin::from`, by any path.
fn is_box(function: &Expr) -> bool {
    let Expr::Path(function) = function else { return false };
    let mut names = function.path.segments.iter().rev().map(|segment| segment.ident.to_string());
    let (last, owner) = (names.next(), names.next());
    matches!(
        (last.as_deref(), owner.as_deref()),
        (Some("pin" | "new"), Some("Box")) | (Some("from"), Some("Pin" | "Box"))
    )
}
