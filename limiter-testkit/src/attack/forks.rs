//! Processes that fork while no other thread is inside the limiter: a child's calls are counted as everybody's, or fail at
//! once, and no process reads what was written to another.

use std::fs;
use std::time::Duration;

use rate_limited::{Decision, ErrorKind, Key, Limit, Limiter, OnError, Source};

use super::round::{Outcome, Round};
use crate::fork::{Ended, fork};
use crate::server::{RedisServer, unique};

/// The time for a child to end, on the slowest machine.
const ENDS: Duration = Duration::from_secs(60);

/// What a child returns instead of the number of its calls that were allowed.
const FAILED: u8 = 97;

/// What the system says of a child that is none, which only the library can ask it: without it there is no such file.
const NO_CHILD: i32 = 10;

pub(super) fn round(round: &mut Round) -> Outcome {
    if !fs::read_to_string("/limiter-testkit/wait/1/0").is_err_and(|error| error.raw_os_error() == Some(NO_CHILD)) {
        round.count("rounds without the library that forks", 1);
        return Ok(());
    }
    for _ in 0..if round.short { 3 } else { 10 } {
        family(round)?;
    }
    Ok(())
}

fn family(round: &mut Round) -> Outcome {
    let is_memory = round.once_in(4);
    let builder = Limiter::builder().on_error(OnError::Raise).deadline(Duration::from_secs(30));
    let builder = if is_memory { builder } else { builder.url(&RedisServer::shared().url()).prefix(&unique("forked")) };
    let limiter = builder.build().expect("a URL");
    let (key, limit) =
        (Key::new("family"), Limit::new(round.small(3, 50), Duration::from_secs(3_600)).expect("a limit"));
    let max = u64::from(limit.max());
    let calls = |times: u64| -> Result<u64, String> {
        let mut allowed = 0;
        for _ in 0..times {
            match limiter.check_blocking(&key, &limit).map_err(|error| format!("the parent: {error}"))? {
                Decision::Allowed(given) if given.source() == Source::Store => allowed += 1,
                Decision::Denied(_) => {}
                other => return Err(format!("the parent: {other:?}")),
            }
        }
        Ok(allowed)
    };
    // A limiter that has not been used before the fork is one of the cases.
    let before = calls(round.random.below(10))?;
    let each = round.random.between(1, 8);
    let children: Vec<_> =
        (0..round.random.between(1, 10)).map(|_| fork(|| child(&limiter, &key, limit, each))).collect();
    round.count("children", u64::try_from(children.len()).expect("few"));
    let after = calls(round.random.below(10))?;
    let mut total = before + after;
    for (number, child) in children.into_iter().enumerate() {
        let allowed = match child.ended_within(ENDS) {
            Ended::Returned(FAILED) => {
                return Err(format!("child {number}: a call failed, or was decided by another than the store"));
            }
            Ended::Returned(allowed) => u64::from(allowed),
            ended => return Err(format!("child {number} of {each} calls: {ended:?}")),
        };
        if is_memory && before + allowed > max {
            return Err(format!("child {number} was allowed {allowed} after {before}, of {limit} in memory"));
        }
        total += allowed;
    }
    if is_memory {
        return Ok(());
    }
    let left = limiter.peek_blocking(&key, &limit).map_err(|error| format!("the parent: {error}"))?.remaining();
    let used = max - u64::from(left);
    if used != total {
        return Err(format!("parent and children were allowed {total} calls of {limit}, but {used} are counted"));
    }
    Ok(())
}

/// Makes its calls on the only thread of the child.
fn child(limiter: &Limiter, key: &Key, limit: Limit, calls: u64) -> u8 {
    let mut allowed = 0;
    for number in 0..calls {
        let decision = match number % 3 {
            2 => limiter.wait_blocking(key, &limit, Duration::from_millis(5)),
            _ => limiter.check_blocking(key, &limit),
        };
        match decision {
            Ok(Decision::Allowed(given)) if given.source() == Source::Store => allowed += 1,
            Ok(Decision::Denied(_)) => {}
            Err(error) if error.kind() == ErrorKind::Forked => {}
            _ => return FAILED,
        }
    }
    allowed
}
