//! Keys of several pieces.

use http::request::Parts;

use super::{Internal, KeyFuture, PartialKey, RequestKey};
use crate::missing::Lack;
use crate::piece_name::PieceNames;

/// Returns the forms of two keys one after the other, those of the second one changing fastest.
fn product(first: &[Vec<String>], second: &[Vec<String>]) -> Vec<Vec<String>> {
    first.iter().flat_map(|first| second.iter().map(move |second| [&first[..], second].concat())).collect()
}

macro_rules! tuples {
    ($(($($key:ident $position:tt),+))+) => {
        $(
            impl<$($key: RequestKey),+> RequestKey for ($($key,)+) {}

            impl<$($key: RequestKey),+> Internal for ($($key,)+) {
                fn name_pieces(&mut self, names: &mut PieceNames) {
                    $(self.$position.name_pieces(names);)+
                }

                fn forms(&self) -> Vec<Vec<String>> {
                    let forms = vec![Vec::new()];
                    $(let forms = product(&forms, &self.$position.forms());)+
                    forms
                }

                fn form_count(&self) -> usize {
                    [$(self.$position.form_count()),+].into_iter().fold(1, usize::saturating_mul)
                }

                fn is_async(&self) -> bool {
                    $(self.$position.is_async())||+
                }

                fn add_to(&self, key: PartialKey, parts: &Parts) -> Result<PartialKey, Lack> {
                    $(let key = self.$position.add_to(key, parts)?;)+
                    Ok(key)
                }

                fn add_later<'a>(&'a self, key: PartialKey, parts: &'a Parts) -> KeyFuture<'a> {
                    Box::pin(async move {
                        $(let key = self.$position.add_later(key, parts).await?;)+
                        Ok(key)
                    })
                }
            }
        )+
    };
}

tuples! {
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
}
