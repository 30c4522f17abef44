//! `fallback` and `on_error`: functions, closures and values, distinguished by Rust's naming conventions.

use limiter_syntax::nearest;
use syn::{Expr, ExprClosure, ExprPath, LitStr};

use crate::args::{Args, Written};
use crate::item::Function;
use crate::names::Argument;
use crate::output;
use crate::params::{Params, mentions};
use crate::plan::{FailurePolicy, Occasion, Outcome, Passed, Policy};
use crate::value::{bare_name, string};

/// Returns the outcome of a denial.
pub(super) fn on_denied(args: &Args, function: &Function, params: Params<'_>) -> syn::Result<Outcome> {
    match args.get(Argument::Fallback) {
        Some(written) => outcome(written, Occasion::Denial, function, params),
        None => converted(function, "a denial", "add `fallback = …`"),
    }
}

const RAISE: &str = "raise";
const POLICIES: [&str; 4] = ["open", "closed", "standby", RAISE];

/// Returns the policy for failures of the limiter.
pub(super) fn on_error(
    written: Option<&Written>,
    function: &Function,
    params: Params<'_>,
) -> syn::Result<FailurePolicy> {
    let Some(written) = written else { return Ok(FailurePolicy::Default) };
    if let Some(word) = bare_name(&written.value).map(ToString::to_string) {
        match word.as_str() {
            "open" => return Ok(FailurePolicy::Policy(Policy::Open)),
            "closed" => return Ok(FailurePolicy::Policy(Policy::Closed)),
            "standby" => return Ok(FailurePolicy::Policy(Policy::Standby)),
            RAISE => {
                let raised = converted(function, "an error", "handle it, as in `on_error = |error| …`");
                return raised.map(FailurePolicy::Handled);
            }
            _ => check_spelling(written, &word, params)?,
        }
    }
    if let Some(text) = string(&written.value).map(LitStr::value)
        && POLICIES.contains(&text.as_str())
    {
        let message = format!("a policy is written without quotes: `on_error = {text}`");
        return Err(syn::Error::new_spanned(&written.value, message));
    }
    outcome(written, Occasion::Failure, function, params).map(FailurePolicy::Handled)
}

/// Reports a name that is almost a policy's as misspelt, unless it is an argument.
fn check_spelling(written: &Written, word: &str, params: Params<'_>) -> syn::Result<()> {
    match nearest(word, POLICIES) {
        Some(meant) if params.find(word).is_none() => {
            let message = format!("unknown policy `{word}`, did you mean `{meant}`? (a function: `self::{word}`)");
            Err(syn::Error::new_spanned(&written.value, message))
        }
        _ => Ok(()),
    }
}

/// Returns a function, a closure or a value, for any occasion.
pub(super) fn outcome(
    written: &Written,
    occasion: Occasion,
    function: &Function,
    params: Params<'_>,
) -> syn::Result<Outcome> {
    let (argument, name) = (written.argument.name(), occasion.name());
    match &written.value {
        Expr::Closure(closure) => {
            check_closure(closure, argument, name, function)?;
            Ok(Outcome::Closure(closure.clone()))
        }
        Expr::Path(path) if is_function(path, params) => {
            let passed = match occasion {
                Occasion::Denial => Passed::Arguments(params.forwarded()),
                Occasion::Failure | Occasion::BodyError => Passed::Occasion,
            };
            Ok(Outcome::Function { path: path.clone(), passed })
        }
        value if params.find(name).is_some() && mentions(value, name) => {
            let message = format!(
                "`{name}` is an argument here and would be hidden: rename the argument, or write a closure, \
                 `{argument} = |reason| …`"
            );
            Err(syn::Error::new_spanned(value, message))
        }
        value => Ok(Outcome::Value(value.clone())),
    }
}

/// Returns whether a path names a function: its last name is not capitalised, and is no argument's.
pub(super) fn is_function(path: &ExprPath, params: Params<'_>) -> bool {
    let Some(last) = path.path.segments.last() else { return false };
    let bare = path.qself.is_none() && path.path.get_ident().is_some();
    let name = last.ident.to_string();
    let letter = name.trim_start_matches("r#").trim_start_matches('_').chars().next();
    !letter.is_some_and(char::is_uppercase) && !(bare && (params.find(&name).is_some() || name == "self"))
}

fn check_closure(closure: &ExprClosure, argument: &str, name: &str, function: &Function) -> syn::Result<()> {
    if closure.inputs.len() != 1 {
        let message = format!("the closure of `{argument}` takes one argument: write `|{name}| …`");
        return Err(syn::Error::new_spanned(closure, message));
    }
    if let Some(asyncness) = &closure.asyncness
        && !function.is_async()
    {
        let message = format!("an `async` closure needs an `async fn` to await it: write `|{name}| …`");
        return Err(syn::Error::new_spanned(asyncness, message));
    }
    Ok(())
}

fn converted(function: &Function, what: &str, instead: &str) -> syn::Result<Outcome> {
    let place = output::error_place(function);
    if output::is_impl_trait(function) {
        let message = format!("`impl Trait` hides the type that {what} becomes: {instead}");
        return Err(syn::Error::new_spanned(place, message));
    }
    Ok(Outcome::Converted { place })
}
