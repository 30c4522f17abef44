//! Repeated faults of one server, or of its network, under load. Calls from one process keep every algorithm's bound
//! throughout.

use std::thread::sleep;
use std::time::{Duration, Instant};

use limiter_testkit::{Proxy, RedisServer, Reply};
use rate_limited::{Decision, Key, Limit, Limiter, Source};

use super::bounds::{check_server_windows, check_worst_window};
use super::calls::{CallRecord, Demand, Load, Target, admitted_between_resets};
use super::charges::check_calls_after_charges;
use super::round::{Outcome, Round, connect, runtime};
use super::schedules::ALGORITHMS;
use crate::transport::limiter_builder;

/// The limiter's default deadline.
const DEADLINE: Duration = Duration::from_millis(100);

/// The time in which the store must decide again on the slowest machine.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) fn round(round: &mut Round) -> Outcome {
    let runtime = runtime();
    let mut server = round.transport.server().start();
    let proxy = Proxy::start(&server);
    let builder = || limiter_builder(proxy.url(), server.ca_certificate()).deadline(DEADLINE).leases(round.leases);
    let limiter = connect(&runtime, builder)?;
    let windows = if round.short { (100, 500) } else { (100, 1_500) };
    let mut targets = Target::for_round(round, windows);
    let checked = targets.len();
    // These keys outlast the round, so that one without an expiry is detected.
    targets.extend(ALGORITHMS.iter().map(|algorithm| {
        let limit = Limit::new(100_000, Duration::from_secs(3_600)).expect("a limit").with_algorithm(*algorithm);
        Target { key: Key::new("lasting:").part(format!("{algorithm:?}")), limit, cost: 2, resets: true }
    }));
    let demand = Demand::random(round, 60);
    let load = Load::start(runtime.handle(), std::slice::from_ref(&limiter), &targets, demand, round);

    let length = if round.short { Duration::from_millis(1_200) } else { round.millis(3_000, 7_000) };
    let mut history = Vec::new();
    let mut violations = Vec::new();
    sleep(round.millis(100, 400));
    while load.elapsed() < length {
        let began = load.elapsed();
        let fault = inject_fault(round, &mut server, &proxy, &mut violations);
        history.push(format!("{fault} {:.0?}-{:.0?}", began, load.elapsed()));
        round.count("faults", 1);
        let pause = if round.once_in(2) { 60 } else { 600 };
        sleep(round.millis(1, pause));
    }
    proxy.pass();
    runtime.block_on(wait_for_recovery(&limiter))?;
    let calls = runtime.block_on(load.stop(round));
    report_keys_without_expiry(round, &server, &mut violations);
    if let Some(violation) = violations.pop() {
        return Err(violation);
    }
    check_bounds(&targets[..checked], &calls).map_err(|what| format!("{what}\nfaults: {}", history.join(", ")))
}

/// Checks calls from one process by the bounds of their algorithms.
pub(super) fn check_bounds(targets: &[Target], calls: &[Vec<CallRecord>]) -> Outcome {
    for (target, calls) in targets.iter().zip(calls) {
        for part in admitted_between_resets(calls) {
            check_worst_window(target.limit, &part, |_, _| 1)?;
            check_server_windows(target.limit, &part)?;
        }
        check_calls_after_charges(target.limit, calls)?;
    }
    Ok(())
}

/// Injects one fault, ends it after a random time, and returns its name.
fn inject_fault(
    round: &mut Round,
    server: &mut RedisServer,
    proxy: &Proxy,
    violations: &mut Vec<String>,
) -> &'static str {
    let longest = if round.short { 200 } else { 900 };
    let length = round.millis(1, longest);
    let inject = |begin: &dyn Fn(), end: &dyn Fn()| {
        begin();
        sleep(length);
        end();
    };
    match round.random.below(13) {
        0..=2 => {
            report_keys_without_expiry(round, server, violations);
            server.kill();
            sleep(length);
            server.restart();
            return "restart without data";
        }
        3 => {
            server.pause();
            sleep(length);
            server.resume();
            return "SIGSTOP";
        }
        4 => {
            server.flush_scripts();
            return "SCRIPT FLUSH";
        }
        5 => {
            let limit = |bytes: &str| drop(server.command(&["CONFIG", "SET", "maxmemory", bytes]));
            inject(&|| limit("1"), &|| limit("0"));
            return "maxmemory";
        }
        6 => {
            inject(&|| proxy.cut(), &|| proxy.pass());
            return "cut";
        }
        7 => {
            inject(&|| proxy.half_open(), &|| proxy.pass());
            return "half-open";
        }
        8 => {
            inject(&|| proxy.stall(), &|| proxy.pass());
            return "stall";
        }
        9 => {
            inject(&|| proxy.lose_replies(), &|| proxy.pass());
            return "lost replies";
        }
        10 => {
            inject(&|| proxy.cut_replies(), &|| proxy.pass());
            return "cut replies";
        }
        11 => inject(&|| proxy.garble(), &|| proxy.pass()),
        _ => {
            let by = round.millis(50, 300);
            inject(&|| proxy.delay(by), &|| proxy.pass());
            return "delay";
        }
    }
    "garbled replies"
}

/// Reports every key of a server that has no expiry.
pub(super) fn report_keys_without_expiry(round: &mut Round, server: &RedisServer, violations: &mut Vec<String>) {
    let Ok(mut client) = server.client() else { return };
    let Ok(Reply::Array(keys)) = client.call(&["KEYS", "*"]) else { return };
    for key in keys.into_iter().map(Reply::bytes) {
        round.count("keys", 1);
        if matches!(client.call(&[b"PTTL".as_slice(), &key]), Ok(Reply::Integer(-1))) {
            violations.push(format!("{} has no time to live", String::from_utf8_lossy(&key)));
        }
    }
}

/// Waits until the store decides again.
pub(super) async fn wait_for_recovery(limiter: &Limiter) -> Outcome {
    let (key, limit) = (Key::new("afterwards"), "1000000/1h".parse().expect("a limit"));
    let give_up_at = Instant::now() + RECOVERY_TIMEOUT;
    loop {
        let decision = limiter.check(&key, &limit).await;
        match decision {
            Ok(Decision::Allowed(allowed)) if allowed.source() == Source::Store => return Ok(()),
            other if Instant::now() > give_up_at => {
                return Err(format!("the store did not decide again within {RECOVERY_TIMEOUT:?}: {other:?}"));
            }
            _ => tokio::time::sleep(Duration::from_millis(2)).await,
        }
    }
}
