//! Fuzz tests of the scripts: values that another program has written, or that a fault has changed.

use std::fmt::Write;

use limiter_testkit::{RedisServer, Reply, full_or, unique};

use crate::clock::Clock;
use crate::store::redis::script::{Program, sources};

const ALGORITHMS: [&str; 5] = ["sliding_window", "fixed_window", "sliding_counter", "token_bucket", "leaky_bucket"];

/// The number of decisions in one call of the fuzzing script, and of calls for each algorithm.
///
/// In full they are a million decisions together, and a hundredth of that by default. A call of more than 5 s would
/// make the server BUSY for other clients.
fn decisions() -> (u32, u32) {
    full_or((1_000, 200), (1_000, 2))
}

/// The number of batches in one call, and of calls for each algorithm.
fn batches() -> (u32, u32) {
    full_or((200, 200), (200, 10))
}

/// A fuzzing script with both programs, which use a clock that it sets.
fn with_programs(fuzz: &str) -> String {
    with_named_programs([("decide", Program::Decide), ("batch", Program::Batch)], fuzz)
}

/// A fuzzing script with programs by names, which use a clock that it sets.
pub(super) fn with_named_programs<const N: usize>(programs: [(&str, Program); N], fuzz: &str) -> String {
    let mut source = "local now = { 1700000000, 0 }\n".to_owned() + include_str!("expiries.lua");
    let sources = sources(&Clock::System);
    for (name, program) in programs.map(|(name, program)| (name, &sources[program as usize])) {
        let timed = program.replace("redis.call('TIME')", "now");
        assert_ne!(timed, *program, "the script reads the time");
        writeln!(source, "local function {name}(KEYS, ARGV)\n{timed}\nend").expect("room");
    }
    source + include_str!("changes.lua") + fuzz
}

/// The counts of a fuzzing script. Panics if it found a failure.
fn counts(reply: Reply, algorithm: &str) -> Vec<i64> {
    let Reply::Array(counts) = reply else { panic!("{algorithm}: {}", String::from_utf8_lossy(&reply.bytes())) };
    counts.into_iter().map(Reply::integer).collect()
}

/// The server changes valid values, runs the script on each, and checks the reply: see `values.lua`.
#[test]
fn no_value_makes_the_script_fail() {
    let server = RedisServer::start();
    let key = unique("fuzz");
    let source = with_programs(include_str!("values.lua"));
    let (rounds, calls) = decisions();
    for algorithm in ALGORITHMS {
        let mut all = [0; 7];
        for seed in 1..=calls {
            let (seed, rounds) = (seed.to_string(), rounds.to_string());
            let counts = counts(server.command(&["EVAL", &source, "1", &key, algorithm, &rounds, &seed]), algorithm);
            all.iter_mut().zip(counts).for_each(|(all, count)| *all += count);
        }
        let [foreign, allowed, denied, charged, in_part, used, ended] = all;
        println!(
            "{algorithm}: {foreign} foreign, {allowed} allowed, {denied} denied, {charged} charged, {in_part} in part, \
             {used} used receipts, {ended} ended"
        );
        let all = i64::from(rounds * calls);
        assert_eq!(foreign + allowed + denied + charged + used + ended, all, "{algorithm}");
        let of_each_kind = [foreign, allowed, denied, charged, 10 * in_part, 4 * used, ended];
        // Receipts are two of eleven operations.
        assert!(of_each_kind.iter().all(|count| *count > all / 40), "{algorithm}: of each kind");
    }
}

/// Batches on such values have the results of the same calls one by one, and leave the same values: see `batches.lua`.
#[test]
fn no_value_makes_a_batch_fail_or_differ() {
    let server = RedisServer::start();
    let source = with_programs(include_str!("batches.lua"));
    let keys: Vec<_> = (0..6).map(|_| unique("fuzz")).collect();
    let (rounds, calls) = batches();
    for algorithm in ALGORITHMS {
        let mut all = [0; 11];
        for seed in 1..=calls {
            let (seed, rounds) = (seed.to_string(), rounds.to_string());
            let mut command = vec!["EVAL", &source, "6"];
            command.extend(keys.iter().map(String::as_str));
            command.extend([algorithm, &rounds, &seed]);
            let counts = counts(server.command(&command), algorithm);
            all.iter_mut().zip(counts).for_each(|(all, count)| *all += count);
        }
        let [foreign, granted, left_over, refused, untrimmed, charged, charged_in_part, overdrawn, forms @ ..] = all;
        println!(
            "{algorithm}: {foreign} foreign, {granted} granted, {left_over} in part, {refused} refused, {untrimmed} \
             untrimmed, {charged} charged, {charged_in_part} in part, {overdrawn} beyond the limit; {forms:?} stayed short, \
             became long, and became short"
        );
        let few = i64::from(rounds * calls) / 20;
        assert!([foreign, granted, refused].iter().all(|count| *count > few), "{algorithm}: of each kind");
        assert!(left_over > few || algorithm == "leaky_bucket", "{algorithm}: left over");
        let charges = [charged, 30 * charged_in_part, 5 * overdrawn];
        assert!(charges.iter().all(|count| *count > few / 2), "{algorithm}: charges of each kind");
        assert_eq!(untrimmed > 0, algorithm == "sliding_window", "{algorithm}: untrimmed");
        assert!(
            forms.iter().all(|count| *count > few / 2 || algorithm != "sliding_window"),
            "{algorithm}: of each form"
        );
    }
}
