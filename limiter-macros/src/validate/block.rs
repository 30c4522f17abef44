//! `block`: the text of a block, beside a limit that can begin one.

use limiter_syntax::{BlockProblem, BlockText, parse_block};
use syn::{Lit, LitStr};

use super::once;
use crate::args::Args;
use crate::errors::Errors;
use crate::limit_text;
use crate::names::Argument;
use crate::plan::{Limit, Limits};
use crate::value::{literal, string};

/// Returns the block of a rule. `rules` are the arguments of all rules of the function.
pub(super) fn block(args: &Args, rules: &[Args], limits: &Limits, errors: &mut Errors) -> Option<BlockText> {
    let value = args.value(Argument::Block)?;
    let text = string(value).map(LitStr::value);
    let parsed = text.as_deref().map(parse_block);
    let block = match parsed {
        Some(Ok(block)) => block,
        problem => {
            let reason = problem.and_then(Result::err).map(problem_text).unwrap_or_default();
            errors.push_at(
                value,
                format!("`block` must be a time such as `\"10min\"`, or one that grows such as `\"1min x2 up to 1d\"`{reason}"),
            );
            return None;
        }
    };
    if let Limits::Written { limits, .. } = limits
        && limits.iter().all(Limit::is_concurrent)
    {
        errors
            .push_at(value, "a denial by calls at once begins no block: add a limit with a window, or remove `block`");
    } else if let Some(wait) = once::written(rules, Argument::Wait) {
        errors.push_at(
            &wait.ident,
            "a call that waits is one that is denied, so it would be blocked: remove `wait` or `block`",
        );
    } else if matches!(args.value(Argument::Leases).and_then(literal), Some(Lit::Bool(leases)) if leases.value) {
        errors.push_at(value, "a lease admits calls without a look at blocks: remove `leases` or `block`");
    }
    Some(block)
}

fn problem_text(problem: BlockProblem<'_>) -> String {
    match problem {
        BlockProblem::Unreadable => String::new(),
        BlockProblem::Time(problem) => limit_text::window_problem(problem),
        BlockProblem::TimeOutOfRange => " (a time is from 1 ms to 366 days)".to_owned(),
        BlockProblem::Factor => " (a factor is from 1 to 1000, with at most three decimals)".to_owned(),
        BlockProblem::MostBelowTime => " (the longest block is shorter than the first one)".to_owned(),
        BlockProblem::OnlyOneOfFactorAndMost => {
            " (blocks that grow have a factor above 1, and a longest time)".to_owned()
        }
    }
}
