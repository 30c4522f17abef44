//! The sales in Redis.

use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, ErrorKind, Pipeline, RedisError, RedisResult, Script, Value, from_redis_value};

use self::keys::Keys;
pub(crate) use self::ledger::{Ledger, SoldItem};
use crate::answer::Order;
use crate::medals::{Grade, Medals};
use crate::sale::Sale;

mod keys;
mod ledger;

/// The time for a connection, and for the reply to a command. It is generous, as the buyers use the same processors.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The time after which Redis forgets the sales.
const LIFETIME_MS: u64 = 24 * 60 * 60 * 1_000;

/// The sales of one run of the program. Clones share a connection, which is opened again when it is lost.
#[derive(Clone)]
pub(crate) struct Store {
    connection: ConnectionManager,
    script: Script,
    keys: Keys,
    expires_at_ms: u64,
}

/// The result of a purchase.
#[derive(Debug)]
pub(crate) enum Purchase {
    Sold { number: u32 },
    SoldBefore { number: u32, same_request: bool },
    SoldOut,
    NotOpen { opens_in_ms: u64 },
    NoSale,
}

/// All sales at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// The time of Redis.
    pub(crate) now_ms: u64,
    /// The sales in the order in which they were created. `None` for one that has expired or was removed.
    pub(crate) sales: Vec<Option<SaleSnapshot>>,
}

/// A sale at one moment.
#[derive(Debug)]
pub(crate) struct SaleSnapshot {
    pub(crate) opens_at_ms: u64,
    pub(crate) left: u32,
    pub(crate) leaders: Vec<Leader>,
}

/// A club with its medals.
#[derive(Clone, Debug)]
pub(crate) struct Leader {
    pub(crate) club: String,
    pub(crate) medals: Medals,
}

impl Store {
    /// Connects, and creates the sales. Their opening times are by the clock of Redis.
    ///
    /// # Errors
    /// The URL is not one of a single Redis, or the server cannot be reached.
    pub(crate) async fn create(url: &str, run: &str, sales: &[Sale]) -> RedisResult<Self> {
        // No retries: a command fails at once while Redis is away, and the next one connects again.
        let config = ConnectionManagerConfig::new().set_number_of_retries(0);
        let config = config.set_connection_timeout(Some(TIMEOUT)).set_response_timeout(Some(TIMEOUT));
        let mut connection = ConnectionManager::new_with_config(Client::open(url)?, config).await?;
        let keys = Keys::new(run);
        let now_ms = millis(redis::cmd("TIME").query_async(&mut connection).await?);
        let expires_at_ms = now_ms + LIFETIME_MS;
        let mut pipeline = redis::pipe();
        pipeline.atomic();
        for sale in sales {
            let opens_in_ms = u64::try_from(sale.opens_in.as_millis()).unwrap_or(u64::MAX);
            pipeline.zadd(keys.openings(), sale.id, now_ms.saturating_add(opens_in_ms)).ignore();
            pipeline.set(keys.stock(sale.id), sale.items).ignore();
            expire(&mut pipeline, &keys.stock(sale.id), expires_at_ms);
        }
        expire(&mut pipeline, &keys.openings(), expires_at_ms);
        let () = pipeline.query_async(&mut connection).await?;
        Ok(Self { connection, script: Script::new(include_str!("store/buy.lua")), keys, expires_at_ms })
    }

    /// Sells an item, if the sale is open, the buyer has none, and one is left.
    ///
    /// # Errors
    /// Redis is away or does not reply. The item may be sold: another call with the same request finds that out.
    pub(crate) async fn buy(&self, sale: &str, order: &Order) -> RedisResult<Purchase> {
        let mut invocation = self.script.prepare_invoke();
        invocation.key(self.keys.openings()).key(self.keys.stock(sale));
        invocation.key(self.keys.buyers(sale)).key(self.keys.clubs(sale));
        invocation.arg(sale).arg(&order.buyer).arg(order.request.as_deref().unwrap_or_default());
        invocation.arg(&order.club).arg(self.expires_at_ms);
        for last_digit in 0..10 {
            invocation.arg(Grade::of_item(last_digit).score());
        }
        let reply: Vec<u64> = invocation.invoke_async(&mut self.connection.clone()).await?;
        let number = |number: u64| u32::try_from(number).map_err(|_| unexpected());
        match reply[..] {
            [1, sold] => Ok(Purchase::Sold { number: number(sold)? }),
            [2, sold, by] => Ok(Purchase::SoldBefore { number: number(sold)?, same_request: by == 1 }),
            [3] => Ok(Purchase::SoldOut),
            [4, opens_in_ms] => Ok(Purchase::NotOpen { opens_in_ms }),
            [5] => Ok(Purchase::NoSale),
            _ => Err(unexpected()),
        }
    }

    /// Reads all sales at one moment, with as many of the best clubs.
    ///
    /// # Errors
    /// Redis is away, or has keys of other types.
    pub(crate) async fn snapshot(&self, sales: &[Sale], top: u32) -> RedisResult<Snapshot> {
        let mut pipeline = redis::pipe();
        pipeline.atomic().cmd("TIME");
        for sale in sales {
            pipeline.zscore(self.keys.openings(), sale.id).get(self.keys.stock(sale.id));
            let last = isize::try_from(top).unwrap_or(isize::MAX) - 1;
            pipeline.zrevrange_withscores(self.keys.clubs(sale.id), 0, last);
        }
        let values: Vec<Value> = pipeline.query_async(&mut self.connection.clone()).await?;
        let mut values = values.into_iter();
        let mut next = || values.next().ok_or_else(unexpected);
        let now_ms = millis(from_redis_value(next()?)?);
        let mut snapshot = Snapshot { now_ms, sales: Vec::new() };
        for _ in sales {
            let opens_at: Option<f64> = from_redis_value(next()?)?;
            let left: Option<i64> = from_redis_value(next()?)?;
            let leaders = leaders(from_redis_value(next()?)?);
            let sale = opens_at.zip(left).map(|(opens_at, left)| SaleSnapshot {
                opens_at_ms: whole_millis(opens_at),
                left: u32::try_from(left.max(0)).unwrap_or(u32::MAX),
                leaders,
            });
            snapshot.sales.push(sale);
        }
        Ok(snapshot)
    }

    /// Reads all that Redis has of a sale.
    ///
    /// # Errors
    /// Redis is away, has lost the sale, or has keys of other types.
    pub(crate) async fn ledger(&self, sale: &str) -> RedisResult<Ledger> {
        let mut pipeline = redis::pipe();
        pipeline.atomic().get(self.keys.stock(sale)).hgetall(self.keys.buyers(sale));
        pipeline.zrevrange_withscores(self.keys.clubs(sale), 0, -1);
        let values: [Value; 3] = pipeline.query_async(&mut self.connection.clone()).await?;
        let [left, buyers, clubs] = values;
        let left: Option<i64> = from_redis_value(left)?;
        let buyers: Vec<(String, String)> = from_redis_value(buyers)?;
        let items: Option<Vec<_>> = buyers.into_iter().map(|(buyer, value)| SoldItem::parse(buyer, &value)).collect();
        let clubs = leaders(from_redis_value(clubs)?);
        let left = left.ok_or_else(|| missing(sale))?;
        Ok(Ledger { left, items: items.ok_or_else(unexpected)?, clubs })
    }
}

fn expire(pipeline: &mut Pipeline, key: &str, at_ms: u64) {
    pipeline.cmd("PEXPIREAT").arg(key).arg(at_ms).ignore();
}

fn leaders(clubs: Vec<(String, u64)>) -> Vec<Leader> {
    clubs.into_iter().map(|(club, score)| Leader { club, medals: Medals::of_score(score) }).collect()
}

/// Returns the time of a reply to `TIME`, in milliseconds.
fn millis((seconds, micros): (u64, u64)) -> u64 {
    seconds * 1_000 + micros / 1_000
}

/// Returns an opening time in whole milliseconds, rounded up. Someone may have written a fraction into Redis.
fn whole_millis(millis: f64) -> u64 {
    format!("{:.0}", millis.ceil()).parse().unwrap_or(0)
}

/// Returns the error of a sale that was removed, as by a Redis that lost its data.
fn missing(sale: &str) -> RedisError {
    (ErrorKind::UnexpectedReturnType, "Redis has lost a sale", sale.to_owned()).into()
}

fn unexpected() -> RedisError {
    (ErrorKind::UnexpectedReturnType, "a reply that the sales do not have").into()
}
