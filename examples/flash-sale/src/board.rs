//! The state of the sales for the pages: read from Redis, and sent as one line of JSON.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rate_limited::Limiter;
use serde::Serialize;
use tokio::time::{MissedTickBehavior, interval};

use crate::medals::Medals;
use crate::shop::Shop;
use crate::sold_out::SoldOutSale;
use crate::store::{Leader, SaleSnapshot, Snapshot};
use crate::totals::Counts;

/// The time from one state to the next.
pub(crate) const REFRESH_INTERVAL: Duration = Duration::from_millis(500);

/// The number of clubs in a state.
pub(crate) const BOARD_CLUBS: u32 = 10;

/// The time over which rates are measured.
const RATE_WINDOW: Duration = Duration::from_secs(1);

/// The state of all sales.
#[derive(Debug)]
pub(crate) struct Board {
    pub(crate) json: String,
    pub(crate) sold: u32,
    sales: Vec<SaleOnBoard>,
}

/// A sale that Redis has.
#[derive(Clone, Debug)]
struct SaleOnBoard {
    id: &'static str,
    sold_out: Option<Arc<SoldOutSale>>,
}

/// A row of a leaderboard.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    place: usize,
    club: String,
    #[serde(flatten)]
    medals: Medals,
}

#[derive(Serialize)]
struct StateOfShop {
    now_ms: u64,
    sales: Vec<StateOfSale>,
    bought: u64,
    degraded: u64,
    failed: u64,
    bought_per_second: u64,
    degraded_per_second: u64,
    limiter: &'static str,
}

#[derive(Serialize)]
struct StateOfSale {
    id: &'static str,
    name: &'static str,
    opens_at_ms: u64,
    state: &'static str,
    items: u32,
    left: u32,
    leaderboard: Vec<Row>,
}

impl Board {
    /// Returns whether Redis has a sale with this id.
    pub(crate) fn has(&self, id: &str) -> bool {
        self.sales.iter().any(|sale| sale.id == id)
    }

    /// Returns the items of a sale that is over.
    pub(crate) fn sold_out(&self, id: &str) -> Option<&SoldOutSale> {
        self.sales.iter().find(|sale| sale.id == id)?.sold_out.as_deref()
    }

    /// The state before the first one.
    pub(crate) fn empty() -> Self {
        Self { json: String::new(), sold: 0, sales: Vec::new() }
    }
}

/// Returns the rows of a leaderboard. Clubs with equal medals are in the order of Redis.
pub(crate) fn rows(leaders: Vec<Leader>) -> Vec<Row> {
    let rows = (1..).zip(leaders);
    rows.map(|(place, Leader { club, medals })| Row { place, club, medals }).collect()
}

/// The task that reads the state and sends it to the pages.
pub(crate) struct Publisher {
    shop: Arc<Shop>,
    rates: Rates,
    last: Snapshot,
    read_at: Instant,
    sold_out: HashMap<&'static str, Arc<SoldOutSale>>,
}

impl Publisher {
    /// Reads and sends the first state.
    ///
    /// # Errors
    /// Redis is away.
    pub(crate) async fn start(shop: Arc<Shop>) -> redis::RedisResult<Self> {
        let last = shop.store.snapshot(&shop.sales, BOARD_CLUBS).await?;
        let (rates, read_at, sold_out) = (Rates::default(), Instant::now(), HashMap::new());
        let mut publisher = Self { shop, rates, last, read_at, sold_out };
        publisher.send();
        Ok(publisher)
    }

    /// Sends a state every half second. While Redis is away, the last state remains and its time goes on.
    pub(crate) async fn run(mut self) {
        let mut ticks = interval(REFRESH_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Ok(snapshot) = self.shop.store.snapshot(&self.shop.sales, BOARD_CLUBS).await {
                (self.last, self.read_at) = (snapshot, Instant::now());
                self.read_sold_out().await;
            }
            self.send();
        }
    }

    /// Reads the items of the sales that are over, once. An operator may add items: then the sale goes on.
    async fn read_sold_out(&mut self) {
        for (sale, snapshot) in self.shop.sales.iter().zip(&self.last.sales) {
            if snapshot.as_ref().is_none_or(|snapshot| snapshot.left > 0) {
                self.sold_out.remove(sale.id);
            } else if !self.sold_out.contains_key(sale.id)
                && let Ok(ledger) = self.shop.store.ledger(sale.id).await
            {
                self.sold_out.insert(sale.id, Arc::new(SoldOutSale::new(ledger)));
            }
        }
    }

    fn send(&mut self) {
        let now_ms = self.last.now_ms + u64::try_from(self.read_at.elapsed().as_millis()).unwrap_or(0);
        let board = self.board(now_ms);
        self.shop.board.send_replace(Arc::new(board));
    }

    fn board(&mut self, now_ms: u64) -> Board {
        let (shop, snapshot) = (&self.shop, &self.last);
        let counts = shop.totals.read();
        let (bought_per_second, degraded_per_second) = self.rates.add(Instant::now(), counts);
        let mut board = Board::empty();
        let mut sales = Vec::new();
        for (sale, snapshot) in shop.sales.iter().zip(&snapshot.sales) {
            let Some(SaleSnapshot { opens_at_ms, left, leaders }) = snapshot else { continue };
            board.sales.push(SaleOnBoard { id: sale.id, sold_out: self.sold_out.get(sale.id).cloned() });
            board.sold += sale.items.saturating_sub(*left);
            let state = match left {
                0 => "sold_out",
                _ if now_ms < *opens_at_ms => "scheduled",
                _ => "open",
            };
            sales.push(StateOfSale {
                id: sale.id,
                name: sale.name,
                opens_at_ms: *opens_at_ms,
                state,
                items: sale.items,
                left: *left,
                leaderboard: rows(leaders.clone()),
            });
        }
        let state = StateOfShop {
            now_ms,
            sales,
            bought: counts.bought,
            degraded: counts.degraded,
            failed: counts.failed,
            bought_per_second,
            degraded_per_second,
            limiter: Limiter::current().health().state.as_str(),
        };
        board.json = serde_json::to_string(&state).unwrap_or_default();
        board
    }
}

/// The totals of the last second.
#[derive(Default)]
struct Rates {
    samples: VecDeque<(Instant, Counts)>,
}

impl Rates {
    /// Adds a sample. Returns purchases and degrade answers per second since the newest sample that is a second old, or
    /// since the first one.
    fn add(&mut self, now: Instant, counts: Counts) -> (u64, u64) {
        self.samples.push_back((now, counts));
        while self.samples.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= RATE_WINDOW) {
            self.samples.pop_front();
        }
        let Some((since, before)) = self.samples.front() else { return (0, 0) };
        let millis = now.duration_since(*since).as_millis().max(1);
        let per_second = |count: u64| u64::try_from(u128::from(count) * 1_000 / millis).unwrap_or(u64::MAX);
        (per_second(counts.bought - before.bought), per_second(counts.degraded - before.degraded))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Rates;
    use crate::totals::Counts;

    #[test]
    fn rates_are_those_of_the_last_second() {
        let (mut rates, start) = (Rates::default(), Instant::now());
        let mut add = |millis, bought, degraded| {
            let counts = Counts { bought, degraded, ..Counts::default() };
            rates.add(start + Duration::from_millis(millis), counts)
        };
        assert_eq!(add(0, 5, 0), (0, 0));
        assert_eq!(add(500, 15, 100), (20, 200));
        assert_eq!(add(1_000, 25, 300), (20, 300));
        assert_eq!(add(1_500, 25, 300), (10, 200));
        assert_eq!(add(4_000, 25, 400), (0, 40));
    }
}
