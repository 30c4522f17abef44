//! Arguments that the body binds again.
//!
//! There are two reasons. The first is a `fallback` that is a function, because it gets whole arguments. If a pattern
//! omits a part of an argument, the signature gives the argument a name, and the body destructures it first:
//!
//! ```text
//! fn get((id, _): (u64, Token)) { … }      fn get(argument0: (u64, Token)) { …let (id, _) = argument0;… }
//! ```
//!
//! The second reason is `recover` in an async function. Its body is in a block that owns the arguments, so that the
//! future stays `Send`. Both bind in the order of the signature, as `async fn` does itself. So arguments are dropped in
//! the same order as without the attribute.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::{Attribute, FnArg, Pat, PatIdent, PatType, Signature};

use crate::item::Function;
use crate::params::{binds_any, is_condition, mentions, renamed};
use crate::pattern::{as_used, bindings, borrowing_pattern, immutable, plain_name};

#[derive(Default)]
pub(crate) struct Rebinding {
    /// Arguments in the order of the signature.
    rebound: Vec<Rebound>,
    /// Arguments that another macro binds again.
    others: Vec<Rebound>,
}

struct Rebound {
    place: usize,
    argument: PatType,
    /// The name in the signature, if the argument gets a new one.
    renamed: Option<Ident>,
    /// Variables that count as used even if the body does not use them.
    used: Vec<Ident>,
}

/// The reasons to bind arguments again.
#[derive(Clone, Copy)]
pub(crate) struct Reasons {
    /// Another function gets the arguments.
    pub(crate) forwarded: bool,
    /// The body owns its arguments.
    pub(crate) owned: bool,
}

impl Rebinding {
    /// Finds the arguments to bind again. `attributes` has the values of all attribute arguments.
    pub(crate) fn new(function: &Function, reasons: Reasons, attributes: &TokenStream) -> Self {
        let signature = &function.signature;
        let mut rebinding = Self { rebound: Vec::new(), others: bound_in_future(function) };
        if !reasons.forwarded && !reasons.owned {
            return rebinding;
        }
        for (place, input) in signature.inputs.iter().enumerate() {
            let FnArg::Typed(argument) = input else { continue };
            let renamed = renamed(place, argument).filter(|_| reasons.forwarded);
            // Arguments after a renamed one are bound again too, so that they are dropped before it.
            if !reasons.owned && renamed.is_none() && rebinding.rebound.is_empty() {
                continue;
            }
            let names = bindings(&argument.pat).into_iter().map(|(name, _)| name);
            let is_used =
                |name: &Ident| reasons.forwarded && renamed.is_none() || mentions(attributes, &name.to_string());
            let used = names.filter(is_used).collect();
            rebinding.rebound.push(Rebound { place, argument: argument.clone(), renamed, used });
        }
        rebinding
    }

    /// Changes the signature for the arguments that are bound again.
    pub(crate) fn apply(&self, signature: &mut Signature) {
        for rebound in &self.rebound {
            if let Some(FnArg::Typed(argument)) = signature.inputs.get_mut(rebound.place) {
                argument.attrs.retain(|attribute| !is_lint(attribute));
                *argument.pat = match &rebound.renamed {
                    Some(name) => whole(name),
                    None => immutable(&argument.pat),
                };
            }
        }
    }

    /// Returns the first statements of the body.
    pub(crate) fn body_lets(&self) -> TokenStream {
        self.rebound.iter().map(Rebound::owning_lets).collect()
    }

    /// Returns statements that bind the names in `value` by reference, so that the arguments stay whole.
    pub(crate) fn borrowing_lets(&self, value: &TokenStream) -> TokenStream {
        self.renamed_in(value).map(|(rebound, name)| rebound.borrowing_let(name)).collect()
    }

    /// Returns statements that bind the names in `value` by move, for a value after which nothing uses the arguments.
    pub(crate) fn moving_lets(&self, value: &TokenStream) -> TokenStream {
        self.renamed_in(value).map(|(rebound, name)| rebound.moving_let(name)).collect()
    }

    fn renamed_in(&self, value: &TokenStream) -> impl Iterator<Item = (&Rebound, &Ident)> {
        let all = self.rebound.iter().chain(&self.others);
        let renamed = all.filter_map(|rebound| rebound.renamed.as_ref().map(|name| (rebound, name)));
        renamed.filter(|(rebound, _)| binds_any(&rebound.argument.pat, value))
    }
}

impl Rebound {
    fn owning_lets(&self) -> TokenStream {
        let conditions = self.conditions();
        let mut lets = TokenStream::new();
        match &self.renamed {
            Some(name) => {
                let (lints, pattern) = (self.lints(), &self.argument.pat);
                lets.extend(
                    quote!(#(#conditions)* let #name = #name; #(#conditions)* #(#lints)* let #pattern = #name;),
                );
            }
            None => {
                for (name, mutability) in bindings(&self.argument.pat) {
                    let (lints, name) = (self.lints(), as_used(&name));
                    lets.extend(quote!(#(#conditions)* #(#lints)* let #mutability #name = #name;));
                }
            }
        }
        for name in &self.used {
            lets.extend(quote!(#(#conditions)* let _ = &#name;));
        }
        lets
    }

    fn borrowing_let(&self, name: &Ident) -> TokenStream {
        let conditions = self.conditions();
        let (pattern, value) = borrowing_pattern(&self.argument.pat, &self.argument.ty, name);
        quote!(#(#conditions)* #[allow(unused_variables)] let #pattern = #value;)
    }

    fn moving_let(&self, name: &Ident) -> TokenStream {
        let (conditions, pattern) = (self.conditions(), &self.argument.pat);
        quote!(#(#conditions)* #[allow(unused_variables, unused_mut)] let #pattern = #name;)
    }

    fn conditions(&self) -> Vec<&Attribute> {
        self.argument.attrs.iter().filter(|attribute| is_condition(attribute)).collect()
    }

    fn lints(&self) -> Vec<&Attribute> {
        self.argument.attrs.iter().filter(|attribute| is_lint(attribute)).collect()
    }
}

/// Returns the arguments whose patterns are only inside the function's future.
fn bound_in_future(function: &Function) -> Vec<Rebound> {
    let mut others = Vec::new();
    for (name, pattern) in function.patterns() {
        for (place, input) in function.signature.inputs.iter().enumerate() {
            if let FnArg::Typed(argument) = input
                && plain_name(&argument.pat) == Some(name)
            {
                let argument = PatType { pat: Box::new(pattern.clone()), ..argument.clone() };
                others.push(Rebound { place, argument, renamed: Some(name.clone()), used: Vec::new() });
            }
        }
    }
    others
}

fn whole(name: &Ident) -> Pat {
    let ident = name.clone();
    Pat::Ident(PatIdent { attrs: Vec::new(), by_ref: None, mutability: None, ident, subpat: None })
}

fn is_lint(attribute: &Attribute) -> bool {
    ["allow", "deny", "expect", "forbid", "warn"].iter().any(|level| attribute.path().is_ident(level))
}
