//! Quotas by method.

use http::request::Parts;

use super::{Internal, PartialKey, RequestKey};
use crate::piece_name::PieceNames;

/// Counts by the request's method, such as `GET`.
///
/// Its part in overrides is `method`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Method;

const NAME: &str = "method";

impl RequestKey for Method {}

impl Internal for Method {
    fn name_pieces(&mut self, names: &mut PieceNames) {
        names.reserve(NAME);
    }

    fn forms(&self) -> Vec<Vec<String>> {
        vec![vec![NAME.to_owned()]]
    }

    fn add_to(&self, key: PartialKey, parts: &Parts) -> Option<PartialKey> {
        Some(key.add(":method:", &parts.method))
    }
}
