//! The parts that all services of a layer share, and the answers to rejected requests.

use http::Response;
use http::request::Parts;
use limiter_core::Decision;

use crate::answer::Answer;
use crate::decide::{LayerLimit, Rejected};

/// The parts that all services of a layer share.
pub(crate) struct Shared<K, A> {
    pub(crate) limit: LayerLimit<K>,
    pub(crate) answer: A,
}

impl<K, A> Shared<K, A> {
    /// Returns the answer to a request that the service does not get.
    pub(crate) fn answer<B>(&self, parts: &Parts, rejected: Rejected) -> Response<B>
    where
        A: Answer<B>,
    {
        match rejected {
            Rejected::Denied(denied) => {
                let mut response = self.answer.denied(parts, &denied);
                if !response.status().is_redirection() {
                    self.limit.fields.fields_of(&Decision::Denied(denied)).add_to(response.headers_mut());
                }
                response
            }
            Rejected::Failed(error) => self.answer.failed(error),
            Rejected::LacksKey => self.answer.lacks_key(),
        }
    }
}
