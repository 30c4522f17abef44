//! The rows that one process measures.

use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use rate_limited::{Entered, Key, Limit, Limiter, OnError};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::semaphore::Semaphore;
use crate::contestant::{Failure, failed};
use crate::sample::median;
use crate::server::Server;

/// The pause between calls that find no slot of their process.
pub(super) const LONG_PAUSE: Duration = Duration::from_millis(500);
/// Calls with that pause, a window's and a slot's in turn.
const PAUSED_CALLS: usize = 9;
const CALLS_IN_A_LOOP: usize = 20_000;
const CALLS_IN_MEMORY: u32 = 1_000_000;
const TASKS: u64 = 64;
const MANY_SLOTS: u32 = 10_000;
const LOAD_TIME: Duration = Duration::from_millis(500);
const HAND_OVERS: usize = 40;

/// Returns the time of `enter` and `leave` on the embedded store, in nanoseconds.
pub(super) fn in_memory() -> Result<f64, Failure> {
    let (limiter, key, limit) = (Limiter::memory(), Key::new("slots"), Limit::concurrent(5).map_err(failed)?);
    let start = Instant::now();
    for _ in 0..CALLS_IN_MEMORY {
        let mut entering = pin!(limiter.enter(&key, &limit));
        let Poll::Ready(entry) = entering.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
            return Err("a call in memory waited".to_owned());
        };
        black_box(entry.map_err(failed)?.entered().ok_or("denied")?).leave();
    }
    Ok(start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS_IN_MEMORY))
}

/// Returns the calls a second of many tasks, as a multiple of those that a semaphore in a sorted set makes.
pub(super) fn beside_semaphore(server: &Server) -> Result<f64, Failure> {
    runtime()?.block_on(async {
        let (limiter, limit) = (connect(server).await?, Limit::concurrent(MANY_SLOTS).map_err(failed)?);
        let ours = calls_a_second(move |_| {
            let limiter = limiter.clone();
            async move {
                let entry = limiter.enter(&Key::new("slots"), &limit).await.map_err(failed)?;
                entry.entered().ok_or("denied").map(Entered::leave).map_err(failed)
            }
        });
        let ours = ours.await?;
        let semaphore = Semaphore::connect(&server.url(), MANY_SLOTS).await?;
        let theirs = calls_a_second(move |call| {
            let semaphore = semaphore.clone();
            async move { semaphore.enter_and_leave(call).await }
        });
        let theirs = theirs.await?;
        Ok(ours / theirs)
    })
}

async fn calls_a_second<F, C>(call: F) -> Result<f64, Failure>
where
    F: Fn(u64) -> C + Clone + Send + 'static,
    C: Future<Output = Result<(), Failure>> + Send,
{
    let until = Instant::now() + LOAD_TIME;
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let call = call.clone();
        tasks.spawn(async move {
            let mut calls = 0;
            while Instant::now() < until {
                call(task << 32 | calls).await?;
                calls += 1;
                // A call without a request never waits.
                tokio::task::coop::consume_budget().await;
            }
            Ok::<_, Failure>(calls)
        });
    }
    let mut calls = 0;
    while let Some(task) = tasks.join_next().await {
        calls += task.map_err(failed)??;
    }
    Ok(calls as f64 / LOAD_TIME.as_secs_f64())
}

/// Returns the median time of `enter` as a multiple of that of a check of a window. One task makes both in turn.
pub(super) fn beside_window(server: &Server, pause: Option<Duration>) -> Result<f64, Failure> {
    runtime()?.block_on(async {
        let limiter = connect(server).await?;
        let (key, slots) = (Key::new("key"), Limit::concurrent(5).map_err(failed)?);
        let window = Limit::new(1_000_000, Duration::from_secs(10)).map_err(failed)?;
        let (mut windows, mut entries) = (Vec::new(), Vec::new());
        for _ in 0..pause.map_or(CALLS_IN_A_LOOP, |_| PAUSED_CALLS) {
            let start = Instant::now();
            limiter.check(&key, &window).await.map_err(failed)?.into_result().map_err(failed)?;
            windows.push(start.elapsed().as_secs_f64());
            if let Some(pause) = pause {
                sleep(pause / 2).await;
            }
            let start = Instant::now();
            let entry = limiter.enter(&key, &slots).await.map_err(failed)?;
            entries.push(start.elapsed().as_secs_f64());
            drop(entry.into_result().map_err(failed)?);
            if let Some(pause) = pause {
                sleep(pause / 2).await;
            }
        }
        Ok(median(entries.into_iter()).unwrap_or_default() / median(windows.into_iter()).unwrap_or_default())
    })
}

/// Returns the median time from the end of a call until a call of another limiter has its slot, in milliseconds.
pub(super) fn until_used(server: &Server) -> Result<f64, Failure> {
    runtime()?.block_on(async {
        let (key, limit) = (Key::new("slots"), Limit::concurrent(1).map_err(failed)?);
        let (one, other) = (connect(server).await?, connect(server).await?);
        let mut held = enter(&one, &key, &limit).await?.0;
        let mut times = Vec::new();
        for hand_over in 0..HAND_OVERS {
            let waits = if hand_over % 2 == 0 { other.clone() } else { one.clone() };
            let waiting = tokio::spawn({
                let key = key.clone();
                async move { enter(&waits, &key, &limit).await }
            });
            // The store knows by then that it waits, and the time does not fit to that of polls.
            sleep(Duration::from_millis(120) + Duration::from_micros(1_300) * u32::try_from(hand_over).unwrap_or(0))
                .await;
            let left = Instant::now();
            held.leave();
            let entered_at;
            (held, entered_at) = waiting.await.map_err(failed)??;
            times.push((entered_at - left).as_secs_f64() * 1e3);
        }
        Ok(median(times.into_iter()).unwrap_or_default())
    })
}

async fn enter(limiter: &Limiter, key: &Key, limit: &Limit) -> Result<(Entered, Instant), Failure> {
    let entry = limiter.enter_wait(key, limit, Duration::from_secs(10)).await.map_err(failed)?;
    Ok((entry.into_result().map_err(failed)?, Instant::now()))
}

async fn connect(server: &Server) -> Result<Limiter, Failure> {
    Limiter::builder().url(server.url()).on_error(OnError::Raise).connect().await.map_err(failed)
}

/// Builds a runtime with two workers. The connections of a limiter are none of it.
fn runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().map_err(failed)
}
