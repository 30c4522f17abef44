//! A key with an alternative.

use http::request::Parts;

use super::{Internal, KeyFuture, PartialKey, RequestKey};
use crate::missing::Lack;
use crate::piece_name::PieceNames;

/// Counts by one key, or by another where it finds nothing: see [`RequestKey::or`].
#[derive(Clone, Debug)]
pub struct Or<A, B> {
    first: A,
    second: B,
    first_forms: usize,
    forms: usize,
}

impl<A: RequestKey, B: RequestKey> Or<A, B> {
    pub(super) fn new(first: A, second: B) -> Self {
        let first_forms = first.form_count();
        let forms = first_forms.saturating_add(second.form_count());
        Self { first, second, first_forms, forms }
    }

    /// Adds the choice to the form. `base` is the form before.
    fn first_form(&self, base: usize, key: PartialKey) -> PartialKey {
        PartialKey { form: base * self.forms + key.form, ..key }
    }

    fn second_form(&self, base: usize, key: PartialKey) -> PartialKey {
        PartialKey { form: base * self.forms + self.first_forms + key.form, ..key }
    }
}

impl<A: RequestKey, B: RequestKey> RequestKey for Or<A, B> {}

impl<A: RequestKey, B: RequestKey> Internal for Or<A, B> {
    fn name_pieces(&mut self, names: &mut PieceNames) {
        let Self { first, second, .. } = self;
        names.alternatives(|names| first.name_pieces(names), |names| second.name_pieces(names));
    }

    fn forms(&self) -> Vec<Vec<String>> {
        let mut forms = self.first.forms();
        forms.extend(self.second.forms());
        forms
    }

    fn form_count(&self) -> usize {
        self.forms
    }

    fn is_async(&self) -> bool {
        self.first.is_async() || self.second.is_async()
    }

    fn add_to(&self, key: PartialKey, parts: &Parts) -> Result<PartialKey, Lack> {
        let base = key.form;
        let key = PartialKey { form: 0, ..key };
        match self.first.add_to(key.clone(), parts) {
            Ok(key) => Ok(self.first_form(base, key)),
            Err(_) => Ok(self.second_form(base, self.second.add_to(key, parts)?)),
        }
    }

    fn add_later<'a>(&'a self, key: PartialKey, parts: &'a Parts) -> KeyFuture<'a> {
        Box::pin(async move {
            let base = key.form;
            let key = PartialKey { form: 0, ..key };
            match self.first.add_later(key.clone(), parts).await {
                Ok(key) => Ok(self.first_form(base, key)),
                Err(_) => Ok(self.second_form(base, self.second.add_later(key, parts).await?)),
            }
        })
    }
}
