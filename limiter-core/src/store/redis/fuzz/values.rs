//! Values under our keys that somebody else has written, or that a fault has changed.

use std::fmt::Write;

use limiter_testkit::{RedisServer, Reply, unique};

use super::super::script::Script;
use crate::clock::Clock;

const ALGORITHMS: [&str; 5] = ["sliding_window", "fixed_window", "sliding_counter", "token_bucket", "leaky_bucket"];

/// One call of the fuzzing script, which decides so often. Together a hundred thousand decisions.
const ROUNDS: u32 = 5_000;
const CALLS: u32 = 4;

/// The server makes the values from valid ones, runs the script on each and judges what it says: see `values.lua`.
#[test]
fn no_value_makes_the_script_fail() {
    let server = RedisServer::shared();
    let key = unique("fuzz");
    let script = Script::new(String::new(), Clock::System);
    let mut source = String::new();
    let [program, _] = script.sources();
    let decide = program.replace("redis.call('TIME')", "now");
    assert_ne!(decide, program, "the script asks for the time");
    writeln!(source, "local now = {{ 1700000000, 0 }}\nlocal function decide(KEYS, ARGV)\n{decide}\nend")
        .expect("room");
    source.push_str(include_str!("values.lua"));
    for algorithm in ALGORITHMS {
        let (mut foreign, mut allowed, mut denied) = (0, 0, 0);
        for seed in 1..=CALLS {
            let (seed, rounds) = (seed.to_string(), ROUNDS.to_string());
            let reply = server.command(&["EVAL", &source, "1", &key, algorithm, &rounds, &seed]);
            let Reply::Array(counts) = reply else {
                panic!("{algorithm}: {}", String::from_utf8_lossy(&reply.bytes()))
            };
            let counts: Vec<i64> = counts.into_iter().map(Reply::integer).collect();
            (foreign, allowed, denied) = (foreign + counts[0], allowed + counts[1], denied + counts[2]);
        }
        println!("{algorithm}: {foreign} foreign, {allowed} allowed, {denied} denied");
        assert_eq!(foreign + allowed + denied, i64::from(ROUNDS * CALLS), "{algorithm}");
        assert!(foreign > 1_000 && allowed > 1_000 && denied > 1_000, "{algorithm}: of each kind");
    }
}
