//! `permit`: the variable of the body that holds the decision about the call.

use proc_macro2::Ident;

use super::{Subject, once};
use crate::errors::Errors;
use crate::names::Argument;
use crate::params::Params;
use crate::pattern::bindings;
use crate::value::{bare_name, string};

pub(super) fn permit(subject: &Subject<'_>, params: Params<'_>, errors: &mut Errors) -> Option<Ident> {
    let written = once::written(subject.rules, Argument::Permit)?;
    if subject.is_method_of_block() {
        errors.push_at(
            &written.ident,
            "`permit` is a variable of one body, and an `impl` block has many: give the method an attribute of its own",
        );
        return None;
    }
    let name = bare_name(&written.value).filter(|name| is_variable(name));
    let Some(name) = name else {
        let message = match string(&written.value) {
            Some(text) if syn::parse_str::<Ident>(&text.value()).is_ok_and(|name| is_variable(&name)) => {
                format!("a variable is written without quotes: `permit = {}`", text.value())
            }
            _ => "`permit` must be the name of a new variable, such as `permit = allowed`".to_owned(),
        };
        errors.push_at(&written.value, message);
        return None;
    };
    let in_future = subject.function.patterns().iter().flat_map(|(_, pattern)| bindings(pattern));
    if params.find(&name.to_string()).is_some() || in_future.into_iter().any(|(argument, _)| argument == *name) {
        let message = format!("`{name}` is an argument here and would be hidden: write another name for the permit");
        errors.push_at(&written.value, message);
        return None;
    }
    Some(name.clone())
}

/// Returns whether it can be a variable: neither a keyword nor the name of a constant, with which a pattern compares.
fn is_variable(name: &Ident) -> bool {
    let text = name.to_string();
    let first_letter = text.trim_start_matches("r#").trim_start_matches('_').chars().next();
    !["self", "super", "crate"].contains(&text.as_str()) && !first_letter.is_some_and(char::is_uppercase)
}
