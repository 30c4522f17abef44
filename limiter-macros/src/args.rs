//! The attribute's arguments as written: `name = value, …`, or a text and then arguments. Only the names are checked
//! here.

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Attribute, Expr, ExprLit, Lit, LitInt, LitStr, Meta, Token, token};

use crate::errors::Errors;
use crate::limit_text;
use crate::names::{self, Argument, SKIP};
use crate::value::string;

/// The arguments in the order in which they were written, each at most once.
#[derive(Default)]
pub(crate) struct Args {
    written: Vec<Written>,
    /// Arguments whose value cannot be read. They have an error already, so they are not reported as missing.
    unreadable: Vec<Argument>,
    skip: Option<Ident>,
    /// The text of `#[rate_limited("getId", …)]`, which is the key of a rule without limits of its own.
    text: Option<LitStr>,
    /// The attribute itself, unless it is the one that the compiler expands.
    attribute: Option<Attribute>,
}

/// The required arguments. They are not reported as missing if the attribute's intent is unclear.
const REQUIRED: [Argument; 2] = [Argument::Key, Argument::Limit];

pub(crate) struct Written {
    pub(crate) argument: Argument,
    pub(crate) ident: Ident,
    pub(crate) value: Expr,
}

impl Args {
    /// Parses the arguments of another attribute on the same item.
    pub(crate) fn from_attribute(attribute: &Attribute, errors: &mut Errors) -> Self {
        let arguments = match &attribute.meta {
            Meta::Path(_) => TokenStream::new(),
            Meta::List(list) => list.tokens.clone(),
            Meta::NameValue(meta) => {
                errors.push_at(meta, "the arguments stand in parentheses: `#[rate_limited(key = …)]`");
                return Self { unreadable: REQUIRED.to_vec(), ..Self::default() };
            }
        };
        Self { attribute: Some(attribute.clone()), ..Self::parse(arguments, errors) }
    }

    /// Parses the arguments. After a mistake it continues at the next argument. A misspelt name counts as the nearest
    /// one.
    pub(crate) fn parse(arguments: TokenStream, errors: &mut Errors) -> Self {
        let mut args = Self::default();
        let mut misspelt = Vec::new();
        let parser = |input: ParseStream<'_>| {
            args.parse_text(input, errors)?;
            while !input.is_empty() {
                args.parse_argument(input, &mut misspelt, errors)?;
                input.parse::<Option<Token![,]>>()?;
            }
            Ok(())
        };
        let parsed = parser.parse2(arguments);
        errors.take(parsed);
        args.check_windows(&misspelt, errors);
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

    fn get_mut(&mut self, argument: Argument) -> Option<&mut Written> {
        self.written.iter_mut().find(|written| written.argument == argument)
    }

    pub(crate) fn value(&self, argument: Argument) -> Option<&Expr> {
        self.get(argument).map(|written| &written.value)
    }

    /// Returns those of `arguments` that are present, in the order in which they were written.
    pub(crate) fn select(&self, arguments: &[Argument]) -> Vec<&Written> {
        self.written.iter().filter(|written| arguments.contains(&written.argument)).collect()
    }

    /// Returns whether one of `arguments` is present but cannot be read.
    pub(crate) fn any_unreadable(&self, arguments: &[Argument]) -> bool {
        self.unreadable.iter().any(|argument| arguments.contains(argument))
    }

    /// Returns the word `skip`, if it is present.
    pub(crate) fn skip(&self) -> Option<&Ident> {
        self.skip.as_ref()
    }

    /// Returns the key of an attribute that begins with a text, and takes its limits from configuration.
    pub(crate) fn text(&self) -> Option<&LitStr> {
        self.text.as_ref()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.written.is_empty() && self.unreadable.is_empty()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &Written> {
        self.written.iter()
    }

    /// Reports an error about a missing argument, at the whole attribute.
    pub(crate) fn report_missing(&self, message: &str, errors: &mut Errors) {
        match &self.attribute {
            Some(attribute) => errors.push_at(attribute, message),
            None => errors.push_at_attribute(message),
        }
    }

    /// Parses the text before all arguments, if there is one. It counts as the `key`.
    fn parse_text(&mut self, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<()> {
        if !input.peek(LitStr) {
            return Ok(());
        }
        let text: LitStr = input.parse()?;
        let value = Expr::Lit(ExprLit { attrs: Vec::new(), lit: Lit::Str(text.clone()) });
        self.written.push(Written { argument: Argument::Key, ident: Ident::new("key", text.span()), value });
        self.text = Some(text);
        check_comma(input, errors)?;
        input.parse::<Option<Token![,]>>()?;
        Ok(())
    }

    /// Parses one `name = value`, up to the comma after it.
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
        if name == SKIP {
            return self.parse_skip(ident, input, errors);
        }
        let is_bare = at_end(input);
        let value = parse_value(input, &ident);
        let known = Argument::from_name(&name);
        let meant = known.or_else(|| Argument::meant_by(&name).map(|meant| meant.or_limit(value.as_ref().ok())));
        // A window beside `limit = 100` gets a message about both, once all arguments are read.
        if known.is_none() && (meant != Some(Argument::Window) || value.is_err()) {
            errors.push_at(&ident, names::unknown_message(&name, meant));
        }
        if meant.is_none() && is_bare && names::means_skip(&name) {
            self.unreadable.extend(REQUIRED);
            return Ok(());
        }
        let Some(value) = errors.take(value) else {
            self.unreadable.extend(meant);
            return skip_argument(input);
        };
        match known {
            Some(Argument::Key) if self.text.is_some() => {
                errors.push_at(ident, "`key` is given twice: the text before it is the key, so keep one");
            }
            Some(known) if self.get(known).is_some() => {
                errors.push_at(ident, format!("`{name}` is given twice: keep one"));
            }
            Some(argument) => self.written.push(Written { argument, ident, value }),
            None => misspelt.extend(meant.map(|argument| Written { argument, ident, value })),
        }
        check_comma(input, errors)
    }

    /// Reports misspelt windows, and a number as `limit` beside a window. `limit = 100, per = "min"` is one mistake: the
    /// number counts as `max`.
    fn check_windows(&mut self, misspelt: &[Written], errors: &mut Errors) {
        let unknown: Vec<&Written> = misspelt.iter().filter(|written| written.argument == Argument::Window).collect();
        let number = match self.value(Argument::Limit) {
            Some(Expr::Lit(ExprLit { lit: Lit::Int(number), .. })) if self.get(Argument::Max).is_none() => Some(number),
            _ => None,
        };
        let known = self.get(Argument::Window);
        let split = number.zip(known.or(unknown.first().copied()));
        let fix = split.map(|(number, window)| split_limit_fix(number, &window.value));
        for (place, Written { ident, .. }) in unknown.iter().enumerate() {
            match &fix {
                Some(fix) if known.is_none() && place == 0 => {
                    errors.push_at(ident, format!("unknown argument `{ident}`: {fix}"));
                }
                _ => errors.push_at(ident, names::unknown_message(&ident.to_string(), Some(Argument::Window))),
            }
        }
        let is_known = known.is_some();
        if let (Some(fix), Some(limit)) = (fix, self.get_mut(Argument::Limit)) {
            if is_known {
                errors.push_at(&limit.ident, format!("`limit` is permits and a window in one text: {fix}"));
            }
            limit.argument = Argument::Max;
        }
    }

    fn parse_skip(&mut self, ident: Ident, input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<()> {
        if input.peek(Token![=]) || input.peek(token::Paren) {
            errors.push_at(&ident, "`skip` takes no value: write `#[rate_limited(skip)]`");
            self.unreadable.extend(REQUIRED);
            return skip_argument(input);
        }
        self.skip = Some(ident);
        check_comma(input, errors)
    }
}

/// Returns what to write instead of a number as `limit` beside this window.
fn split_limit_fix(number: &LitInt, window: &Expr) -> String {
    match string(window).filter(|text| limit_text::window(text).is_ok()).map(LitStr::value) {
        Some(window) => {
            format!("write `limit = \"{number}/{window}\"`, or `max = {number}` and `window = \"{window}\"`")
        }
        None => format!("write `max = {number}` beside `window`"),
    }
}

fn check_comma(input: ParseStream<'_>, errors: &mut Errors) -> syn::Result<()> {
    if !at_end(input) {
        errors.push(input.error("expected `,` before the next argument"));
        if !at_argument(input) {
            return skip_argument(input);
        }
    }
    Ok(())
}

fn parse_value(input: ParseStream<'_>, ident: &Ident) -> syn::Result<Expr> {
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

/// Moves to the comma before the next argument. Other commas may be part of the unreadable value.
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
    comma.is_ok() && name.is_ok_and(|name| ahead.peek(Token![=]) || Argument::from_name(&name.to_string()).is_some())
}

/// Unwraps the invisible group around a `macro_rules!` fragment such as `$max:expr`.
fn ungroup(value: Expr) -> Expr {
    match value {
        Expr::Group(group) if group.attrs.is_empty() => ungroup(*group.expr),
        other => other,
    }
}
