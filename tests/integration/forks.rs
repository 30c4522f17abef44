//! Tests of limiters in processes that fork.
//!
//! Each case runs in a separate process with the testkit's fork library loaded.

use std::fs;
use std::pin::Pin;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use limiter_testkit::{Ended, ForkLibrary, Proxy, RedisServer, Reply, fork};
use rate_limited::{
    Algorithm, Change, Decision, Error, ErrorKind, HealthState, Limit, Limiter, Mode, OnError, Period, Rule, RuleSet,
    SharedRules, Source,
};

use tempfile::TempDir;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::child_process;
use crate::fake_server::{FakeServer, ScriptReply};
use crate::support::{LONG_DEADLINE, builder_for, key, limit};

/// The timeout for a forked process: far longer than its calls may take.
const CHILD_TIMEOUT: Duration = Duration::from_secs(30);

fn run_case(case: &str) {
    let (name, library) = (format!("forks::{case}"), ForkLibrary::build());
    child_process::run(&name, &[library.variable()]);
}

/// Defines a test that runs each case in such a process.
macro_rules! cases {
    ($($case:ident),+ $(,)?) => {
        mod in_a_process_that_forks {
            $(#[test] fn $case() { super::run_case(concat!("cases::", stringify!($case))); })+
        }
        mod cases {
            $(#[test]
            #[ignore = "needs a process of its own, with a library loaded"]
            fn $case() {
                if crate::child_process::is_child() {
                    super::$case();
                }
            })+
        }
    };
}

cases!(
    child_shares_counters_with_its_parent,
    ten_concurrent_children_keep_one_limit,
    child_of_a_child_shares_the_limit,
    child_can_wait_with_a_limiter_in_memory,
    child_can_wait_with_a_limiter_on_redis,
    child_may_drop_the_limiter,
    child_keeps_the_rules_of_the_file,
    child_follows_the_shared_rules,
    child_forked_in_an_outage_reconnects,
    child_has_its_own_health,
    child_is_an_instance_of_its_own_from_its_first_call_on,
    call_started_before_the_fork_fails_in_the_child,
    call_with_a_shadow_rule_ends_in_the_child_by_its_policy,
    wait_started_before_the_fork_fails_in_the_child,
    child_in_memory_begins_empty_with_the_rules_of_the_fork,
    child_refunds_what_its_parent_took_on_redis,
    child_uses_no_lease_of_its_parent,
    calls_work_in_a_child_whatever_other_threads_did_at_the_fork,
    child_logs_while_the_subscriber_of_its_parent_is_blocked,
);

/// Returns the source of an admission, or `None` for a denial.
fn admitted(decision: Result<Decision, Error>) -> Option<Source> {
    match decision.expect("a decision") {
        Decision::Allowed(allowed) => Some(allowed.source()),
        Decision::Denied(_) => None,
    }
}

/// Returns the server's ids of the connections whose last command was `EVALSHA`.
fn connections(server: &RedisServer) -> Vec<String> {
    let Reply::Bulk(list) = server.command(&["CLIENT", "LIST"]) else { panic!("no list") };
    let list = String::from_utf8(list).expect("text");
    let lines = list.lines().filter(|line| line.contains("cmd=evalsha"));
    lines.filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
}

fn child_shares_counters_with_its_parent() {
    let server = RedisServer::start();
    let limiter = builder_for(&server).on_error(OnError::Raise).build().expect("valid");
    let (key, limit) = (key("a"), limit("4/h"));
    assert_eq!(admitted(limiter.check_blocking(&key, &limit)), Some(Source::Store));
    let before = connections(&server);
    assert_eq!(before.len(), 1);
    let child = fork(|| {
        assert_eq!(admitted(limiter.check_blocking(&key, &limit)), Some(Source::Store));
        let now = connections(&server);
        assert!(now.len() == 2 && now.contains(&before[0]), "{before:?}, then {now:?}");
        assert_eq!(admitted(limiter.check_blocking(&key, &limit)), Some(Source::Store));
        assert_eq!(limiter.peek_blocking(&key, &limit).expect("a peek").remaining(), 1);
        0
    });
    assert_eq!(child.wait_timeout(CHILD_TIMEOUT), Ended::Returned(0));
    assert_eq!(admitted(limiter.check_blocking(&key, &limit)), Some(Source::Store));
    assert_eq!(admitted(limiter.check_blocking(&key, &limit)), None);
}

fn ten_concurrent_children_keep_one_limit() {
    let server = RedisServer::start();
    let limiter = builder_for(&server).on_error(OnError::Raise).build().expect("valid");
    let (key, limit) = (key("a"), limit("100/h"));
    let calls = || {
        let allowed = (0..20).filter(|_| admitted(limiter.check_blocking(&key, &limit)).is_some()).count();
        u8::try_from(allowed).expect("few")
    };
    let mut all = u32::from(calls());
    let children: Vec<_> = (0..10).map(|_| fork(calls)).collect();
    all += u32::from(calls());
    for child in children {
        match child.wait_timeout(CHILD_TIMEOUT) {
            Ended::Returned(allowed) => all += u32::from(allowed),
            ended => panic!("{ended:?}"),
        }
    }
    assert_eq!(all, 100);
}

fn child_of_a_child_shares_the_limit() {
    let server = RedisServer::start();
    let limiter = builder_for(&server).on_error(OnError::Raise).build().expect("valid");
    let (key, limit) = (key("a"), limit("3/h"));
    let call = || u8::from(admitted(limiter.check_blocking(&key, &limit)).is_some());
    assert_eq!(call(), 1);
    let child = fork(|| {
        assert_eq!(call(), 1);
        match fork(call).wait_timeout(CHILD_TIMEOUT) {
            Ended::Returned(allowed) => allowed,
            ended => panic!("{ended:?}"),
        }
    });
    assert_eq!(child.wait_timeout(CHILD_TIMEOUT), Ended::Returned(1));
    assert_eq!(call(), 0);
}

fn wait_in_a_child(limiter: &Limiter) {
    let (key, limit) = (key("a"), limit("1/100ms"));
    let waits = || u8::from(admitted(limiter.wait_blocking(&key, &limit, CHILD_TIMEOUT)).is_some());
    // The second call has to wait, on a thread of this process.
    assert_eq!((waits(), waits()), (1, 1));
    let children = [(); 3].map(|()| fork(|| waits() + waits()));
    assert_eq!((waits(), waits()), (1, 1));
    for child in children {
        assert_eq!(child.wait_timeout(CHILD_TIMEOUT), Ended::Returned(2));
    }
}

fn child_can_wait_with_a_limiter_in_memory() {
    wait_in_a_child(&Limiter::memory());
}

fn child_can_wait_with_a_limiter_on_redis() {
    let server = RedisServer::start();
    wait_in_a_child(&builder_for(&server).on_error(OnError::Raise).build().expect("valid"));
}

fn child_may_drop_the_limiter() {
    let server = RedisServer::start();
    let (key, limit) = (key("a"), limit("100/h"));
    let build = || builder_for(&server).on_error(OnError::Raise).build().expect("valid");
    let mut limiter = Some(build());
    // After so many lone calls the parent's callers write to the connection themselves.
    for _ in 0..20 {
        assert!(limiter.as_ref().is_some_and(|limiter| admitted(limiter.check_blocking(&key, &limit)).is_some()));
    }
    let before = connections(&server);
    let unused = fork(|| {
        drop(limiter.take());
        u8::from(admitted(build().check_blocking(&key, &limit)).is_some())
    });
    assert_eq!(unused.wait_timeout(CHILD_TIMEOUT), Ended::Returned(1));
    let used = fork(|| {
        let allowed = limiter.as_ref().map(|limiter| admitted(limiter.check_blocking(&key, &limit)));
        drop(limiter.take());
        u8::from(allowed == Some(Some(Source::Store)))
    });
    assert_eq!(used.wait_timeout(CHILD_TIMEOUT), Ended::Returned(1));
    let limiter = limiter.expect("the parent still has the limiter");
    assert_eq!(admitted(limiter.check_blocking(&key, &limit)), Some(Source::Store));
    assert!(before.len() == 1 && connections(&server).contains(&before[0]), "the parent's connection stays");
}

fn child_keeps_the_rules_of_the_file() {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("rules.toml");
    let write = |max: u32| fs::write(&path, format!("[rules.a]\nlimit = \"{max}/h\"\n")).expect("written");
    let max = |limiter: &Limiter| {
        let rule = limiter.rules().into_iter().find(|rule| rule.name() == "a").expect("the rule");
        rule.limits()[0].max()
    };
    write(3);
    let mut limiter = Some(Limiter::builder().rules_file(&path).build().expect("a good file"));
    let child = fork(|| {
        let own = limiter.as_ref().is_some_and(|limiter| max(limiter) == 3 && limiter.rules_file_error().is_none());
        let is_set = limiter.as_ref().is_some_and(|limiter| limiter.set_rules(RuleSet::new()).is_ok());
        drop(limiter.take());
        let built = Limiter::builder().rules_file(&path).build();
        u8::from(own && is_set && built.is_ok_and(|limiter| max(&limiter) == 3))
    });
    assert_eq!(child.wait_timeout(CHILD_TIMEOUT), Ended::Returned(1));
    // The thread of the parent does not end with the child's limiter.
    write(4);
    let (limiter, began) = (limiter.expect("the parent still has the limiter"), Instant::now());
    while max(&limiter) != 4 {
        assert!(began.elapsed() < CHILD_TIMEOUT, "the parent does not follow the file");
        thread::yield_now();
    }
}

fn child_follows_the_shared_rules() {
    let server = RedisServer::start();
    let limiter = builder_for(&server).on_error(OnError::Raise).shared_rules().build().expect("valid");
    let block_on = |future: Pin<Box<dyn Future<Output = Result<u64, Error>>>>| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(future).expect("published")
    };
    let publish = |based_on: u64| {
        let (rules, change) = (SharedRules::new(&limiter), Change { based_on, ..Change::default() });
        block_on(Box::pin(async move { rules.publish("[rules.a]\nlimit = \"3/h\"\n", change).await }))
    };
    let follows = |version: u64| {
        let began = Instant::now();
        while limiter.shared_rules_version() != version {
            assert!(began.elapsed() < CHILD_TIMEOUT, "{:?}", limiter.shared_rules_error());
            thread::sleep(Duration::from_millis(1));
        }
    };
    publish(0);
    follows(1);
    let child = fork(|| {
        // The rules of the fork hold, and the first call starts the child's own worker.
        let calls = (0..4).filter(|_| {
            let decision = limiter.named("a").check_blocking(&key("a"), &limit("1/h"));
            decision.is_ok_and(|decision| decision.is_allowed())
        });
        let allowed = calls.count();
        follows(2);
        u8::from(allowed == 3)
    });
    publish(1);
    assert_eq!(child.wait_timeout(2 * CHILD_TIMEOUT), Ended::Returned(1));
    follows(2);
}

fn child_forked_in_an_outage_reconnects() {
    let mut server = RedisServer::start();
    let limiter = builder_for(&server).build().expect("valid");
    let (key, limit) = (key("a"), limit("100000/h"));
    let is_by = |source| admitted(limiter.check_blocking(&key, &limit)) == Some(source);
    assert!(is_by(Source::Store));
    server.kill();
    while !is_by(Source::Standby) {}
    let child = fork(|| {
        let began = Instant::now();
        while !is_by(Source::Store) {
            assert!(began.elapsed() < CHILD_TIMEOUT, "the breaker stayed open");
            thread::sleep(Duration::from_millis(1));
        }
        0
    });
    server.restart();
    assert_eq!(child.wait_timeout(2 * CHILD_TIMEOUT), Ended::Returned(0));
}

/// The parent's connection is down and stays so. The child connects by itself, without a call.
fn child_is_an_instance_of_its_own_from_its_first_call_on() {
    const INTERVAL: Duration = Duration::from_millis(100);
    let server = RedisServer::start();
    let limiter = builder_for(&server).presence(true).presence_interval(INTERVAL).build().expect("valid");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let instances = || runtime.block_on(limiter.instances()).unwrap_or_default();
    let wait_for = |number: usize| {
        let began = Instant::now();
        while instances().len() != number {
            assert!(began.elapsed() < CHILD_TIMEOUT, "{:?}", instances());
            thread::sleep(Duration::from_millis(5));
        }
    };
    wait_for(1);
    let silent = fork(|| {
        thread::sleep(6 * INTERVAL);
        0
    });
    thread::sleep(5 * INTERVAL);
    assert_eq!(instances().len(), 1, "a child without a call");
    assert_eq!(silent.wait_timeout(CHILD_TIMEOUT), Ended::Returned(0));
    let child = fork(|| {
        let is_admitted = admitted(limiter.check_blocking(&key("a"), &limit("5/h"))).is_some();
        thread::sleep(30 * INTERVAL);
        u8::from(!is_admitted)
    });
    wait_for(2);
    let (mut of_parent, of_child): (Vec<_>, Vec<_>) =
        instances().into_iter().partition(|instance| instance.pid == process::id());
    let (parent, of_child) = (of_parent.pop().expect("the parent's"), of_child.first().expect("the child's").clone());
    assert_ne!(parent.id, of_child.id);
    assert_eq!(child.wait_timeout(CHILD_TIMEOUT), Ended::Returned(0));
    wait_for(1);
}

fn child_has_its_own_health() {
    static CHANGES_BY: AtomicU32 = AtomicU32::new(0);

    let server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let builder = builder_for(&server).url(proxy.url());
    let builder = builder.on_state_change(|_| CHANGES_BY.store(process::id(), Ordering::SeqCst));
    let limiter = builder.build().expect("valid");
    let wait_until = |holds: &dyn Fn() -> bool| {
        let began = Instant::now();
        while !holds() {
            assert!(began.elapsed() < CHILD_TIMEOUT, "{:?}", limiter.health());
            thread::sleep(Duration::from_millis(1));
        }
    };
    let is = |state| limiter.health().state == state;
    wait_until(&|| is(HealthState::Up));
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    assert!(admitted(limiter.check_blocking(&key("a"), &limit("5/h"))).is_some(), "by the standby limiter");
    assert!(is(HealthState::Full));
    proxy.cut();
    wait_until(&|| is(HealthState::Down));
    let forked_at = SystemTime::now();
    let child = fork(|| {
        assert!(limiter.health().since >= forked_at, "the state of its own worker");
        wait_until(&|| is(HealthState::Full));
        wait_until(&|| CHANGES_BY.load(Ordering::SeqCst) == process::id());
        0
    });
    proxy.pass();
    assert_eq!(child.wait_timeout(2 * CHILD_TIMEOUT), Ended::Returned(0));
    wait_until(&|| is(HealthState::Full));
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    wait_until(&|| is(HealthState::Up));
}

fn call_started_before_the_fork_fails_in_the_child() {
    // The call behind lone ones is written by its caller. The 32nd caller yields to its runtime, and then polls for the
    // reply: the child must neither do so nor wait.
    [0, 20, 31].into_iter().for_each(fork_during_a_call_behind);
}

fn fork_during_a_call_behind(lone_calls: u32) {
    use std::task::{Context, Poll, Waker};

    let server = FakeServer::with_script_reply(ScriptReply::Never);
    let builder = server.limiter().deadline(Duration::from_secs(60));
    let builder = builder.busy_poll(Duration::from_millis(1));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let limiter = runtime.block_on(builder.on_error(OnError::Raise).connect()).expect("a server");
    let (key, limit) = (key("a"), limit("100/h"));
    server.recover();
    for _ in 0..lone_calls {
        assert!(limiter.check_blocking(&key, &limit).expect("a reply").is_allowed());
    }
    server.fail_again();
    let mut call = Box::pin(limiter.check(&key, &limit));
    let mut poll = || call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll().is_pending());
    let child = fork(|| match poll() {
        Poll::Ready(Err(error)) if error.kind() == ErrorKind::Forked => 1,
        _ => 0,
    });
    assert_eq!(child.wait_timeout(CHILD_TIMEOUT), Ended::Returned(1));
    assert!(poll().is_pending(), "the parent's call still waits");
}

/// The policy decides in the child. No step of the call follows there: it would go to a thread that the child does not have.
fn call_with_a_shadow_rule_ends_in_the_child_by_its_policy() {
    use std::task::{Context, Poll, Waker};

    let server = FakeServer::with_script_reply(ScriptReply::Never);
    let (key, limit) = (key("a"), limit("100/h"));
    let block_on = |future: Pin<&mut dyn Future<Output = Result<Limiter, Error>>>| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(future).expect("a server")
    };
    for (policy, allowed) in [(OnError::Open, true), (OnError::Closed, false), (OnError::Standby, false)] {
        let builder = server.limiter().deadline(Duration::from_secs(60)).on_error(policy);
        let builder = builder.rule("shadow", Rule::new().limit(limit).mode(Mode::Shadow));
        let limiter = block_on(std::pin::pin!(builder.connect()).as_mut());
        let rules = [("enforced", &key, &limit, 1), ("shadow", &key, &limit, 1)];
        let mut call = Box::pin(limiter.check_rules(&rules));
        let mut poll = || call.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(poll().is_pending());
        let child = fork(|| match poll() {
            Poll::Ready(Ok(decision)) => u8::from(decision.is_allowed() == allowed),
            _ => 2,
        });
        assert_eq!(child.wait_timeout(CHILD_TIMEOUT), Ended::Returned(1), "{policy:?}");
        assert!(poll().is_pending(), "the parent's call still waits");
    }
}

/// One call waits in the process's queue, the other for its slot in a leaky bucket. Other threads use the timers all the
/// time, so that their lock may be taken at the fork. Half of the children drop the call without polling it.
fn wait_started_before_the_fork_fails_in_the_child() {
    use std::task::{Context, Poll, Waker};

    let limiter = Limiter::builder().on_error(OnError::Raise).build().expect("valid");
    let is_over = AtomicBool::new(false);
    let use_timers = |number: u32| {
        let (key, limit) = (key(&number.to_string()), limit("1/1ms"));
        while !is_over.load(Ordering::Relaxed) {
            assert!(limiter.wait_blocking(&key, &limit, CHILD_TIMEOUT).expect("a decision").is_allowed());
        }
    };
    let fork_while_waiting = |limit: &Limit, number: u32| {
        let key = key(&format!("waits-{number}"));
        assert!(limiter.check_blocking(&key, limit).expect("answers").is_allowed());
        let mut wait = Box::pin(limiter.wait(&key, limit, Duration::from_secs(3600)));
        assert!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let mut wait = Some(wait);
        let child = fork(|| {
            let mut wait = wait.take().expect("a call that waits");
            if number % 4 < 2 {
                return 1;
            }
            let polled = wait.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            u8::from(matches!(polled, Poll::Ready(Err(error)) if error.kind() == ErrorKind::Forked))
        });
        let ended = child.wait_timeout(CHILD_TIMEOUT);
        let mut wait = wait.expect("a call that waits");
        assert!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending(), "the parent's call waits");
        ended
    };
    thread::scope(|scope| {
        for number in 1..=4 {
            let use_timers = &use_timers;
            scope.spawn(move || use_timers(number));
        }
        let leaky = limit("1/1m").with_algorithm(Algorithm::LeakyBucket);
        let mut limits = [limit("1/1m"), leaky].into_iter().cycle().zip(0..400);
        let failed = limits.find(|(limit, number)| fork_while_waiting(limit, *number) != Ended::Returned(1));
        is_over.store(true, Ordering::Relaxed);
        assert_eq!(failed, None);
    });
}

/// The counts in memory are those of a process; a permit of the parent cannot be given back to a store without it.
fn child_in_memory_begins_empty_with_the_rules_of_the_fork() {
    let limiter = Limiter::builder().on_error(OnError::Raise).build().expect("valid");
    limiter.set_rules(RuleSet::new().rule("a", Rule::new().limit(limit("2/h")))).expect("valid");
    let call = || limiter.named("a").check_blocking(&key("a"), &limit("1/h")).expect("a decision");
    let Decision::Allowed(of_parent) = call() else { panic!("the first call") };
    let child = fork(|| {
        let refunded = limiter.refund_blocking(&of_parent);
        assert!(matches!(refunded, Err(error) if error.kind() == ErrorKind::Forked));
        assert_eq!([(); 3].map(|()| call().is_allowed()), [true, true, false]);
        0
    });
    assert_eq!(child.wait_timeout(CHILD_TIMEOUT), Ended::Returned(0));
    limiter.refund_blocking(&of_parent).expect("the parent's own");
    assert_eq!([(); 3].map(|()| call().is_allowed()), [true, true, false]);
}

fn child_refunds_what_its_parent_took_on_redis() {
    let server = RedisServer::start();
    let limiter = builder_for(&server).on_error(OnError::Raise).build().expect("valid");
    let (key, limit) = (key("a"), limit("1/h"));
    let Decision::Allowed(of_parent) = limiter.check_blocking(&key, &limit).expect("a decision") else {
        panic!("the first call")
    };
    let child = fork(|| {
        assert_eq!(admitted(limiter.check_blocking(&key, &limit)), None);
        limiter.refund_blocking(&of_parent).expect("the store has the permit");
        assert_eq!(admitted(limiter.check_blocking(&key, &limit)), Some(Source::Store));
        0
    });
    assert_eq!(child.wait_timeout(CHILD_TIMEOUT), Ended::Returned(0));
    assert_eq!(admitted(limiter.check_blocking(&key, &limit)), None);
}

/// The parent goes on using its lease, and gives its permits back itself.
fn child_uses_no_lease_of_its_parent() {
    let server = RedisServer::start();
    let limiter = builder_for(&server).on_error(OnError::Raise).leases(true).build().expect("valid");
    let (key, limit) = (key("a"), limit("20000/10s"));
    let began = Instant::now();
    // A lease lasts for 50 ms, and a child on a busy machine may take longer.
    while began.elapsed() < CHILD_TIMEOUT {
        if admitted(limiter.check_blocking(&key, &limit)) != Some(Source::Lease) {
            continue;
        }
        let child = fork(|| {
            let first = admitted(limiter.check_blocking(&key, &limit));
            u8::from(first == Some(Source::Store))
        });
        assert_eq!(child.wait_timeout(CHILD_TIMEOUT), Ended::Returned(1));
        if admitted(limiter.check_blocking(&key, &limit)) == Some(Source::Lease) {
            return;
        }
    }
    panic!("the parent has no lease after its child");
}

static LOGGED: AtomicU32 = AtomicU32::new(0);

/// Counts the events.
struct Counting;

impl Subscriber for Counting {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "rate_limited"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn event(&self, _: &Event<'_>) {
        LOGGED.fetch_add(1, Ordering::Relaxed);
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Threads that the child does not have may hold any lock of the library at the fork.
fn calls_work_in_a_child_whatever_other_threads_did_at_the_fork() {
    let server = RedisServer::start();
    // A thread that begins holds a lock of the standard library, without which a child starts no thread. So all threads of
    // this process have begun before it forks: those of this test, and of the timers, the notifier and the log.
    let (begun, notified) = (AtomicU32::new(0), Arc::new(AtomicBool::new(false)));
    let on_change = Arc::clone(&notified);
    let on_redis = builder_for(&server).on_error(OnError::Raise);
    let on_redis = on_redis.on_state_change(move |_| on_change.store(true, Ordering::Relaxed)).build().expect("valid");
    let in_memory = Limiter::builder().on_error(OnError::Raise).max_keys(1).build().expect("valid");
    let (key, limit, narrow) = (key("a"), limit("4000000000/h"), limit("1/1ms"));
    let is_over = AtomicBool::new(false);
    tracing::subscriber::set_global_default(Counting).expect("the first");
    let has_clear_outcome = |limiter: &Limiter, wait: bool| {
        let began = Instant::now();
        loop {
            let decision = match wait {
                true => limiter.wait_blocking(&key, &narrow, LONG_DEADLINE),
                false => limiter.named("a").check_blocking(&key, &limit),
            };
            match decision {
                Ok(decision) => return decision.is_allowed(),
                // The first attempt of a child to connect has failed, on a machine that stood still.
                Err(error) if error.kind() == ErrorKind::Unavailable && began.elapsed() < CHILD_TIMEOUT / 4 => {}
                Err(_) => return false,
            }
        }
    };
    let set_rules =
        |limiter: &Limiter, name: &str| limiter.set_rules(RuleSet::new().rule(name, Rule::new().limit(limit))).is_ok();
    // Zones and names that are new to the process, of which there are tables.
    let counts_in_zones = |number: u32| {
        let in_zone = |name: &str| Limit::calendar(4_000_000_000, Period::Day).and_then(|limit| limit.zone(name));
        let hours = i64::from(number % 27) - 14;
        let known = in_zone(&format!("Etc/GMT{hours:+}")).and_then(|limit| in_memory.check_blocking(&key, &limit));
        known.is_ok_and(|decision| decision.is_allowed()) && in_zone(&format!("Moon/Base {number}")).is_err()
    };
    thread::scope(|scope| {
        {
            let (is_over, begun) = (&is_over, &begun);
            scope.spawn(move || {
                for number in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    assert!(counts_in_zones(number));
                    // Names that are known. A child adds one.
                    assert!(
                        (0..500)
                            .all(|_| Limit::calendar(1, Period::Day).and_then(|limit| limit.zone("Etc/GMT+1")).is_ok())
                    );
                    if number == 10 {
                        begun.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        for limiter in [&on_redis, &on_redis, &in_memory, &in_memory] {
            let (is_over, begun, has_clear_outcome) = (&is_over, &begun, &has_clear_outcome);
            scope.spawn(move || {
                for call in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    assert!(has_clear_outcome(limiter, call % 2 == 0));
                    if call == 10 {
                        begun.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        for limiter in [&on_redis, &in_memory] {
            let (is_over, begun, set_rules) = (&is_over, &begun, &set_rules);
            scope.spawn(move || {
                for number in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    // Each has a name that is new to the process.
                    assert!(set_rules(limiter, &format!("rule {number}")));
                    let _ = limiter.named(&format!("name {}", number % 1000));
                    if number == 10 {
                        begun.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let have_begun = || {
            begun.load(Ordering::Relaxed) == 7 && notified.load(Ordering::Relaxed) && LOGGED.load(Ordering::Relaxed) > 0
        };
        while !have_begun() {
            thread::yield_now();
        }
        let ended: Vec<_> = (0..40)
            .map(|round| {
                let limiters = if round % 2 == 0 { [&on_redis, &in_memory] } else { [&in_memory, &on_redis] };
                // No panic here, because its message would need a lock of the standard library.
                let child = fork(|| {
                    let calls = limiters.into_iter().flat_map(|limiter| [(limiter, false), (limiter, true)]);
                    let are_clear =
                        calls.fold(true, |are_clear, (limiter, wait)| has_clear_outcome(limiter, wait) && are_clear);
                    u8::from(
                        !(are_clear
                            && counts_in_zones(1_000_000_000 + round)
                            && set_rules(limiters[0], "a")
                            && has_clear_outcome(limiters[0], false)),
                    )
                });
                child.wait_timeout(CHILD_TIMEOUT)
            })
            .collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(|ended| *ended == Ended::Returned(0)), "{ended:?}");
    });
}

/// The parent's notifier thread is blocked at the fork, and does not exist in the child.
fn child_logs_while_the_subscriber_of_its_parent_is_blocked() {
    static PARENT: AtomicU32 = AtomicU32::new(0);
    static LOGGED_BY: AtomicU32 = AtomicU32::new(0);

    struct BlocksTheParent;

    impl Subscriber for BlocksTheParent {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == "rate_limited"
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn event(&self, _: &Event<'_>) {
            LOGGED_BY.store(process::id(), Ordering::SeqCst);
            while process::id() == PARENT.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(1));
            }
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    PARENT.store(process::id(), Ordering::SeqCst);
    tracing::subscriber::set_global_default(BlocksTheParent).expect("the first");
    let mut server = RedisServer::start();
    let limiter = builder_for(&server).build().expect("valid");
    let (key, limit) = (key("a"), limit("100000/h"));
    assert_eq!(admitted(limiter.check_blocking(&key, &limit)), Some(Source::Store));
    server.kill();
    let calls_until_logged = || {
        let began = Instant::now();
        while LOGGED_BY.load(Ordering::SeqCst) != process::id() {
            assert!(began.elapsed() < CHILD_TIMEOUT, "nothing was logged");
            assert!(admitted(limiter.check_blocking(&key, &limit)).is_some());
            thread::sleep(Duration::from_millis(1));
        }
        0
    };
    calls_until_logged();
    assert_eq!(fork(calls_until_logged).wait_timeout(2 * CHILD_TIMEOUT), Ended::Returned(0));
}
