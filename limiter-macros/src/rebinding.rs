//! Arguments that are bound anew.
//!
//! Two things ask for it. A `fallback` that is a function gets whole arguments: where a pattern leaves something out, the
//! signature takes the argument under a name of its own, and the body begins by taking it apart:
//!
//! ```text
//! fn get((id, _): (u64, Token)) { … }      fn get(argument0: (u64, Token)) { …let (id, _) = argument0;… }
//! ```
//!
//! And `recover` in an async function has its body in a block that owns the arguments, so that it is `Send` where the
//! function's future was. Both bind in the order of the signature, which is what `async fn` itself does: so arguments
//! are dropped as they were without the attribute.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::{Attribute, FnArg, Pat, PatIdent, PatType, Signature};

use crate::item::Function;
use crate::params::{binds_any, is_condition, mentions, renamed};
use crate::pattern::{bindings, immutable, look, plain_name};

#[derive(Default)]
pub(crate) struct Rebinding {
    /// In the order of the signature.
    rebound: Vec<Rebound>,
    /// What another macro binds anew.
    others: Vec<Rebound>,
}

struct Rebound {
    place: usize,
    argument: PatType,
    /// What the signature calls it, where that is not what its pattern binds.
    renamed: Option<Ident>,
    /// Variables that are of use, whether the body uses them or not.
    used: Vec<Ident>,
}

/// What is to be bound anew.
#[derive(Clone, Copy)]
pub(crate) struct Reasons {
    /// A function gets the arguments.
    pub(crate) handed_on: bool,
    /// The body owns its arguments.
    pub(crate) owned: bool,
}

impl Rebinding {
    /// `attributes`: all that the attributes' arguments say.
    pub(crate) fn of(function: &Function, reasons: Reasons, attributes: &TokenStream) -> Self {
        let signature = &function.signature;
        let mut rebinding = Self { rebound: Vec::new(), others: others(function) };
        if !reasons.handed_on && !reasons.owned {
            return rebinding;
        }
        for (place, input) in signature.inputs.iter().enumerate() {
            let FnArg::Typed(argument) = input else { continue };
            let renamed = renamed(place, argument).filter(|_| reasons.handed_on);
            // Those behind a renamed one follow, so that they are dropped before it.
            if !reasons.owned && renamed.is_none() && rebinding.rebound.is_empty() {
                continue;
            }
            let names = bindings(&argument.pat).into_iter().map(|(name, _)| name);
            let is_used =
                |name: &Ident| reasons.handed_on && renamed.is_none() || mentions(attributes, &name.to_string());
            let used = names.filter(is_used).collect();
            rebinding.rebound.push(Rebound { place, argument: argument.clone(), renamed, used });
        }
        rebinding
    }

    /// Changes the signature to what is to be bound anew.
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

    /// What the body begins with.
    pub(crate) fn body(&self) -> TokenStream {
        self.rebound.iter().map(Rebound::owned).collect()
    }

    /// What makes the names in `value` known to it where the arguments must stay whole.
    pub(crate) fn looks(&self, value: &TokenStream) -> TokenStream {
        self.renamed_in(value).map(|(rebound, name)| rebound.look(name)).collect()
    }

    /// What makes the names in `value` known to it where nothing comes after it.
    pub(crate) fn takes(&self, value: &TokenStream) -> TokenStream {
        self.renamed_in(value).map(|(rebound, name)| rebound.take(name)).collect()
    }

    fn renamed_in(&self, value: &TokenStream) -> impl Iterator<Item = (&Rebound, &Ident)> {
        let all = self.rebound.iter().chain(&self.others);
        let renamed = all.filter_map(|rebound| rebound.renamed.as_ref().map(|name| (rebound, name)));
        renamed.filter(|(rebound, _)| binds_any(&rebound.argument.pat, value))
    }
}

impl Rebound {
    fn owned(&self) -> TokenStream {
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
                    let lints = self.lints();
                    lets.extend(quote!(#(#conditions)* #(#lints)* let #mutability #name = #name;));
                }
            }
        }
        for name in &self.used {
            lets.extend(quote!(#(#conditions)* let _ = &#name;));
        }
        lets
    }

    fn look(&self, name: &Ident) -> TokenStream {
        let conditions = self.conditions();
        let (pattern, value) = look(&self.argument.pat, &self.argument.ty, name);
        quote!(#(#conditions)* #[allow(unused_variables)] let #pattern = #value;)
    }

    fn take(&self, name: &Ident) -> TokenStream {
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

/// Arguments that have a pattern only where the function's future runs.
fn others(function: &Function) -> Vec<Rebound> {
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
