//! The attribute of `rate-limited`. Depend on that crate: it re-exports the attribute beside the run time.
//!
//! A small compiler in stages that exchange types, each in the file named after it:
//!
//! ```text
//! arguments ──► args ──┐
//!                      ├──► validate ──► plan ──► expand ──► the item with its decisions
//! item ───────► item ──┘        └── mistakes ──────────────► the item as it was, beside all errors
//! ```
//!
//! Only `args`, `item` and `validate` can fail. `errors` collects their errors, and all of them are reported at once.

mod attribute;

mod args;
mod names;
mod value;
mod limit_text;
mod template;

mod item;
mod params;
mod pattern;
mod output;

mod validate;
mod plan;
mod rebinding;
mod expand;
mod errors;

#[cfg(test)]
mod tests;

use proc_macro::TokenStream;

/// The attribute, documented in the crate `rate-limited`.
#[proc_macro_attribute]
pub fn rate_limited(arguments: TokenStream, item: TokenStream) -> TokenStream {
    attribute::rate_limited(arguments.into(), item.into()).into()
}
