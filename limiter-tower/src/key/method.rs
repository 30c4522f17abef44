//! Quotas by method.

use http::request::Parts;

use super::{Internal, PartialKey, RequestKey};
use crate::missing::Lack;
use crate::piece_name::PieceNames;

/// Counts by the request's method, such as `GET`.
///
/// `HEAD` counts as `GET`: frameworks run the handler of `GET` for it. A method is the client's text, so all methods that
/// are not standard count together, as `other`. An invented one has no quota of its own.
///
/// Its part in overrides is `method`, with one of the values `CONNECT`, `DELETE`, `GET`, `OPTIONS`, `PATCH`, `POST`,
/// `PUT`, `TRACE` and `other`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Method;

const NAME: &str = "method";
/// The name, with the kind of the values: see `key/template.rs` of limiter-core.
const PIECE: &str = "method:/method";

impl RequestKey for Method {}

impl Internal for Method {
    fn name_pieces(&mut self, names: &mut PieceNames) {
        names.reserve(NAME);
    }

    fn forms(&self) -> Vec<Vec<String>> {
        vec![vec![PIECE.to_owned()]]
    }

    fn add_to(&self, key: PartialKey, parts: &Parts) -> Result<PartialKey, Lack> {
        Ok(key.add(":method:", counted_as(&parts.method)))
    }
}

/// Returns the text by which a method counts. `rule/override_index/methods.rs` of limiter-core has the list of these texts.
fn counted_as(method: &http::Method) -> &str {
    use http::Method;
    match *method {
        Method::HEAD => Method::GET.as_str(),
        Method::CONNECT
        | Method::DELETE
        | Method::GET
        | Method::OPTIONS
        | Method::PATCH
        | Method::POST
        | Method::PUT
        | Method::TRACE => method.as_str(),
        _ => "other",
    }
}
