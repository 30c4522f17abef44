//! `wait`: the longest time that a call may wait in the queue.

use syn::Expr;

use crate::errors::Errors;
use crate::limit_text;
use crate::plan::Given;
use crate::value::{literal, string};

pub(super) fn wait(value: Option<&Expr>, errors: &mut Errors) -> Option<Given<u64>> {
    let value = value?;
    if literal(value).is_none() {
        return Some(Given::Expression(value.clone()));
    }
    let problem = match string(value).map(limit_text::window) {
        Some(Ok(millis)) => return Some(Given::Literal(millis)),
        Some(Err(problem)) => problem,
        None => String::new(),
    };
    errors.push_at(value, format!("`wait` must be a duration such as `\"500ms\"`, between 1ms and 366d{problem}"));
    None
}
