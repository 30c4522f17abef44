//! The attribute of `rate-limited`: depend on that crate, which re-exports it beside the run time it expands to.
//!
//! A small compiler in stages that exchange types, each in the file named after it:
//!
//! ```text
//! arguments ──► args ──┐
//!                      ├──► validate ──► plan ──► expand ──► the function with its prologue
//! function ───► item ──┘        └── mistakes ──────────────► the function as it was, beside all errors
//! ```
//!
//! Only `args`, `item` and `validate` can fail; what they find wrong is gathered in `errors` and reported at once.

mod attribute;

mod args;
mod names;
mod suggest;
mod literal;
mod duration;
mod template;

mod item;
mod params;
mod output;

mod validate;
mod plan;
mod expand;
mod errors;

#[cfg(test)]
mod tests;

use proc_macro::TokenStream;

/// Limits how often a function runs: at most `max` times in any `window`, counted by `key`.
///
/// Before the body a few lines are added that ask the limiter; when the limit is reached they return what `fallback`
/// gives, and the body does not run. The body itself stays as it was written.
///
/// | argument | value | meaning |
/// |---|---|---|
/// | `key` | `"getId"`, `"user:{user_id}"`, or any other expression | what is counted together; required |
/// | `name` | string literal | the rule's name in configuration and logs; by default the key's text as written |
/// | `window`, `max` | `"10s"` and `5`, or expressions (`Duration`, `u32`) | at most `max` permits in any `window` |
/// | `limit` | `"5/10s"`, `"100/min"`, or a `Limit` | short form of both |
/// | `fallback` | a function's path, a closure, or any other expression | the result when the limit is reached |
/// | `on_error` | `open`, `closed`, `standby`, `raise`, or as `fallback` | when the limiter itself fails |
/// | `limiter` | expression: a `Limiter` or a reference to one | by default the current one |
/// | `crate` | absolute path | where the crate `rate_limited` lives, if it was renamed or re-exported |
///
/// Each argument with examples, and what the attribute expands to, is on the page of the crate that re-exports it.
#[proc_macro_attribute]
pub fn rate_limited(arguments: TokenStream, item: TokenStream) -> TokenStream {
    attribute::rate_limited(arguments.into(), item.into()).into()
}
