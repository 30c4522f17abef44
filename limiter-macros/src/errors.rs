//! All mistakes of one attribute, collected so that one compile reports them all.

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

    /// Adds an error that points at all of `culprit`.
    pub(crate) fn push_at(&mut self, culprit: impl ToTokens, message: impl Display) {
        self.push(syn::Error::new_spanned(culprit, message));
    }

    /// Adds an error that points at the whole attribute, for an argument that is missing.
    pub(crate) fn push_at_attribute(&mut self, message: impl Display) {
        self.push(syn::Error::new(Span::call_site(), message));
    }

    /// Returns the value, or adds the error.
    pub(crate) fn take<T>(&mut self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    /// Adds the errors of another method of the same `impl` block, without those that are here already.
    pub(crate) fn merge(&mut self, others: Self) {
        let known: Vec<String> = self.0.iter().flatten().map(|error| error.to_string()).collect();
        for error in others.0.into_iter().flatten() {
            if !known.contains(&error.to_string()) {
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
