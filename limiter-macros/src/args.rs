//! The attribute's arguments as written: `name = value, …`, of which nothing is judged yet but the names.

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Expr, Token};

use crate::errors::Errors;
use crate::names::{self, Argument};

/// The known arguments in the order they were written, each name once.
pub(crate) struct Args(Vec<Written>);

pub(crate) struct Written {
    pub(crate) argument: Argument,
    pub(crate) ident: Ident,
    pub(crate) value: Expr,
}

impl Args {
    /// Reads on after a mistake, at the next argument.
    pub(crate) fn parse(arguments: TokenStream, errors: &mut Errors) -> Self {
        let mut args = Self(Vec::new());
        let parser = |input: ParseStream<'_>| {
            while !input.is_empty() {
                match argument(input) {
                    Ok((ident, value)) => args.add(ident, value, errors),
                    Err(error) => {
                        errors.push(error);
                        skip_argument(input)?;
                    }
                }
                input.parse::<Option<Token![,]>>()?;
            }
            Ok(())
        };
        let parsed = parser.parse2(arguments);
        errors.take(parsed);
        args
    }

    pub(crate) fn get(&self, argument: Argument) -> Option<&Written> {
        self.0.iter().find(|written| written.argument == argument)
    }

    pub(crate) fn value(&self, argument: Argument) -> Option<&Expr> {
        self.get(argument).map(|written| &written.value)
    }

    /// Those of `arguments` that are there, in the order they were written.
    pub(crate) fn among(&self, arguments: &[Argument]) -> Vec<&Written> {
        self.0.iter().filter(|written| arguments.contains(&written.argument)).collect()
    }

    fn add(&mut self, ident: Ident, value: Expr, errors: &mut Errors) {
        let text = ident.unraw().to_string();
        match Argument::named(&text) {
            None => errors.at(ident, names::unknown(&text)),
            Some(argument) if self.get(argument).is_some() => {
                errors.at(ident, format!("`{text}` is given twice: keep one"));
            }
            Some(argument) => self.0.push(Written { argument, ident, value }),
        }
    }
}

/// One `name = value`, up to the comma after it.
fn argument(input: ParseStream<'_>) -> syn::Result<(Ident, Expr)> {
    if !input.peek(Ident::peek_any) {
        return Err(input.error("expected an argument, such as `key = \"getId\"`"));
    }
    let ident = input.call(Ident::parse_any)?;
    let valued = input.parse::<Option<Token![=]>>()?.is_some();
    if !valued || at_end(input) {
        return Err(syn::Error::new(ident.span(), format!("`{ident}` needs a value: `{ident} = …`")));
    }
    let value = ungroup(input.parse()?);
    if !at_end(input) {
        return Err(input.error("expected `,` before the next argument"));
    }
    Ok((ident, value))
}

fn at_end(input: ParseStream<'_>) -> bool {
    input.is_empty() || input.peek(Token![,])
}

/// Goes to the comma before the next `name =`: others may belong to what could not be read.
fn skip_argument(input: ParseStream<'_>) -> syn::Result<()> {
    let at_next = || input.peek(Token![,]) && input.peek2(Ident::peek_any) && input.peek3(Token![=]);
    while !input.is_empty() && !at_next() {
        input.parse::<TokenTree>()?;
    }
    Ok(())
}

/// What a `macro_rules!` fragment such as `$max:expr` passes on comes in an invisible group.
fn ungroup(value: Expr) -> Expr {
    match value {
        Expr::Group(group) if group.attrs.is_empty() => ungroup(*group.expr),
        other => other,
    }
}
