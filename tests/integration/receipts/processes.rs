//! Receipts that two processes of the system use at once. To the permit, one use of each counts.

use std::io::{BufRead, BufReader, Write, stderr, stdin};
use std::process::{Child, ChildStderr, ChildStdin, Stdio};
use std::time::Duration;

use limiter_testkit::{Random, RedisServer, full_or, unique};
use rate_limited::Algorithm::FixedWindow;
use rate_limited::{ErrorKind, Key, Limit, Limiter, OnError};

use super::SECRET;
use crate::child_process;
use crate::settles::{left, take};
use crate::support::{LONG_DEADLINE, limit};

/// Receipts that each process gets at once.
const CHUNK: usize = 50;
const MAX: u32 = 4_000_000;

/// The counter: all permits of the test are in one window.
fn target() -> (Key, Limit) {
    (Key::new("processes"), limit(&format!("{MAX}/366d")).with_algorithm(FixedWindow))
}

fn limiter(url: &str, prefix: &str) -> Limiter {
    let builder = Limiter::builder().url(url).prefix(prefix).deadline(LONG_DEADLINE).on_error(OnError::Raise);
    builder.receipt_secret(SECRET).remember_denials(Duration::ZERO).build().expect("valid")
}

/// A process that settles each receipt that it is given, and ends with its input.
struct Process {
    child: Child,
    receipts: ChildStdin,
    outcomes: BufReader<ChildStderr>,
}

impl Process {
    fn start(url: &str, prefix: &str, seed: u64) -> Self {
        let variables = [("URL", url.to_owned()), ("PREFIX", prefix.to_owned()), ("SEED", seed.to_string())];
        let mut command = child_process::command("receipts::processes::settle_what_is_read", &variables);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("this program runs");
        let (receipts, outcomes) = (child.stdin.take().expect("piped"), child.stderr.take().expect("piped"));
        let mut process = Self { child, receipts, outcomes: BufReader::new(outcomes) };
        assert_eq!(process.read(), "connected");
        process
    }

    fn read(&mut self) -> String {
        let mut line = String::new();
        self.outcomes.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    }

    fn write(&mut self, receipts: &str) {
        self.receipts.write_all(receipts.as_bytes()).expect("it reads");
    }
}

#[tokio::test]
async fn of_two_uses_by_two_processes_one_counts() {
    let (server, prefix) = (RedisServer::start(), unique("receipts"));
    let limiter = limiter(&server.url(), &prefix);
    let (key, limit) = target();
    // Both are connected before the first call, so that they know of no failure since.
    let mut processes = [1, 2].map(|seed| Process::start(&server.url(), &prefix, seed));
    let (mut random, mut counted, mut uses) = (Random::new(38), 0, [0_u32; 2]);
    for chunk in 0..full_or(200, 10) {
        let mut receipts = String::new();
        for _ in 0..CHUNK {
            let cost = u32::try_from(random.between(0, 300)).expect("small");
            let allowed = take(&limiter, &key, &limit, cost).await;
            receipts += &format!("{}\n", limiter.receipt(&key, &allowed).expect("a receipt"));
        }
        processes.iter_mut().for_each(|process| process.write(&receipts));
        for index in 0..CHUNK {
            let outcomes = processes.each_mut().map(|process| process.read());
            let [first, second] = outcomes.each_ref().map(|outcome| outcome.parse::<u32>().ok());
            match (first, second) {
                (Some(actual), None) if outcomes[1] == "used" => (counted, uses[0]) = (counted + actual, uses[0] + 1),
                (None, Some(actual)) if outcomes[0] == "used" => (counted, uses[1]) = (counted + actual, uses[1] + 1),
                _ => panic!("chunk {chunk}, receipt {index}: {outcomes:?}"),
            }
        }
        assert_eq!(left(&limiter, &key, &limit).await, MAX - counted, "chunk {chunk}");
    }
    println!("settled by each: {uses:?}");
    for Process { mut child, receipts, .. } in processes {
        drop(receipts);
        assert!(child.wait().expect("it ends").success());
    }
}

#[tokio::test]
#[ignore = "needs a process of its own"]
async fn settle_what_is_read() {
    if !child_process::is_child() {
        return;
    }
    let [url, prefix, seed] = ["URL", "PREFIX", "SEED"].map(child_process::variable);
    let (limiter, mut random) = (limiter(&url, &prefix), Random::new(seed.parse().expect("a number")));
    let (key, limit) = target();
    left(&limiter, &key, &limit).await;
    let write = |line: &str| writeln!(stderr(), "{line}").expect("written");
    write("connected");
    for line in stdin().lock().lines() {
        let receipt = line.expect("a line").parse().expect("a receipt");
        let actual = u32::try_from(random.between(0, 390)).expect("small");
        match limiter.settle_receipt(&key, &receipt, actual).await {
            Ok(_) => write(&actual.to_string()),
            Err(error) if error.kind() == ErrorKind::Settled => write("used"),
            Err(error) => write(&error.to_string()),
        }
    }
}
