//! The store that processes share, where the feature `redis` is off: a type without values.

use crate::guard::{Failure, Granted, Local, Settled, Terms};
use crate::store::Question;
use crate::{Error, Key, Limit};

#[derive(Debug)]
pub(crate) enum RedisStore {}

impl RedisStore {
    pub(crate) fn local(&self) -> &Local {
        match *self {}
    }

    pub(crate) async fn take(&self, _: &[Question<'_>], _: &Terms) -> Result<Settled, Failure> {
        match *self {}
    }

    pub(crate) async fn peek(&self, _: &[Question<'_>], _: &Terms) -> Result<Settled, Failure> {
        match *self {}
    }

    pub(crate) async fn refund(&self, _: &[Question<'_>], _: Granted) -> Result<(), Error> {
        match *self {}
    }

    pub(crate) async fn reset(&self, _: &Key, _: Limit) -> Result<(), Error> {
        match *self {}
    }
}
