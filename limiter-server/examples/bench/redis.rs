//! The time of one client's check on Redis, beside the times of its parts: the script call, and an answer of the server.

use std::time::{Duration, Instant};

use limiter_testkit::{Client, RedisServer, Reply};
use rate_limited::Limiter;

use super::http::{HttpConnection, RULES};
use super::{BenchServer, Kind, ROUND, median};

/// Compares the medians in alternate rounds.
pub(crate) fn compare(rounds: usize) {
    let redis = RedisServer::builder().tcp().start();
    let rules = RULES.parse().expect("rules");
    let server = BenchServer::start(Limiter::builder().url(redis.url()).rules(rules), |server| server);
    let mut http = HttpConnection::open(server.http).expect("the server listens");
    let script = script_call(&redis, &mut http);
    let mut client = redis.client().expect("the server listens");
    let (mut of_script, mut of_constant, mut of_check) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..rounds {
        let script = p50(|_| time_script(&mut client, &script));
        let constant = p50(|user| http.send(Kind::Constant, std::iter::once(user)).expect("the server answers"));
        let check = p50(|user| http.send(Kind::Check, std::iter::once(user)).expect("the server answers"));
        let above = check - script - constant;
        println!(
            "{number:>3} script {script:.0} us, constant {constant:.0} us, check {check:.0} us, {above:.0} us above"
        );
        of_script.push(script);
        of_constant.push(constant);
        of_check.push(check);
    }
    let (script, constant, check) = (median(of_script), median(of_constant), median(of_check));
    println!("medians of {rounds} rounds of one client, each of the p50 of its calls:");
    println!(
        "script {script:.0} us, constant {constant:.0} us, check {check:.0} us, {:.0} us above both",
        check - script - constant
    );
}

/// Returns the arguments of the script call that one check makes.
fn script_call(redis: &RedisServer, http: &mut HttpConnection) -> Vec<Vec<u8>> {
    redis.command(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    let script = loop {
        // The first checks may be decided without the store, or by its text.
        http.send(Kind::Check, std::iter::once(0)).expect("the server answers");
        let entries = redis.command(&["SLOWLOG", "GET", "100"]).array();
        let arguments = entries.into_iter().filter_map(|entry| entry.array().into_iter().nth(3)).map(Reply::array);
        let mut arguments = arguments.map(|all| all.into_iter().map(Reply::bytes).collect::<Vec<_>>());
        if let Some(script) = arguments.find(|arguments| arguments.first().is_some_and(|name| name == b"EVALSHA")) {
            break script;
        }
    };
    redis.command(&["CONFIG", "SET", "slowlog-log-slower-than", "-1"]);
    script
}

fn time_script(client: &mut Client, script: &[Vec<u8>]) -> Duration {
    let sent = Instant::now();
    let reply = client.call(script).expect("Redis replies");
    let time = sent.elapsed();
    assert!(!matches!(reply, Reply::Error(_)), "{reply:?}");
    time
}

/// Returns the median time of the calls of a round, in microseconds.
fn p50(mut call: impl FnMut(usize) -> Duration) -> f64 {
    let (began, mut times) = (Instant::now(), Vec::new());
    while began.elapsed() < ROUND {
        times.push(call(times.len() % 1_000));
    }
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e6
}
