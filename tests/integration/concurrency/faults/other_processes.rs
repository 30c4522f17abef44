//! Slots of processes that are killed, stopped or forked.

use std::io::{BufRead, BufReader, Write, stdin, stdout};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use limiter_testkit::{Ended, ForkLibrary, RedisServer, fork, unique};
use rate_limited::{Entered, Entry, ErrorKind, Key, Limit, Limiter, OnError};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::sleep;

use super::super::{concurrent, denied};
use super::{LONG_SLOT_TIME, Lost, entered_late, in_use, until_in_use};
use crate::child_process;
use crate::support::{LONG_DEADLINE, builder_for, key};

/// A process that holds slots. It is killed when this is dropped.
struct Holder {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// The start of a line with an answer, since the harness prints others.
const ANSWER: &str = "answer:";

impl Holder {
    fn start(server: &RedisServer, prefix: &str, slot_time: Duration) -> Self {
        let variables =
            [("URL", server.url()), ("PREFIX", prefix.to_owned()), ("SLOT_TIME", slot_time.as_secs().to_string())];
        let mut command = child_process::command("concurrency::faults::other_processes::hold_as_ordered", &variables);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("this program runs");
        let (orders, answers) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        Self { child, orders, answers: BufReader::new(answers) }
    }

    /// Gives an order, and returns the answer.
    fn ask(&mut self, order: &str) -> String {
        self.order(order);
        self.answer()
    }

    fn order(&mut self, order: &str) {
        writeln!(self.orders, "{order}").expect("the process lives");
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.answers.read_line(&mut line).expect("the process lives") > 0, "the process has ended");
            if let Some((_, answer)) = line.trim().split_once(ANSWER) {
                return answer.to_owned();
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("the process lives");
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "is another process"]
async fn hold_as_ordered() {
    if !child_process::is_child() {
        return;
    }
    let [url, prefix, slot_time] = ["URL", "PREFIX", "SLOT_TIME"].map(child_process::variable);
    let (key, lost) = (key("a"), Lost::default());
    let slot_time = Duration::from_secs(slot_time.parse().expect("a number"));
    let builder = Limiter::builder().url(&url).prefix(&prefix).deadline(LONG_DEADLINE).slot_time(slot_time);
    let limiter = lost.observe(builder.on_error(OnError::Raise)).connect().await.expect("a server");
    let mut held: Vec<Entered> = Vec::new();
    for order in stdin().lines() {
        let order = order.expect("text");
        let (verb, number) = order.split_once(' ').unwrap_or((&order, "0"));
        match verb {
            "enter" => {
                let limit = concurrent(number.parse().expect("a number"));
                held.push(entered_in_time(&limiter, &key, &limit).await.entered().expect("a free slot"));
            }
            "replace" => {
                drop(held.pop());
                let limit = concurrent(number.parse().expect("a number"));
                held.extend(entered_in_time(&limiter, &key, &limit).await.entered());
            }
            "leave" => drop(held.pop()),
            _ => {}
        }
        println!("{ANSWER}{} held, {} lost", held.len(), lost.slots());
        stdout().flush().expect("a pipe");
    }
}

/// Enters, again after each call that has ended by its deadline. That is a sixth of the slot time at most, which an
/// overloaded machine exceeds.
async fn entered_in_time(limiter: &Limiter, key: &Key, limit: &Limit) -> Entry {
    loop {
        match limiter.enter(key, limit).await {
            Err(error) if error.kind() == ErrorKind::Timeout => {}
            decision => return decision.expect("a decision"),
        }
    }
}

#[tokio::test]
async fn slots_of_a_killed_process_are_free_after_their_time() {
    let (server, prefix, key) = (RedisServer::start(), unique("killed"), key("a"));
    let limiter = builder_for(&server).prefix(&prefix).slot_time(LONG_SLOT_TIME).connect().await.expect("a server");
    let limit = concurrent(3);
    let mut holder = Holder::start(&server, &prefix, Duration::from_secs(1));
    for held in 1..=3 {
        assert_eq!(holder.ask("enter 3"), format!("{held} held, 0 lost"));
    }
    // Its messages keep the slots for longer than their time.
    sleep(Duration::from_millis(1500)).await;
    assert_eq!(holder.ask(""), "3 held, 0 lost");
    drop(denied(&limiter, &key, &limit).await);
    holder.child.kill().expect("the process lives");
    let held = [(); 3].map(|()| entered_late(&limiter, &key, &limit));
    let [one, two, three] = held;
    let _held = (one.await, two.await, three.await);
    drop(denied(&limiter, &key, &limit).await);
}

#[tokio::test]
async fn a_process_that_stands_still_for_half_of_the_slot_time_loses_nothing() {
    const SLOT_TIME: Duration = Duration::from_secs(8);
    let (server, prefix, key) = (RedisServer::start(), unique("stopped"), key("a"));
    let limiter = builder_for(&server).prefix(&prefix).slot_time(LONG_SLOT_TIME).connect().await.expect("a server");
    let mut holder = Holder::start(&server, &prefix, SLOT_TIME);
    for held in 1..=2 {
        assert_eq!(holder.ask("enter 2"), format!("{held} held, 0 lost"));
    }
    for _ in 0..2 {
        holder.signal(Signal::STOP);
        sleep(SLOT_TIME / 2).await;
        holder.signal(Signal::CONT);
        drop(denied(&limiter, &key, &concurrent(2)).await);
        assert_eq!(in_use(&limiter, &key).await, 2);
        // The next message comes.
        sleep(Duration::from_millis(500)).await;
    }
    assert_eq!(holder.ask("leave"), "1 held, 0 lost");
    drop(entered_late(&limiter, &key, &concurrent(2)).await);
}

#[tokio::test]
async fn a_process_that_stands_still_for_longer_reports_its_lost_slots() {
    let (server, prefix, key) = (RedisServer::start(), unique("lost"), key("a"));
    let limiter = builder_for(&server).prefix(&prefix).slot_time(LONG_SLOT_TIME).connect().await.expect("a server");
    let mut holder = Holder::start(&server, &prefix, Duration::from_secs(1));
    let limit = concurrent(2);
    for held in 1..=2 {
        assert_eq!(holder.ask("enter 2"), format!("{held} held, 0 lost"));
    }
    holder.signal(Signal::STOP);
    let held = [entered_late(&limiter, &key, &limit).await, entered_late(&limiter, &key, &limit).await];
    // As soon as it goes on a call ends, and another one must not start in its place.
    holder.order("replace 2");
    holder.signal(Signal::CONT);
    assert!(holder.answer().starts_with("1 held"));
    // The other call goes on, and counts beside those of this process.
    until_in_use(&limiter, &key, 3).await;
    assert!(["1 held, 1 lost", "1 held, 2 lost"].contains(&&holder.ask("")[..]));
    // This process uses its slots again until it hears of the call, or has given them back.
    drop(held);
    until_in_use(&limiter, &key, 1).await;
    let held = entered_late(&limiter, &key, &limit).await;
    drop(denied(&limiter, &key, &limit).await);
    assert!(holder.ask("leave").starts_with("0 held"));
    drop((entered_late(&limiter, &key, &limit).await, held));
}

#[test]
fn slots_are_of_the_process_that_took_them_before_a_fork() {
    let library = ForkLibrary::build();
    child_process::run("concurrency::faults::other_processes::fork_with_slots", &[library.variable()]);
}

/// The number of processes in the value of the key.
fn processes_in_value(server: &RedisServer) -> usize {
    let name = server.keys().into_iter().next().expect("the key of the slots");
    let size = server.command(&["STRLEN", &name]).integer();
    (usize::try_from(size).expect("a size") - 24) / 32
}

#[test]
#[ignore = "needs a process of its own, with a library loaded"]
fn fork_with_slots() {
    if !child_process::is_child() {
        return;
    }
    let server = RedisServer::start();
    let limiter = builder_for(&server).slot_time(LONG_SLOT_TIME).on_error(OnError::Raise).build().expect("valid");
    let (key, limit) = (key("a"), concurrent(3));
    let enter = || limiter.enter_blocking(&key, &limit).expect("a decision");
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let taken = || runtime().block_on(in_use(&limiter, &key));
    // Children of a process without slots are processes of their own.
    let child_that_enters = |expected: bool| {
        let child = fork(|| {
            let entry = limiter.enter_blocking(&Key::new("b"), &concurrent(2)).expect("a decision");
            assert_eq!(entry.is_entered(), expected);
            // Its slot stays in use when it ends.
            std::mem::forget(entry);
            1
        });
        assert_eq!(child.wait_timeout(2 * LONG_DEADLINE), Ended::Returned(1));
    };
    child_that_enters(true);
    child_that_enters(true);
    assert_eq!(processes_in_value(&server), 2);
    child_that_enters(false);
    server.command(&["FLUSHALL"]);
    let mut held = vec![enter(), enter()];
    assert!(held.iter().all(Entry::is_entered));
    let child = fork(|| {
        drop(std::mem::take(&mut held));
        std::thread::sleep(Duration::from_millis(100));
        assert_eq!(taken(), 2, "the parent's slots stay");
        let own = enter();
        assert!(own.is_entered() && enter().is_denied());
        assert_eq!((taken(), processes_in_value(&server)), (3, 2));
        drop(own);
        runtime().block_on(until_in_use(&limiter, &key, 2));
        1
    });
    assert_eq!(child.wait_timeout(2 * LONG_DEADLINE), Ended::Returned(1));
    assert_eq!((taken(), processes_in_value(&server)), (2, 1));
    held.push(enter());
    assert!(held[2].is_entered() && enter().is_denied());
    drop(held);
    runtime().block_on(until_in_use(&limiter, &key, 0));
}
