//! Calls above `max_in_flight`, which fail at once: a flood of them must stay cheap.

use std::net::TcpListener;
use std::pin::pin;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use rate_limited::{Key, Limit, Limiter, OnError};

use super::Figure;
use crate::contestant::{Failure, failed};
use crate::spin::poll_once;

pub(super) const NAME: &str = "overloaded";

/// The deadline of calls, longer than the sample, so that the call in flight stays in flight.
const DEADLINE: Duration = Duration::from_secs(60);
/// Calls between two readings of the clock.
const CALLS_PER_READING: u32 = 1_000;

/// Measures the nanoseconds of a call above the limit, while one call is in flight to a server that never replies.
pub(super) fn sample(duration: Duration) -> Result<Figure, Failure> {
    let silent = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    let url = format!("redis://{}", silent.local_addr().map_err(failed)?);
    let limiter = Limiter::builder().url(url.as_str()).deadline(DEADLINE).max_in_flight(1).on_error(OnError::Closed);
    let limiter = limiter.build().map_err(failed)?;
    let (key, limit) = (Key::new("user"), Limit::new(5, Duration::from_secs(10)).map_err(failed)?);
    let mut in_flight = pin!(limiter.check(&key, &limit));
    if in_flight.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
        return Err("a silent server replied".to_owned());
    }
    let (begun, mut calls) = (Instant::now(), 0_u32);
    while begun.elapsed() < duration {
        for _ in 0..CALLS_PER_READING {
            if poll_once(limiter.check(&key, &limit))?.map_err(failed)?.is_allowed() {
                return Err("a call above `max_in_flight` was allowed".to_owned());
            }
        }
        calls += CALLS_PER_READING;
    }
    let value = begun.elapsed().as_nanos() as f64 / f64::from(calls);
    Ok(Figure { row: NAME.to_owned(), unit: "ns".to_owned(), value })
}
