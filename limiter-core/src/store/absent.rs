//! A `RedisStore` that cannot exist, so its methods are never called, for builds without the feature `redis`.

use crate::health::Health;
use crate::local::StoreTicket;
use crate::request::Request;
use crate::request::{CallOptions, CountedReply, RefundInfo, StoreFailure};
use crate::{Error, Key, Limit};

#[derive(Debug)]
pub(crate) enum RedisStore {}

impl RedisStore {
    pub(crate) fn key_name(&self, _: &Request<'_>) -> Option<String> {
        match *self {}
    }

    pub(crate) fn subject(&self, _: &Key) -> String {
        match *self {}
    }

    pub(crate) fn health(&self) -> Health {
        match *self {}
    }

    pub(crate) async fn take(
        &self,
        _: StoreTicket,
        _: &[Request<'_>],
        _: &CallOptions,
    ) -> Result<CountedReply, StoreFailure> {
        match *self {}
    }

    pub(crate) fn renew(&self, _: &Request<'_>) {
        match *self {}
    }

    pub(crate) async fn peek(&self, _: &[Request<'_>], _: &CallOptions) -> Result<CountedReply, StoreFailure> {
        match *self {}
    }

    pub(crate) async fn refund(&self, _: &[Request<'_>], _: RefundInfo) -> Result<(), Error> {
        match *self {}
    }

    pub(crate) async fn reset(&self, _: &Key, _: Limit) -> Result<(), Error> {
        match *self {}
    }
}
