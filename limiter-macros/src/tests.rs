//! The attribute as a function from tokens to tokens: what it makes of good input, and all it says about bad input.

mod expansion;
mod mistakes;

use proc_macro2::TokenStream;

fn tokens(source: &str) -> TokenStream {
    source.parse().expect(source)
}
