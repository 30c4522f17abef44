//! A sale that is over: its calls are answered from memory.

use std::collections::HashMap;

use crate::answer::{Answer, Order};
use crate::medals::Grade;
use crate::store::{Ledger, SoldItem};

/// All items of a sale that has none left. It does not change any more, so its copy is exact.
#[derive(Debug)]
pub(crate) struct SoldOutSale {
    items: HashMap<String, SoldItem>,
}

impl SoldOutSale {
    /// Takes the items of a ledger that was read after the last item was sold.
    pub(crate) fn new(ledger: Ledger) -> Self {
        Self { items: ledger.items.into_iter().map(|item| (item.buyer.clone(), item)).collect() }
    }

    /// Returns the answer that the script would return. A buyer whose answer was lost learns here that it has an item.
    pub(crate) fn answer(&self, order: &Order) -> Answer {
        let Some(SoldItem { number, request, .. }) = self.items.get(&order.buyer) else { return Answer::SoldOut };
        let same_request = !request.is_empty() && order.request.as_ref() == Some(request);
        Answer::BoughtAlready { grade: Grade::of_item(*number), number: *number, same_request }
    }
}
