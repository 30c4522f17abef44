//! The shop: purchases under the limits, and their totals.

use std::sync::Arc;

use rate_limited::http::{Fields, fields};
use rate_limited::{Allowed, Decision, Denied, Limit, http, rate_limited};
use tokio::sync::watch;

use crate::answer::{Answer, Order};
use crate::board::Board;
use crate::medals::Grade;
use crate::sale::Sale;
use crate::store::{Purchase, Store};
use crate::totals::Totals;

/// The limits of purchases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The limit of one buyer, for all sales together.
    pub(crate) buyer: Limit,
    /// The limit of one product, for all buyers together.
    pub(crate) product: Limit,
}

pub(crate) struct Shop {
    /// The name of this run of the program, which sets its keys and counts apart from those of other runs.
    pub(crate) run: String,
    pub(crate) sales: Vec<Sale>,
    pub(crate) limits: Limits,
    pub(crate) store: Store,
    pub(crate) totals: Totals,
    /// The state of the sales, which is read from Redis twice a second.
    pub(crate) board: watch::Sender<Arc<Board>>,
}

/// An answer with the fields of the limit that decided. It has none if no limit did.
pub(crate) struct Reply {
    pub(crate) answer: Answer,
    pub(crate) fields: Vec<(&'static str, String)>,
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        Self { answer, fields: Vec::new() }
    }
}

impl Shop {
    /// Buys an item of the sale with this id.
    pub(crate) async fn order(&self, id: &str, order: &Order) -> Reply {
        let board = Arc::clone(&self.board.borrow());
        // Only sales that exist may name a limit's key.
        let Some(sale) = self.sales.iter().find(|sale| sale.id == id && board.has(id)) else {
            return Answer::UnknownSale.into();
        };
        let reply = match board.sold_out(id) {
            // This takes no permit, so that the many who come too late are answered at once.
            Some(sold_out) => sold_out.answer(order).into(),
            None => self.buy(sale, order).await,
        };
        self.totals.count(&reply.answer);
        reply
    }

    // `order.buyer` is unverified: a real shop takes the buyer from a log-in.
    //
    // A sale must not be flooded while the limiter is down, so the policy is `closed`: such a call gets 503.
    #[rate_limited(
        key = "flash-sale:{self.run}:buyer:{order.buyer}",
        name = "buyer",
        limit = self.limits.buyer,
        fallback = refuse(denied),
        on_error = closed,
        permit = allowed
    )]
    #[rate_limited(
        key = "flash-sale:{self.run}:product:{sale.id}",
        name = "product",
        limit = self.limits.product,
        fallback = refuse(denied)
    )]
    async fn buy(&self, sale: &Sale, order: &Order) -> Reply {
        let answer = match self.store.buy(sale.id, order).await {
            Ok(Purchase::Sold { number }) => Answer::Bought { grade: Grade::of_item(number), number },
            Ok(Purchase::SoldBefore { number, same_request }) => {
                Answer::BoughtAlready { grade: Grade::of_item(number), number, same_request }
            }
            Ok(Purchase::SoldOut) => Answer::SoldOut,
            Ok(Purchase::NotOpen { opens_in_ms }) => Answer::NotOpen { opens_in_ms },
            Ok(Purchase::NoSale) => Answer::UnknownSale,
            // The permit stays taken: the item may be sold.
            Err(_) => Answer::Unavailable { is_outcome_known: false },
        };
        Reply { answer, fields: admitted_fields(allowed.into()) }
    }
}

fn admitted_fields(allowed: Allowed) -> Vec<(&'static str, String)> {
    fields(&allowed.into(), Fields::Draft11)
}

/// Returns the degrade answer: 429 of a limit, or 503 of the policy `closed`.
fn refuse(denied: Denied) -> Reply {
    let is_of_policy = http::status(&denied) == 503;
    let retry_after_ms = u64::try_from(denied.retry_after().as_micros().div_ceil(1_000)).unwrap_or(u64::MAX);
    let answer =
        if is_of_policy { Answer::Unavailable { is_outcome_known: true } } else { Answer::Degraded { retry_after_ms } };
    Reply { answer, fields: fields(&Decision::from(denied), Fields::Draft11) }
}
