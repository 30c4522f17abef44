//! The attribute as a function from tokens to tokens: expansions of valid input, and messages for invalid input.

mod expansion;
mod mistakes;

use proc_macro2::TokenStream;

fn tokens(source: &str) -> TokenStream {
    source.parse().expect(source)
}
