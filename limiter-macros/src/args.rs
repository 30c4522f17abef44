//! The attribute's arguments as written: `name = value, …`, of which nothing is judged yet but the names.

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Expr, Token};

use crate::errors::Errors;
use crate::names::{self, Argument};

/// The arguments in the order they were written, each at most once.
#[derive(Default)]
pub(crate) struct Args {
    written: Vec<Written>,
    /// Named, but with a value that cannot be read. It is not missing: that it is wrong has been said.
    unreadable: Vec<Argument>,
}

pub(crate) struct Written {
    pub(crate) argument: Argument,
    pub(crate) ident: Ident,
    pub(crate) value: Expr,
}

impl Args {
    /// Reads on after a mistake, at the next argument; a misspelt name counts as what it was meant to be.
    pub(crate) fn parse(arguments: TokenStream, errors: &mut Errors) -> Self {
        let mut args = Self::default();
        let mut misspelt = Vec::new();
        let parser = |input: ParseStream<'_>| {
            while !input.is_empty() {
                args.parse_argument(input, &mut misspelt, errors)?;
                input.parse::<Option<Token![,]>>()?;
            }
            Ok(())
        };
        let parsed = parser.parse2(arguments);
        errors.take(parsed);
        for written in misspelt {
            if args.get(written.argument).is_none() {
                args.written.push(written);
            }
        }
        args
    }

    pub(crate) fn get(&self, argument: Argument) -> Option<&Written> {
        self.written.iter().find(|written| written.argument == argument)
    }

    pub(crate) fn value(&self, argument: Argument) -> Option<&Expr> {
        self.get(argument).map(|written| &written.value)
    }

    /// Those of `arguments` that are there, in the order they were written.
    pub(crate) fn among(&self, arguments: &[Argument]) -> Vec<&Written> {
        self.written.iter().filter(|written| arguments.contains(&written.argument)).collect()
    }

    /// Whether one of `arguments` is there but cannot be read.
    pub(crate) fn unreadable(&self, arguments: &[Argument]) -> bool {
        self.unreadable.iter().any(|argument| arguments.contains(argument))
    }

    /// One `name = value`, up to the comma after it.
    fn parse_argument(
        &mut self,
        input: ParseStream<'_>,
        misspelt: &mut Vec<Written>,
        errors: &mut Errors,
    ) -> syn::Result<()> {
        if !input.peek(Ident::peek_any) {
            errors.push(input.error("expected an argument, such as `key = \"getId\"`"));
            return skip_argument(input);
        }
        let ident = input.call(Ident::parse_any)?;
        let name = ident.unraw().to_string();
        let known = Argument::named(&name);
        let meant = known.or_else(|| Argument::meant_by(&name));
        if known.is_none() {
            errors.at(&ident, names::unknown(&name, meant));
        }
        let Some(value) = errors.take(value(input, &ident)) else {
            self.unreadable.extend(meant);
            return skip_argument(input);
        };
        match known {
            Some(known) if self.get(known).is_some() => {
                errors.at(ident, format!("`{name}` is given twice: keep one"));
            }
            Some(argument) => self.written.push(Written { argument, ident, value }),
            None => misspelt.extend(meant.map(|argument| Written { argument, ident, value })),
        }
        if !at_end(input) {
            errors.push(input.error("expected `,` before the next argument"));
            if !at_argument(input) {
                return skip_argument(input);
            }
        }
        Ok(())
    }
}

fn value(input: ParseStream<'_>, ident: &Ident) -> syn::Result<Expr> {
    let valued = input.parse::<Option<Token![=]>>()?.is_some();
    if !valued || at_end(input) {
        return Err(syn::Error::new(ident.span(), format!("`{ident}` needs a value: `{ident} = …`")));
    }
    input.parse().map(ungroup)
}

fn at_end(input: ParseStream<'_>) -> bool {
    input.is_empty() || input.peek(Token![,])
}

fn at_argument(input: ParseStream<'_>) -> bool {
    input.peek(Ident::peek_any) && input.peek2(Token![=])
}

/// Goes to the comma before the next argument: others may belong to what could not be read.
fn skip_argument(input: ParseStream<'_>) -> syn::Result<()> {
    while !input.is_empty() && !at_next_argument(input) {
        input.parse::<TokenTree>()?;
    }
    Ok(())
}

fn at_next_argument(input: ParseStream<'_>) -> bool {
    let ahead = input.fork();
    let comma = ahead.parse::<Token![,]>();
    let name = ahead.call(Ident::parse_any);
    comma.is_ok() && name.is_ok_and(|name| ahead.peek(Token![=]) || Argument::named(&name.to_string()).is_some())
}

/// What a `macro_rules!` fragment such as `$max:expr` passes on comes in an invisible group.
fn ungroup(value: Expr) -> Expr {
    match value {
        Expr::Group(group) if group.attrs.is_empty() => ungroup(*group.expr),
        other => other,
    }
}
