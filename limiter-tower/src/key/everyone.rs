//! One quota for all requests.

use http::request::Parts;

use super::{Internal, PartialKey, RequestKey};
use crate::missing::Lack;
use crate::piece_name::PieceNames;

/// Counts all requests together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Everyone;

impl RequestKey for Everyone {}

impl Internal for Everyone {
    fn name_pieces(&mut self, _: &mut PieceNames) {}

    fn forms(&self) -> Vec<Vec<String>> {
        vec![Vec::new()]
    }

    fn add_to(&self, key: PartialKey, _: &Parts) -> Result<PartialKey, Lack> {
        Ok(key)
    }
}
