//! Settlements that a store executes once, because a receipt that travels may be used by several processes.

use crate::{Error, ErrorKind};

/// A random number that no other receipt has.
pub(crate) type ReceiptId = [u8; 16];

/// The mark by which the store executes a settlement once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Once {
    pub(crate) id: ReceiptId,
    /// The instant from which on it is refused, in microseconds of the store's clock. The mark expires with it.
    pub(crate) end: u64,
}

/// The reason why a store refuses a receipt. Nothing is counted then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReceiptRefusal {
    /// It was used before.
    Spent,
    /// Its end has come.
    Ended,
}

impl From<ReceiptRefusal> for Error {
    fn from(refusal: ReceiptRefusal) -> Self {
        let (kind, problem) = match refusal {
            ReceiptRefusal::Spent => {
                (ErrorKind::Settled, "`receipt` must not be used yet, got one that was: nothing was counted again")
            }
            ReceiptRefusal::Ended => (
                ErrorKind::Config,
                "`receipt` must be used within a window of its decision, or an hour if that is longer, got an older one: \
                 call `charge` for what the call has cost",
            ),
        };
        Self::new(kind, problem)
    }
}
