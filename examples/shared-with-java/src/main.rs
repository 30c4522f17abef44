//! Services in Java and in Rust share one quota in Redis, while a fleet moves from one to the other.
//!
//! ```text
//! cargo run -p shared-with-java                                        # on redis://127.0.0.1:6379; ends by itself
//! cargo run -p shared-with-java -- --redis redis://cache:6379 --limit 100/10s --java 3 --rust 1
//! ```
//!
//! The services in Java use the Spring system redis-current-limiter. Here a client in Rust makes the same calls as they
//! do. Both count in the sorted set `CurrentLimiter:shared-with-java`, the services in Rust by `Layout::Zset`. Every
//! second the program prints the calls of both. At the end it counts the most calls that were allowed in any window, and
//! its exit code is 1 if these are more than the limit. docs/spring.md has what the two need to agree on.

use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rate_limited::{Layout, Limit, Limiter, Rule, rate_limited};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::java::JavaService;
use crate::options::Options;
use crate::record::{Counts, Language, Record};

mod java;
mod options;
mod record;

const NAME: &str = "shared-with-java";
/// The pause of a service between two calls.
const PAUSE: Duration = Duration::from_millis(5);

/// A function of the services in Rust. Without Redis it does not run: the standby limiter knows no calls of Java.
#[rate_limited("shared-with-java", limiter = limiter, fallback = false, on_error = closed)]
async fn get_id(limiter: &Limiter) -> bool {
    true
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(&Options::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether the limit was kept.
async fn run(options: &Options) -> Result<bool, Box<dyn Error>> {
    let clock_difference = JavaService::connect(&options.redis, 0)
        .and_then(|mut java| java.clock_difference())
        // Without the URL, which may have a password.
        .map_err(|error| format!("cannot connect to Redis: {error}: start one, or name it by --redis"))?;
    // Java stamps whole milliseconds, by the clock of its host. So its calls are in windows that are exact to this.
    let inexact = Duration::from_millis(u64::try_from(clock_difference.unsigned_abs())?.saturating_add(2));
    if options.limit.window() <= inexact {
        return Err(format!(
            "--limit must have a window longer than {inexact:?}, got {:?}: the clock of Redis and the one of the \
             services differ by {clock_difference} ms, and Java counts in whole milliseconds",
            options.limit.window()
        )
        .into());
    }
    println!("the clock of Redis and the one of the services differ by {clock_difference} ms");

    let record = Arc::new(Record::default());
    let end = Instant::now() + options.length();
    let mut services = JoinSet::new();
    for number in 0..options.java {
        let (java, record) = (JavaService::connect(&options.redis, number)?, Arc::clone(&record));
        let limit = options.limit;
        services.spawn_blocking(move || call_from_java(java, &limit, &record, end));
    }
    for _ in 0..options.rust {
        let rule = Rule::new().limit(options.limit).layout(Layout::Zset);
        let limiter = Limiter::builder().url(&options.redis).rule(NAME, rule).connect().await?;
        services.spawn(call_from_rust(limiter, Arc::clone(&record), end));
    }
    print_each_second(&record, end).await;
    for result in services.join_all().await {
        result?;
    }

    let most = record.most_in_window(options.limit.window() - inexact);
    let max = options.limit.max() as usize;
    println!("at most {most} calls were allowed in any window of {:?}", options.limit.window());
    println!("above the limit {}", most.saturating_sub(max));
    Ok(most <= max)
}

/// Calls until the end, as a thread of a service in Java.
fn call_from_java(mut java: JavaService, limit: &Limit, record: &Record, end: Instant) -> Result<(), String> {
    while Instant::now() < end {
        let sent = Instant::now();
        let is_allowed = java.call(NAME, limit).map_err(|error| format!("a call of Java: {error}"))?;
        record.add(Language::Java, sent, is_allowed);
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// Calls until the end, as a task of a service in Rust.
async fn call_from_rust(limiter: Limiter, record: Arc<Record>, end: Instant) -> Result<(), String> {
    while Instant::now() < end {
        let sent = Instant::now();
        let is_allowed = get_id(&limiter).await;
        record.add(Language::Rust, sent, is_allowed);
        sleep(PAUSE).await;
    }
    Ok(())
}

async fn print_each_second(record: &Record, end: Instant) {
    // The services call already: their first calls belong to the first second.
    let (mut java_before, mut rust_before) = (Counts::default(), Counts::default());
    println!("second  allowed: Java  Rust  denied: Java  Rust");
    for second in 1.. {
        sleep(Duration::from_secs(1).min(end.saturating_duration_since(Instant::now()))).await;
        let (java, rust) = record.counts();
        println!(
            "{second:>6} {:>14} {:>5} {:>13} {:>5}",
            java.allowed - java_before.allowed,
            rust.allowed - rust_before.allowed,
            java.denied - java_before.denied,
            rust.denied - rust_before.denied,
        );
        if Instant::now() >= end {
            return;
        }
        (java_before, rust_before) = (java, rust);
    }
}
