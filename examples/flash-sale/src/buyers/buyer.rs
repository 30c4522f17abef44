//! One buyer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::time::{sleep, sleep_until};

use super::CLUBS;
use super::client::Client;
use super::page::{Offer, Page};
use super::record::{Record, Visit};
use crate::answer::{Answer, Order};

/// The longest random time that is added to a retry, so that buyers do not return at once.
const SPREAD: Duration = Duration::from_millis(1_500);

/// The time before the opening at which buyers who are early call.
const EARLY: Duration = Duration::from_millis(400);

/// The pause after an answer that Redis is away.
const OUTAGE_PAUSE: Duration = Duration::from_secs(1);

/// The time without an answer of the sale after which a buyer leaves. Its visit then counts as lost.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct Buyer {
    index: u32,
    order: Order,
    club: &'static str,
    client: Arc<Client>,
    page: Page,
    offers: Arc<[Offer]>,
}

/// The next step after the answers to the clicks of one moment.
enum Next {
    Done,
    Retry { pause: Duration, is_outage: bool },
}

impl Buyer {
    pub(super) fn new(index: u32, request_prefix: &str, client: Arc<Client>, page: Page, offers: Arc<[Offer]>) -> Self {
        let club = CLUBS[usize::try_from(index).unwrap_or(0) % CLUBS.len()];
        let request = Some(format!("{request_prefix}-{index}"));
        Self {
            index,
            order: Order { buyer: format!("b{index}"), club: club.to_owned(), request },
            club,
            client,
            page,
            offers,
        }
    }

    /// Visits all sales, each buyer from another one on.
    pub(super) async fn run(self) -> Record {
        let mut visits = Vec::new();
        let first = usize::try_from(self.index).unwrap_or(0) % self.offers.len().max(1);
        let (behind, before) = self.offers.split_at(first);
        for offer in before.iter().chain(behind) {
            let visit = self.visit(offer, visits.is_empty()).await;
            visits.push(visit);
        }
        Record { buyer: self.order.buyer, club: self.club, visits }
    }

    /// Calls until there is a final answer. A call whose outcome is unknown is sent again with the same request id.
    async fn visit(&self, offer: &Offer, is_first: bool) -> Visit {
        let mut visit = Visit::new(&offer.id);
        let is_early = self.index % 50 == 1;
        sleep_until((if is_early { offer.opens_at - EARLY } else { offer.opens_at }).into()).await;
        let mut last_answer = Instant::now();
        while last_answer.elapsed() < PATIENCE {
            let pause = match self.click(&mut visit, is_first).await {
                Next::Done => {
                    visit.has_final_answer = true;
                    break;
                }
                Next::Retry { pause, is_outage } => {
                    if !is_outage {
                        last_answer = Instant::now();
                    }
                    pause
                }
            };
            sleep(pause + SPREAD.mul_f64(fastrand::f64())).await;
        }
        visit
    }

    /// Sends one call, or several at once, unless the page shows that the sale is over. All have one request id, as the
    /// clicks on a button do.
    async fn click(&self, visit: &mut Visit, is_first: bool) -> Next {
        let clicks = match self.index % 100 {
            3 if is_first => 5,
            index if index % 5 == 2 => 2,
            _ => 1,
        };
        let _streams = self.client.acquire(self.index, clicks).await;
        if self.page.is_sold_out(&visit.sale) && !visit.has_unknown_outcome() {
            visit.is_turned_away = true;
            return Next::Done;
        }
        let sale = visit.sale.clone();
        let answers = join_all((0..clicks).map(|_| self.client.buy(self.index, &sale, &self.order))).await;
        let (mut is_done, mut retry) = (false, None::<Next>);
        for (answer, call) in answers {
            visit.calls.push(call);
            match answer {
                Some(Answer::Bought { number, .. }) => {
                    visit.bought.push(number);
                    is_done = true;
                }
                Some(Answer::BoughtAlready { number, same_request, .. }) => {
                    visit.confirmed.extend(same_request.then_some(number));
                    is_done = true;
                }
                Some(Answer::SoldOut | Answer::UnknownSale | Answer::BadRequest { .. }) => {
                    visit.is_turned_away = true;
                    is_done = true;
                }
                Some(Answer::Degraded { retry_after_ms }) => retry = Some(Next::after_ms(retry_after_ms)),
                Some(Answer::NotOpen { opens_in_ms }) => retry = Some(Next::after_ms(opens_in_ms)),
                Some(Answer::Unavailable { .. }) | None => {
                    retry.get_or_insert(Next::Retry { pause: OUTAGE_PAUSE, is_outage: true });
                }
            }
        }
        retry.filter(|_| !is_done).unwrap_or(Next::Done)
    }
}

impl Next {
    fn after_ms(millis: u64) -> Self {
        Self::Retry { pause: Duration::from_millis(millis), is_outage: false }
    }
}
