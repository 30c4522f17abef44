//! The calendar of a build without calendars: no limit has one.

use std::fmt;

use limiter_syntax::Period;

use super::Edges;

/// The type of calendars, which has no value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Calendar {}

impl Calendar {
    pub(crate) const fn period(self) -> Period {
        match self {}
    }

    pub(crate) fn edges_at(self, _: u64) -> Edges {
        match self {}
    }
}

impl fmt::Display for Calendar {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}
