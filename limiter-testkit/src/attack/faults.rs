//! One server, or the network before it, that fails again and again under load: from one process every algorithm keeps its
//! bound across all of it.

use std::thread::sleep;
use std::time::{Duration, Instant};

use rate_limited::{Decision, Key, Limit, Limiter, Source};

use super::bounds::{keeps_each_server_window, keeps_the_worst_window};
use super::calls::{Call, Demand, Load, Subject, admitted_between_resets};
use super::round::{Outcome, Round, runtime};
use super::schedules::ALGORITHMS;
use crate::proxy::Proxy;
use crate::resp::Reply;
use crate::server::RedisServer;

/// The default of a limiter.
const DEADLINE: Duration = Duration::from_millis(100);

/// The time until the store must decide again, on the slowest machine.
const COMES_BACK: Duration = Duration::from_secs(30);

pub(super) fn round(round: &mut Round) -> Outcome {
    let runtime = runtime();
    let mut server = RedisServer::start();
    let proxy = Proxy::before(&server);
    let builder = Limiter::builder().url(proxy.url()).deadline(DEADLINE);
    let limiter = runtime.block_on(builder.connect()).map_err(|error| format!("a sound server: {error}"))?;
    let windows = if round.short { (100, 500) } else { (100, 1_500) };
    let mut subjects = Subject::of_all_algorithms(round, windows);
    let judged = subjects.len();
    // Keys that outlast the round, so that one without an expiry is seen.
    subjects.extend(ALGORITHMS.iter().map(|algorithm| {
        let limit = Limit::new(100_000, Duration::from_secs(3_600)).expect("a limit").with_algorithm(*algorithm);
        Subject { key: Key::new("lasting:").part(format!("{algorithm:?}")), limit, cost: 2, resets: true }
    }));
    let demand = Demand::random(round, 60);
    let load = Load::start(runtime.handle(), std::slice::from_ref(&limiter), &subjects, demand, round);

    let lasts = if round.short { Duration::from_millis(1_200) } else { round.millis(3_000, 7_000) };
    let mut history = Vec::new();
    let mut wrong = Vec::new();
    sleep(round.millis(100, 400));
    while load.elapsed() < lasts {
        let began = load.elapsed();
        let fault = befall(round, &mut server, &proxy, &mut wrong);
        history.push(format!("{fault} {:.0?}-{:.0?}", began, load.elapsed()));
        round.count("faults", 1);
        let pause = if round.once_in(2) { 60 } else { 600 };
        sleep(round.millis(1, pause));
    }
    proxy.pass();
    runtime.block_on(comes_back(&limiter))?;
    let calls = runtime.block_on(load.stop(round));
    keys_without_expiry(round, &server, &mut wrong);
    if let Some(wrong) = wrong.pop() {
        return Err(wrong);
    }
    judge(&subjects[..judged], &calls).map_err(|what| format!("{what}\nfaults: {}", history.join(", ")))
}

/// Judges calls from one process.
pub(super) fn judge(subjects: &[Subject], calls: &[Vec<Call>]) -> Outcome {
    for (subject, calls) in subjects.iter().zip(calls) {
        for part in admitted_between_resets(calls) {
            keeps_the_worst_window(subject.limit, &part, |_, _| 1)?;
            keeps_each_server_window(subject.limit, &part)?;
        }
    }
    Ok(())
}

/// Causes one fault, from beginning to end, and names it.
fn befall(round: &mut Round, server: &mut RedisServer, proxy: &Proxy, wrong: &mut Vec<String>) -> &'static str {
    let longest = if round.short { 200 } else { 900 };
    let lasts = round.millis(1, longest);
    let during = |breaks: &dyn Fn(), mends: &dyn Fn()| {
        breaks();
        sleep(lasts);
        mends();
    };
    match round.random.below(13) {
        0..=2 => {
            keys_without_expiry(round, server, wrong);
            server.kill();
            sleep(lasts);
            server.restart();
            return "restart without data";
        }
        3 => {
            server.pause();
            sleep(lasts);
            server.resume();
            return "SIGSTOP";
        }
        4 => {
            server.flush_scripts();
            return "SCRIPT FLUSH";
        }
        5 => {
            let limit = |bytes: &str| drop(server.command(&["CONFIG", "SET", "maxmemory", bytes]));
            during(&|| limit("1"), &|| limit("0"));
            return "maxmemory";
        }
        6 => {
            during(&|| proxy.cut(), &|| proxy.pass());
            return "cut";
        }
        7 => {
            during(&|| proxy.half_open(), &|| proxy.pass());
            return "half-open";
        }
        8 => {
            during(&|| proxy.stall(), &|| proxy.pass());
            return "stall";
        }
        9 => {
            during(&|| proxy.lose_replies(), &|| proxy.pass());
            return "lost replies";
        }
        10 => {
            during(&|| proxy.cut_replies(), &|| proxy.pass());
            return "cut replies";
        }
        11 => during(&|| proxy.garble(), &|| proxy.pass()),
        _ => {
            let by = round.millis(50, 300);
            during(&|| proxy.delay(by), &|| proxy.pass());
            return "delay";
        }
    }
    "garbled replies"
}

/// Notes every key of a server that would stay for ever.
pub(super) fn keys_without_expiry(round: &mut Round, server: &RedisServer, wrong: &mut Vec<String>) {
    let Ok(mut client) = server.client() else { return };
    let Ok(Reply::Array(keys)) = client.call(&["KEYS", "*"]) else { return };
    for key in keys.into_iter().map(Reply::bytes) {
        round.count("keys", 1);
        if matches!(client.call(&[b"PTTL".as_slice(), &key]), Ok(Reply::Integer(-1))) {
            wrong.push(format!("{} has no time to live", String::from_utf8_lossy(&key)));
        }
    }
}

/// Waits until the store decides again.
pub(super) async fn comes_back(limiter: &Limiter) -> Outcome {
    let (key, limit) = (Key::new("afterwards"), "1000000/1h".parse().expect("a limit"));
    let until = Instant::now() + COMES_BACK;
    loop {
        let decision = limiter.check(&key, &limit).await;
        match decision {
            Ok(Decision::Allowed(allowed)) if allowed.source() == Source::Store => return Ok(()),
            other if Instant::now() > until => {
                return Err(format!("the store did not decide again within {COMES_BACK:?}: {other:?}"));
            }
            _ => tokio::time::sleep(Duration::from_millis(2)).await,
        }
    }
}
