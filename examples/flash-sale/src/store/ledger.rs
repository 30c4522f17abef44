//! All that Redis has of a sale, for the audit.

use super::Leader;

/// The items of a sale that are sold, and the stock.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// The number of items that are left. It is below zero only if more were sold than there were.
    pub(crate) left: i64,
    pub(crate) items: Vec<SoldItem>,
    pub(crate) clubs: Vec<Leader>,
}

/// An item that is sold.
#[derive(Debug)]
pub(crate) struct SoldItem {
    pub(crate) buyer: String,
    pub(crate) number: u32,
    /// The id of the request that bought it; may be empty.
    pub(crate) request: String,
}

impl SoldItem {
    /// Parses a value of the hash of buyers: `number request`.
    pub(crate) fn parse(buyer: String, value: &str) -> Option<Self> {
        let (number, request) = value.split_once(' ')?;
        Some(Self { buyer, number: number.parse().ok()?, request: request.to_owned() })
    }
}
