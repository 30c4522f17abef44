//! Every mistake of one attribute, gathered so that one compile shows them all.

use std::fmt::Display;

use proc_macro2::Span;
use quote::ToTokens;

#[derive(Default)]
pub(crate) struct Errors(Option<syn::Error>);

impl Errors {
    pub(crate) fn push(&mut self, error: syn::Error) {
        match &mut self.0 {
            Some(errors) => errors.combine(error),
            None => self.0 = Some(error),
        }
    }

    /// Points at all of `culprit`.
    pub(crate) fn at(&mut self, culprit: impl ToTokens, message: impl Display) {
        self.push(syn::Error::new_spanned(culprit, message));
    }

    /// Points at the whole attribute: for what is missing from it.
    pub(crate) fn at_attribute(&mut self, message: impl Display) {
        self.push(syn::Error::new(Span::call_site(), message));
    }

    /// The value, or its error kept for later.
    pub(crate) fn take<T>(&mut self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    /// Takes over what has not been said yet: methods of one `impl` block share their mistakes.
    pub(crate) fn absorb(&mut self, others: Self) {
        let said: Vec<String> = self.0.iter().flatten().map(|error| error.to_string()).collect();
        for error in others.0.into_iter().flatten() {
            if !said.contains(&error.to_string()) {
                self.push(error);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn into_error(self) -> syn::Error {
        self.0.unwrap_or_else(|| syn::Error::new(Span::call_site(), "`rate_limited` does not understand this"))
    }
}
