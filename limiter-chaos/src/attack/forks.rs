//! Processes that fork while no other thread uses the limiter. A child's calls on Redis are counted with all others, and no
//! process reads a reply to another one. In memory each process counts for itself.

use std::fs;
use std::time::Duration;

use limiter_testkit::{Ended, RedisServer, fork, unique};
use rate_limited::{Decision, Key, Limit, Limiter, OnError, Source};

use super::round::{Outcome, Round, once_connected};

/// The time in which a child must end on the slowest machine.
const CHILD_TIMEOUT: Duration = Duration::from_secs(60);

/// The exit code of a child with a failed call. Other codes are the number of its allowed calls.
const FAILED_CODE: u8 = 97;

/// The system's error for a wait without a child (`ECHILD`). Only the library returns it: without the library there is
/// no such file.
const NO_CHILD_ERROR: i32 = 10;

pub(super) fn round(round: &mut Round) -> Outcome {
    if !fs::read_to_string("/limiter-testkit/wait/1/0").is_err_and(|error| error.raw_os_error() == Some(NO_CHILD_ERROR))
    {
        round.count("rounds without the fork library", 1);
        return Ok(());
    }
    for _ in 0..if round.short { 3 } else { 10 } {
        run_family(round)?;
    }
    Ok(())
}

fn run_family(round: &mut Round) -> Outcome {
    let is_memory = round.once_in(4);
    let builder = Limiter::builder().on_error(OnError::Raise).deadline(Duration::from_secs(30));
    let builder = if is_memory { builder } else { builder.url(RedisServer::shared().url()).prefix(unique("forked")) };
    let limiter = builder.build().expect("a URL");
    let (key, limit) =
        (Key::new("family"), Limit::new(round.small(3, 50), Duration::from_secs(3_600)).expect("a limit"));
    let max = u64::from(limit.max());
    let make_calls = |times: u64| -> Result<u64, String> {
        let mut allowed = 0;
        for _ in 0..times {
            match once_connected(|| limiter.check_blocking(&key, &limit))
                .map_err(|error| format!("the parent: {error}"))?
            {
                Decision::Allowed(permit) if permit.source() == Source::Store => allowed += 1,
                Decision::Denied(_) => {}
                other => return Err(format!("the parent: {other:?}")),
            }
        }
        Ok(allowed)
    };
    // Zero calls before the fork are one of the cases.
    let before = make_calls(round.random.below(10))?;
    let each = round.random.between(1, 8);
    let children: Vec<_> =
        (0..round.random.between(1, 10)).map(|_| fork(|| run_child(&limiter, &key, limit, each))).collect();
    round.count("children", u64::try_from(children.len()).expect("few"));
    let after = make_calls(round.random.below(10))?;
    let mut total = before + after;
    for (number, child) in children.into_iter().enumerate() {
        let allowed = match child.wait_timeout(CHILD_TIMEOUT) {
            Ended::Returned(FAILED_CODE) => {
                return Err(format!("child {number}: a call failed, or was not decided by the store"));
            }
            Ended::Returned(allowed) => u64::from(allowed),
            ended => return Err(format!("child {number} of {each} calls: {ended:?}")),
        };
        if is_memory && allowed != each.min(max) {
            return Err(format!("child {number} was allowed {allowed} of {each} calls, of {limit} in memory"));
        }
        total += allowed;
    }
    if is_memory {
        return Ok(());
    }
    let peeked = once_connected(|| limiter.peek_blocking(&key, &limit));
    let left = peeked.map_err(|error| format!("the parent: {error}"))?.remaining();
    let used = max - u64::from(left);
    if used != total {
        return Err(format!("parent and children were allowed {total} calls of {limit}, but {used} are counted"));
    }
    Ok(())
}

/// Makes the calls of a child on its only thread.
fn run_child(limiter: &Limiter, key: &Key, limit: Limit, calls: u64) -> u8 {
    let mut allowed = 0;
    for number in 0..calls {
        let decide = || match number % 3 {
            2 => limiter.wait_blocking(key, &limit, Duration::from_millis(5)),
            _ => limiter.check_blocking(key, &limit),
        };
        match once_connected(decide) {
            Ok(Decision::Allowed(permit)) if permit.source() == Source::Store => allowed += 1,
            Ok(Decision::Denied(_)) => {}
            other => {
                eprintln!("call {number} of a child: {other:?}");
                return FAILED_CODE;
            }
        }
    }
    allowed
}
