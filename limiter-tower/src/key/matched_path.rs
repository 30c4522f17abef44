//! Quotas by route.

use http::request::Parts;

use super::{Internal, PartialKey, RequestKey};
use crate::missing::Lack;
use crate::piece_name::PieceNames;

/// Counts by the request's route, such as `/users/{id}`, as axum 0.8 matched it.
///
/// A request that no route matches lacks it. Add the layer by `Router::route_layer`, or choose what such requests get:
/// [`Missing`](crate::Missing). Its part in overrides is `path`.
#[derive(Clone, Copy, Debug, Default)]
pub struct MatchedPath;

const NAME: &str = "path";

impl RequestKey for MatchedPath {}

impl Internal for MatchedPath {
    fn name_pieces(&mut self, names: &mut PieceNames) {
        names.reserve(NAME);
    }

    fn forms(&self) -> Vec<Vec<String>> {
        vec![vec![NAME.to_owned()]]
    }

    fn add_to(&self, key: PartialKey, parts: &Parts) -> Result<PartialKey, Lack> {
        let path = parts.extensions.get::<axum::extract::MatchedPath>().ok_or(Lack::NoValue)?;
        Ok(key.add(":path:", path.as_str()))
    }
}
