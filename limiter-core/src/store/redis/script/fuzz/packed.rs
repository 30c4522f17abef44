//! Packed counts beside counts with keys of their own: the same replies and the same values, whatever happened before.

use limiter_testkit::{RedisServer, Reply, full_or, unique};

use super::values::with_named_programs;
use crate::store::redis::script::Program;

const ALGORITHMS: [&str; 4] = ["sliding_window", "fixed_window", "sliding_counter", "calendar"];
const COUNTS: usize = 6;
const ROUNDS: u32 = 400;

/// The number of calls of the fuzzing script for each algorithm.
fn calls() -> u32 {
    full_or(100, 12)
}

/// The counts of a fuzzing script.
#[derive(Default, Debug)]
struct Seen {
    calls: i64,
    refused: i64,
    moved_out: i64,
    returned: i64,
    swept: i64,
    foreign: i64,
    stayed: i64,
}

/// The writes that sweep their hash.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SweepingWrites {
    None,
    All,
    /// Those of simple decisions.
    Simple,
}

fn run(algorithm: &str, sweeping: SweepingWrites) -> Seen {
    let server = RedisServer::start();
    let programs = [("decide", Program::Decide), ("batch", Program::Batch), ("packed", Program::Packed)];
    let mut source = with_named_programs(programs, include_str!("packed.lua"));
    let sweeps = sweeping != SweepingWrites::None;
    let of_others = "    sweep(hashes[field]";
    let replaced = [
        ("= 64, 1024, 2\n", if sweeps { "= 1, 1, 9\n" } else { "= 1, 1, 0\n" }),
        (of_others, if sweeping == SweepingWrites::Simple { "    tostring(hashes[field]" } else { of_others }),
    ];
    for (text, replacement) in replaced {
        assert!(source.contains(text), "the sweeps of the script: {text}");
        source = source.replace(text, replacement);
    }
    let mut seen = Seen::default();
    for seed in 1..=calls() {
        let keys: Vec<_> = (0..2 + 2 * COUNTS).map(|_| unique("packed")).collect();
        let (rounds, seed, count) = (ROUNDS.to_string(), seed.to_string(), keys.len().to_string());
        let mut command = vec!["EVAL", &source, &count];
        command.extend(keys.iter().map(String::as_str));
        command.extend([algorithm, &rounds, &seed, if sweeps { "1" } else { "0" }]);
        let reply = server.command(&command);
        let Reply::Array(counts) = reply else {
            panic!("{algorithm} {seed}: {}", String::from_utf8_lossy(&reply.bytes()))
        };
        let counts: Vec<_> = counts.into_iter().map(Reply::integer).collect();
        let all = [
            &mut seen.calls,
            &mut seen.refused,
            &mut seen.moved_out,
            &mut seen.returned,
            &mut seen.swept,
            &mut seen.foreign,
            &mut seen.stayed,
        ];
        all.into_iter().zip(counts).for_each(|(all, count)| *all += count);
    }
    println!("{algorithm}: {seen:?}");
    seen
}

#[test]
fn packed_counts_are_those_of_keys_of_their_own() {
    for algorithm in ALGORITHMS {
        let seen = run(algorithm, SweepingWrites::None);
        let few = i64::from(ROUNDS * calls()) / 200;
        assert!(seen.foreign > 0, "{algorithm}: {seen:?}");
        let is_log = algorithm == "sliding_window";
        assert_eq!([seen.refused, seen.moved_out, seen.returned, seen.stayed].map(|number| number > few), [is_log; 4]);
    }
}

#[test]
fn a_sweep_deletes_nothing_that_counts() {
    for algorithm in ALGORITHMS {
        let seen = run(algorithm, SweepingWrites::All);
        assert!(seen.swept > 100, "{algorithm}: {seen:?}");
        assert_eq!(seen.stayed, 0, "{algorithm}: no slot moves");
    }
}

#[test]
fn simple_decisions_sweep_too() {
    let seen = run("sliding_window", SweepingWrites::Simple);
    assert!(seen.swept > 20, "{seen:?}");
}
