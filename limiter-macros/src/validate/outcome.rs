//! `fallback` and `on_error`: functions, closures and values, told apart by Rust's own naming rule.

use syn::{Expr, ExprClosure, ExprPath, LitStr};

use crate::args::{Args, Written};
use crate::item::Function;
use crate::literal::string;
use crate::names::Argument;
use crate::output;
use crate::params::{Params, mentions};
use crate::plan::{Failure, Outcome, Passed};
use crate::suggest::nearest;

const POLICIES: [(&str, &str); 3] = [("open", "Open"), ("closed", "Closed"), ("standby", "Standby")];
const RAISE: &str = "raise";

/// What a denial gives.
pub(super) fn on_denied(args: &Args, function: &Function, params: &Params<'_>) -> syn::Result<Outcome> {
    match args.get(Argument::Fallback) {
        Some(written) => outcome(written, "denied", function, params),
        None => converted(function, "a denial", "give one by `fallback = …`"),
    }
}

/// What a failure of the limiter gives.
pub(super) fn on_error(args: &Args, function: &Function, params: &Params<'_>) -> syn::Result<Failure> {
    let Some(written) = args.get(Argument::OnError) else { return Ok(Failure::Default) };
    if let Some(word) = bare_word(&written.value) {
        if let Some((_, policy)) = POLICIES.iter().find(|(name, _)| *name == word) {
            return Ok(Failure::Policy(policy));
        }
        if word == RAISE {
            let raised = converted(function, "an error", "handle it, as in `on_error = |error| …`");
            return raised.map(Failure::Handled);
        }
        if let Some(meant) =
            nearest(&word, ["open", "closed", "standby", RAISE]).filter(|_| params.find(&word).is_none())
        {
            let message = format!("unknown policy `{word}`, did you mean `{meant}`? (a function: `self::{word}`)");
            return Err(syn::Error::new_spanned(&written.value, message));
        }
    }
    if let Some(text) = string(&written.value).map(LitStr::value)
        && (text == RAISE || POLICIES.iter().any(|(name, _)| *name == text))
    {
        let message = format!("a policy is written without quotes: `on_error = {text}`");
        return Err(syn::Error::new_spanned(&written.value, message));
    }
    outcome(written, "error", function, params).map(Failure::Handled)
}

/// `occasion` is the name under which an expression finds the denial or the error.
fn outcome(written: &Written, occasion: &str, function: &Function, params: &Params<'_>) -> syn::Result<Outcome> {
    let name = written.argument.name();
    match &written.value {
        Expr::Closure(closure) => {
            check_closure(closure, name, occasion, function)?;
            Ok(Outcome::Closure(closure.clone()))
        }
        Expr::Path(path) if is_function(path, params) => {
            let passed = match written.argument {
                Argument::OnError => Passed::Occasion,
                _ => Passed::Arguments(params.passed_on()?),
            };
            Ok(Outcome::Function { path: path.clone(), passed })
        }
        value if params.find(occasion).is_some() && mentions(value, occasion) => {
            let message = format!(
                "`{occasion}` is an argument here and would be hidden: rename the argument, or write a closure, \
                 `{name} = |reason| …`"
            );
            Err(syn::Error::new_spanned(value, message))
        }
        value => Ok(Outcome::Value(value.clone())),
    }
}

/// A path names a function if its last name is not capitalised and is no argument's.
fn is_function(path: &ExprPath, params: &Params<'_>) -> bool {
    let Some(last) = path.path.segments.last() else { return false };
    let bare = path.qself.is_none() && path.path.get_ident().is_some();
    let name = last.ident.to_string();
    let letter = name.trim_start_matches("r#").trim_start_matches('_').chars().next();
    !letter.is_some_and(char::is_uppercase) && !(bare && (params.find(&name).is_some() || name == "self"))
}

fn check_closure(closure: &ExprClosure, name: &str, occasion: &str, function: &Function) -> syn::Result<()> {
    if closure.inputs.len() != 1 {
        let message = format!("the closure of `{name}` takes one argument: write `|{occasion}| …`");
        return Err(syn::Error::new_spanned(closure, message));
    }
    if let Some(asyncness) = &closure.asyncness
        && !function.is_async()
    {
        let message = format!("an `async` closure needs an `async fn` to await it: write `|{occasion}| …`");
        return Err(syn::Error::new_spanned(asyncness, message));
    }
    Ok(())
}

fn converted(function: &Function, what: &str, instead: &str) -> syn::Result<Outcome> {
    let place = output::place(&function.signature);
    if output::contains_impl_trait(&function.signature) {
        let message = format!("`impl Trait` does not say what {what} becomes: {instead}");
        return Err(syn::Error::new_spanned(place, message));
    }
    Ok(Outcome::Converted { place })
}

fn bare_word(value: &Expr) -> Option<String> {
    match value {
        Expr::Path(ExprPath { qself: None, path, .. }) => path.get_ident().map(ToString::to_string),
        _ => None,
    }
}
