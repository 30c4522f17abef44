//! The attribute at work: a burst of calls above a limit, then one call at each instant that a denial promised.
//!
//! ```text
//! cargo run --example quickstart                                    # the embedded store: nothing else is needed
//! cargo run --example quickstart -- --redis redis://127.0.0.1:6379  # two limiters that share one quota. Its default is
//!                                                                   # the environment variable RATE_LIMITED_URL
//! cargo run --example quickstart -- --window 2s --max 3             # another limit
//! ```
//!
//! The example counts the calls that ran from outside, and fails if they exceed the limit.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::env;
use std::error::Error;
use std::io::Write;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clap::Parser;
use rate_limited::{Limit, Limiter, rate_limited};

/// Prints a line. Exits if the reader has closed the pipe.
macro_rules! print_line {
    ($($line:tt)*) => {
        if writeln!(std::io::stdout(), $($line)*).is_err() {
            std::process::exit(0);
        }
    };
}

/// The function to protect, annotated as in the README. It may run 5 times in any 10 seconds.
#[rate_limited(key = "getId", window = "10s", max = 5, fallback = degrade_fn)]
async fn get_id(call: u32) -> String {
    format!("id-{call}")
}

/// The fallback: called with the same arguments when the limit is reached.
async fn degrade_fn(_call: u32) -> String {
    "degraded".to_owned()
}

/// A function with the same key, and a limit that is known only at run time.
#[rate_limited(key = "getId", limit = limit, fallback = degrade_with)]
async fn get_id_with(call: u32, limit: Limit) -> String {
    format!("id-{call}")
}

async fn degrade_with(call: u32, _limit: Limit) -> String {
    degrade_fn(call).await
}

/// Watch a rate limit at work: a burst of calls, then one call at each promised instant.
///
/// Prints the time of each call, whether the function ran or was degraded, the permits left, and the wait after which a
/// degraded call may be retried. Exits with 1 if more calls ran than the limit allows.
#[derive(Parser)]
#[command(name = "quickstart")]
struct Options {
    /// Count in this Redis instead of in this process, with two limiters in turn, as two instances would. Default:
    /// the value of `RATE_LIMITED_URL`, if it is set
    #[arg(long, value_name = "URL", value_parser = redis_url)]
    redis: Option<String>,
    /// The window, for which a call counts: 500ms, 10s, 1m
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = window)]
    window: String,
    /// The most calls in any window, up to 1000
    #[arg(long, value_name = "CALLS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    max: u32,
}

fn redis_url(url: &str) -> Result<String, String> {
    let named = ["redis://", "rediss://", "redis+unix://"].iter().any(|scheme| url.starts_with(scheme));
    if named { Ok(url.to_owned()) } else { Err("write a URL such as redis://127.0.0.1:6379".to_owned()) }
}

/// Returns the value of `RATE_LIMITED_URL`, which limiters that a program does not install use too.
fn url_of_environment() -> Option<String> {
    env::var("RATE_LIMITED_URL").ok().filter(|url| !url.is_empty() && url != "memory:")
}

fn window(text: &str) -> Result<String, String> {
    match format!("1/{text}").parse::<Limit>() {
        Ok(_) => Ok(text.to_owned()),
        Err(_) => Err("write a duration such as 500ms, 10s or 1m".to_owned()),
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let mut options = Options::parse();
    options.redis = options.redis.or_else(url_of_environment);
    match run(options).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("quickstart: {error}");
            ExitCode::from(2)
        }
    }
}

async fn run(options: Options) -> Result<bool, Box<dyn Error>> {
    let limit: Limit = format!("{}/{}", options.max, options.window).parse()?;
    let instances = Instances::start(&options).await?;
    print_heading(&options, limit);

    // A burst of more calls than any window holds.
    let burst = (options.max as usize + 3).max(8);
    let mut calls = Vec::new();
    let mut promised = BinaryHeap::new();
    let mut numbers = 1..;
    for number in numbers.by_ref().take(burst) {
        let call = instances.call(number, limit).await;
        promised.extend(call.promise().map(Reverse));
        calls.push(call);
    }

    // Then one call at each promised instant. Several calls may be promised the same instant. The later of them may
    // find its permits taken; they are promised the next one.
    for number in numbers {
        let Some(Reverse(instant)) = promised.pop() else { break };
        instances.wait_until(instant).await;
        let call = instances.call(number, limit).await;
        promised.extend(call.promise().map(Reverse));
        calls.push(call);
    }

    Ok(print_summary(&calls, limit))
}

/// One call, as its caller sees it.
struct Call {
    start: Instant,
    end: Instant,
    ran: bool,
    retry_after: Option<Duration>,
}

impl Call {
    /// Returns the instant at which a degraded call may be retried.
    fn promise(&self) -> Option<Instant> {
        self.retry_after.map(|wait| self.end + wait)
    }
}

/// The part of a decision that the observers record.
#[derive(Clone, Copy)]
struct Seen {
    remaining: u32,
    retry_after: Option<Duration>,
}

/// One limiter in this process, or two limiters on one Redis that are used in turn.
struct Instances {
    limiters: Vec<Limiter>,
    seen: Arc<Mutex<Option<Seen>>>,
    origin: Instant,
}

impl Instances {
    async fn start(options: &Options) -> Result<Self, rate_limited::Error> {
        let seen = Arc::default();
        let mut limiters = Vec::new();
        match &options.redis {
            None => limiters.push(observed(&seen).build()?),
            Some(url) => {
                for _ in 0..2 {
                    limiters.push(observed(&seen).url(url).connect().await?);
                }
            }
        }
        Ok(Self { limiters, seen, origin: Instant::now() })
    }

    /// Calls the function on the next instance in turn, and prints the result.
    async fn call(&self, number: u32, limit: Limit) -> Call {
        let which = number as usize % self.limiters.len();
        let limiter = &self.limiters[which];
        let start = Instant::now();
        let value = if limit.to_string() == "5/10s" {
            limiter.scope(get_id(number)).await
        } else {
            limiter.scope(get_id_with(number, limit)).await
        };
        let end = Instant::now();
        let seen = self.seen.lock().ok().and_then(|mut seen| seen.take());
        let ran = value != "degraded";
        let instance = if self.limiters.len() > 1 { ["A", "B"][which] } else { "" };
        let remaining = seen.map_or_else(String::new, |seen| seen.remaining.to_string());
        let retry_after = seen.and_then(|seen| seen.retry_after);
        let wait = retry_after.map_or_else(String::new, seconds);
        let result = if ran { "ran" } else { "degraded" };
        print_line!(
            "{:>9}  {number:>4} {instance:1}  {result:<8}  {remaining:>9}  {wait:>11}",
            seconds(start - self.origin)
        );
        Call { start, end, ran, retry_after }
    }

    async fn wait_until(&self, instant: Instant) {
        let wait = instant.saturating_duration_since(Instant::now());
        if wait > Duration::from_millis(100) {
            print_line!("           …  until the next promised instant, at {}", seconds(instant - self.origin));
        }
        tokio::time::sleep_until(instant.into()).await;
    }
}

/// Returns the builder of a limiter whose observers record its last decision.
fn observed(seen: &Arc<Mutex<Option<Seen>>>) -> rate_limited::Builder {
    let keep = |seen: &Arc<Mutex<Option<Seen>>>| {
        let seen = Arc::clone(seen);
        move |remaining, retry_after| {
            if let Ok(mut seen) = seen.lock() {
                *seen = Some(Seen { remaining, retry_after });
            }
        }
    };
    let (allowed, denied) = (keep(seen), keep(seen));
    Limiter::builder()
        .on_allowed(move |event| allowed(event.remaining(), None))
        .on_denied(move |event| denied(event.remaining(), Some(event.retry_after())))
        .on_failure(|error| eprintln!("the store failed: {error}"))
}

fn print_heading(options: &Options, limit: Limit) {
    let Options { max, window, redis } = options;
    let store = match redis {
        None => "counted in this process",
        Some(_) => "counted in Redis, by two limiters A and B",
    };
    print_line!("#[rate_limited(key = \"getId\", window = \"{window}\", max = {max}, fallback = degrade_fn)]");
    print_line!("at most {limit}, {store}\n");
    print_line!("     time  call    result    remaining  retry after");
}

/// Prints a summary, and returns whether the limit was kept.
fn print_summary(calls: &[Call], limit: Limit) -> bool {
    let ran = calls.iter().filter(|call| call.ran).count();
    let most = most_in_a_window(calls, limit.window());
    let kept = most <= limit.max() as usize;
    let verdict = if kept { "never more than" } else { "TOO MANY: the limit is" };
    print_line!(
        "\n{ran} ran, {} degraded; at most {most} ran in any {:?}: {verdict} {}",
        calls.len() - ran,
        limit.window(),
        limit.max()
    );
    kept
}

/// Returns the most calls that certainly ran within one window: those that began and ended inside
/// `[start, start + window)`, where `start` is that of one of them.
///
/// A call is admitted at an unknown instant between its start and its end.
fn most_in_a_window(calls: &[Call], window: Duration) -> usize {
    let ran: Vec<_> = calls.iter().filter(|call| call.ran).collect();
    let inside =
        |first: &Call| ran.iter().filter(|call| call.start >= first.start && call.end < first.start + window).count();
    ran.iter().map(|first| inside(first)).max().unwrap_or(0)
}

/// Formats seconds to the millisecond. It rounds up, so that a printed wait is long enough.
fn seconds(duration: Duration) -> String {
    let millis = duration.as_nanos().div_ceil(1_000_000);
    format!("{}.{:03}s", millis / 1000, millis % 1000)
}
