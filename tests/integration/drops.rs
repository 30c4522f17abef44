//! Tests of dropping a limiter at any moment and in any context: no thread panics, and its threads end.

use std::future::poll_fn;
use std::net::{Ipv4Addr, TcpListener};
use std::panic::{self, AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::{fs, thread};

use limiter_testkit::{Random, RedisServer};
use rate_limited::{Builder, Limiter};
use tokio::runtime;

use crate::child_process;
use crate::deadlines::eventually;
use crate::support::{key, limit};

#[test]
fn dropping_limiters_while_they_connect_causes_no_panic() {
    let server = RedisServer::builder().tls().start();
    let trusted = server.ca_certificate().expect("a certificate");
    let trusted = trusted.to_str().expect("a path that is text");
    child_process::run("drops::drops_while_connecting", &[("SERVER", &*server.url()), ("SSL_CERT_FILE", trusted)]);
}

#[test]
fn limiter_dropped_by_its_own_observer_ends_cleanly() {
    let server = RedisServer::builder().tcp().start();
    child_process::run("drops::drops_inside_observers", &[("SERVER", server.url())]);
}

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Records and prints the panics of every thread of this process.
fn record_panics() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        PANICS.lock().expect("no panic here").push(panic.to_string());
        print(panic);
    }));
}

/// Waits until this process has no limiter threads left, and asserts that none has panicked.
async fn assert_ends_without_panics() {
    eventually("ended", async || limiter_threads().is_empty()).await;
    let panics = PANICS.lock().expect("no panic here").clone();
    assert!(panics.is_empty(), "{} panics, such as {:?}", panics.len(), panics.first());
}

/// Returns the names of threads that limiters or their runtimes have started. Those of the log and of callbacks are the
/// process's own, and never end.
fn limiter_threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").expect("a directory of threads").flatten();
    let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
    let is_of_process = |name: &String| ["rate-limited-lo", "rate-limited-no"].contains(&name.trim());
    let is_ours = |name: &String| name.starts_with("rate-limited") || name.starts_with("tokio-");
    names.filter(|name| is_ours(name) && !is_of_process(name)).collect()
}

const THREADS: u64 = 8;
const DROPS_PER_THREAD: u64 = 180;

#[tokio::test]
#[ignore = "needs a process of its own, for its panics and its threads"]
async fn drops_while_connecting() {
    if !child_process::is_child() {
        return;
    }
    record_panics();
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free TCP port");
    let silent = silent.local_addr().expect("the address of a bound listener");
    let urls = [
        format!("rediss://{silent}"),
        child_process::variable("SERVER"),
        format!("rediss-sentinel://{silent},127.0.0.1:1/mymaster"),
        format!("rediss-cluster://{silent}"),
        "rediss://localhost:1".to_owned(),
        format!("redis://{silent}"),
    ];
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let urls = &urls;
            scope.spawn(move || {
                let mut random = Random::new(thread);
                for iteration in 0..DROPS_PER_THREAD {
                    // The first URLs are chosen more often, because they take longest to connect.
                    let url = &urls[usize::try_from(random.below(10)).expect("a digit") % urls.len()];
                    drop_in_context(Limiter::builder().url(url), iteration % 5, &mut random);
                }
            });
        }
    });
    assert_ends_without_panics().await;
}

/// Builds a limiter, and drops it after a random time of up to a few milliseconds.
fn drop_in_context(builder: Builder, context_index: u64, random: &mut Random) {
    let builder = if random.below(2) == 0 { builder.shared_rules() } else { builder };
    let limiter = builder.build().expect("a URL");
    let magnitude = random.below(18);
    for _ in 0..random.below(1 << magnitude) {
        std::hint::spin_loop();
    }
    let key = key("a");
    let limit = limit("5/10s");
    match context_index {
        0 => drop(limiter),
        1 => drop(thread::spawn(move || drop(limiter))),
        2 => {
            let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let mut call = Box::pin(limiter.check(&key, &limit));
                poll_fn(|waker_context| Poll::Ready(call.as_mut().poll(waker_context).is_ready())).await;
                drop(call);
                drop(limiter);
            });
        }
        3 => {
            // Unwinds without the panic hook, which would record a panic.
            let unwound = catch_unwind(AssertUnwindSafe(move || {
                let _dropped = limiter;
                resume_unwind(Box::new("a panic of the program"));
            }));
            assert!(unwound.is_err());
        }
        _ => {
            let mut call = Box::pin(limiter.check(&key, &limit));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            let _ = call.as_mut().poll(&mut context);
            drop(call);
        }
    }
}

/// A clone of the limiter, which its observers drop.
type HeldLimiter = Arc<Mutex<Option<Limiter>>>;

#[tokio::test]
#[ignore = "needs a process of its own, for its panics and its threads"]
async fn drops_inside_observers() {
    if !child_process::is_child() {
        return;
    }
    record_panics();
    let url = child_process::variable("SERVER");
    let dropping: [fn(Builder, HeldLimiter) -> Builder; 3] = [
        |builder, held| builder.on_allowed(move |_| drop(held.lock().expect("no panic").take())),
        |builder, held| builder.on_denied(move |_| drop(held.lock().expect("no panic").take())),
        |builder, held| builder.on_failure(move |_| drop(held.lock().expect("no panic").take())),
    ];
    for url in [&*url, "memory:", "redis://127.0.0.1:1"] {
        for observe in dropping {
            let held = HeldLimiter::default();
            let limiter = observe(Limiter::builder().url(url), Arc::clone(&held)).build().expect("a URL");
            *held.lock().expect("no panic") = Some(limiter.clone());
            for _ in 0..2 {
                let _ = limiter.check(&key("a"), &limit("1/10s")).await;
            }
            // An observer that was not called keeps its clone, and with it the limiter.
            drop(held.lock().expect("no panic").take());
        }
    }
    // The last clone is dropped by the credentials provider, on a thread of the limiter.
    let held = HeldLimiter::default();
    let last = Arc::clone(&held);
    let provider = move || {
        drop(last.lock().expect("no panic").take());
        rate_limited::Credentials::password("s3cret")
    };
    {
        // The provider waits for this lock.
        let mut held = held.lock().expect("no panic");
        *held = Some(Limiter::builder().url(&url).credentials(provider).build().expect("a URL"));
    }
    eventually("dropped", async || held.lock().expect("no panic").is_none()).await;
    assert_ends_without_panics().await;
}
