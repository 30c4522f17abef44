//! Tests of `Limiter::health` and of its observers, on real servers in each state.
//!
//! No test makes a call to notice a recovery: a process without calls must notice it.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use limiter_testkit::{Cluster, Proxy, RedisServer, slot_of};
use rate_limited::{Builder, ErrorKind, HealthState, Limiter, OnError, Source};

use crate::acl::documented_rules;
use crate::deadlines::{DEADLINE, WAIT_TIMEOUT, eventually};
use crate::fake_server::{FakeServer, ScriptReply};
use crate::support::{LONG_DEADLINE, builder_for, key, tcp_address, unpacked_limit as limit};

pub(crate) mod log;

/// The states that an observer has received.
#[derive(Clone, Default)]
struct Observed(Arc<Mutex<Vec<HealthState>>>);

impl Observed {
    fn add_to(&self, builder: Builder) -> Builder {
        let states = Arc::clone(&self.0);
        builder.on_state_change(move |health| states.lock().expect("no panic").push(health.state))
    }

    fn states(&self) -> Vec<HealthState> {
        self.0.lock().expect("no panic").clone()
    }
}

async fn wait_for(limiter: &Limiter, state: HealthState) {
    eventually(state.as_str(), || async { limiter.health().state == state }).await;
}

async fn wait_for_states(observed: &Observed, states: &[HealthState]) {
    eventually("observed", || async { observed.states() == states }).await;
}

async fn error_kind(limiter: &Limiter, name: &str) -> Option<ErrorKind> {
    limiter.check(&key(name), &limit("1000/1h")).await.err().map(|error| error.kind())
}

#[test]
fn limiter_in_memory_is_always_up() {
    let before = SystemTime::now();
    let limiter = Limiter::builder().on_state_change(|_| panic!("a change")).build().expect("valid");
    let health = limiter.health();
    assert_eq!((health.state, &health.server), (HealthState::Up, &None));
    assert!(health.since >= before && health.since <= SystemTime::now());
    assert_eq!(limiter.health(), health);
}

#[tokio::test]
async fn connected_limiter_is_up_and_leaves_no_key() {
    let server = RedisServer::start();
    let observed = Observed::default();
    let limiter = observed.add_to(builder_for(&server)).connect().await.expect("the server is there");
    let health = limiter.health();
    assert_eq!((health.state, health.server), (HealthState::Up, Some(server.url())));
    assert!(server.keys().is_empty(), "the probe deletes its key");
    wait_for_states(&observed, &[HealthState::Up]).await;
}

#[tokio::test]
async fn limiter_is_connecting_until_the_first_attempt_is_over() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server);
    proxy.hold_replies();
    let observed = Observed::default();
    let limiter = observed.add_to(builder_for(&server)).url(proxy.url()).build().expect("a URL");
    assert_eq!(limiter.health().state, HealthState::Connecting);
    proxy.pass();
    wait_for(&limiter, HealthState::Up).await;
}

/// A full server replies to reads, so that only a write reveals it.
#[tokio::test]
async fn full_server_is_noticed_without_a_call_and_so_is_its_recovery() {
    let server = RedisServer::builder().maxmemory(1).start();
    let observed = Observed::default();
    let limiter = observed.add_to(builder_for(&server)).connect().await.expect("the server is there");
    let health = limiter.health();
    assert_eq!((health.state, health.server), (HealthState::Full, Some(server.url())));
    let peeked = limiter.peek(&key("a"), &limit("5/1h")).await.expect("a peek needs no memory");
    assert_eq!(source(&peeked), Source::Store, "the connection is of use");
    assert_eq!(limiter.health().state, HealthState::Full);
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    wait_for(&limiter, HealthState::Up).await;
    wait_for_states(&observed, &[HealthState::Full, HealthState::Up]).await;
}

fn source(decision: &rate_limited::Decision) -> Source {
    match decision {
        rate_limited::Decision::Allowed(allowed) => allowed.source(),
        rate_limited::Decision::Denied(denied) => denied.source(),
    }
}

/// A reply that concerns all calls sets the state before the caller gets it.
#[tokio::test]
async fn reply_to_a_call_sets_the_state_at_once() {
    let server = RedisServer::start();
    for (setting, value, error, state) in [
        ("maxmemory", "1", ErrorKind::OutOfMemory, HealthState::Full),
        ("min-replicas-to-write", "1", ErrorKind::NotServing, HealthState::NotServing),
    ] {
        let limiter = builder_for(&server).on_error(OnError::Raise).connect().await.expect("the server is there");
        assert_eq!(limiter.health().state, HealthState::Up);
        server.command(&["CONFIG", "SET", setting, value]);
        assert_eq!(error_kind(&limiter, "a").await, Some(error));
        let health = limiter.health();
        assert_eq!(health.state, state);
        server.command(&["CONFIG", "SET", setting, "0"]);
        wait_for(&limiter, HealthState::Up).await;
        assert!(limiter.health().since >= health.since);
    }
    let limiter = builder_for(&server).on_error(OnError::Raise).connect().await.expect("the server is there");
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    assert_eq!(error_kind(&limiter, "a").await, Some(ErrorKind::ReadOnly));
    assert_eq!(limiter.health().state, HealthState::ReadOnly);
    server.command(&["REPLICAOF", "NO", "ONE"]);
    wait_for(&limiter, HealthState::Up).await;
    let loading = FakeServer::with_script_reply(ScriptReply::Bytes("-LOADING Redis is loading the dataset\r\n"));
    let builder = loading.limiter().deadline(LONG_DEADLINE).on_error(OnError::Raise);
    let limiter = builder.connect().await.expect("connects");
    assert_eq!(error_kind(&limiter, "a").await, Some(ErrorKind::Loading));
    assert_eq!(limiter.health().state, HealthState::Loading);
    wait_for(&limiter, HealthState::Up).await;
}

/// A replica replies to reads. However often the limiter reconnects to it, it stays what it is.
#[tokio::test]
async fn replica_stays_read_only_while_it_is_probed() {
    let server = RedisServer::start();
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    let proxy = Proxy::start(&server);
    let observed = Observed::default();
    let limiter = observed.add_to(builder_for(&server)).url(proxy.url()).connect().await.expect("it is there");
    assert_eq!(limiter.health().state, HealthState::ReadOnly);
    eventually("probed three times", || async { proxy.connections() > 3 }).await;
    server.command(&["REPLICAOF", "NO", "ONE"]);
    wait_for(&limiter, HealthState::Up).await;
    wait_for_states(&observed, &[HealthState::ReadOnly, HealthState::Up]).await;
}

#[tokio::test]
async fn lost_connection_is_noticed_without_a_call_and_so_is_its_return() {
    let server = RedisServer::start();
    let proxy = Proxy::start(&server);
    let observed = Observed::default();
    let limiter = observed.add_to(builder_for(&server)).url(proxy.url()).connect().await.expect("it is there");
    proxy.cut();
    wait_for(&limiter, HealthState::Down).await;
    assert_eq!(limiter.health().server.as_deref(), Some(proxy.url()));
    proxy.pass();
    wait_for(&limiter, HealthState::Up).await;
    wait_for_states(&observed, &[HealthState::Up, HealthState::Down, HealthState::Up]).await;
}

#[tokio::test]
async fn stopped_server_is_down_once_a_call_has_timed_out() {
    let mut server = RedisServer::start();
    let limiter = builder_for(&server).deadline(DEADLINE).connect().await.expect("it is there");
    wait_for(&limiter, HealthState::Up).await;
    server.pause();
    eventually("down", || async {
        let _ = limiter.check(&key("a"), &limit("1000/1h")).await;
        limiter.health().state == HealthState::Down
    })
    .await;
    server.resume();
    wait_for(&limiter, HealthState::Up).await;
}

#[tokio::test]
async fn user_without_a_permission_is_refused() {
    const ALL: &str = "~* +@all";
    let server = RedisServer::builder().tcp().user_with_rules("app", "pw", ALL).start();
    let limiter = builder_for(&server).on_error(OnError::Raise).connect().await.expect("allowed");
    for missing in ["-get", "-set", "-evalsha", "-@all"] {
        assert_eq!(limiter.health().state, HealthState::Up);
        server.command(&["ACL", "SETUSER", "app", missing]);
        assert_eq!(error_kind(&limiter, "a").await, Some(ErrorKind::Refused));
        wait_for(&limiter, HealthState::Refused).await;
        server.command(&["ACL", "SETUSER", "app", "+@all"]);
        wait_for(&limiter, HealthState::Up).await;
    }
    server.command(&["ACL", "SETUSER", "app", "off"]);
    server.command(&["CLIENT", "KILL", "USER", "app"]);
    wait_for(&limiter, HealthState::Refused).await;
    server.command(&["ACL", "SETUSER", "app", "on"]);
    wait_for(&limiter, HealthState::Up).await;
}

/// A permission that only some calls need changes nothing: the store decides all others.
#[tokio::test]
async fn permission_of_some_calls_does_not_change_the_state() {
    let mut server = RedisServer::builder().tcp().user_with_rules("app", "pw", "~* +@all -del").start();
    let observed = Observed::default();
    let limiter = observed.add_to(builder_for(&server)).on_error(OnError::Raise).connect().await.expect("allowed");
    for _ in 0..100 {
        let error = limiter.reset(&key("a"), &limit("5/1h")).await.expect_err("DEL is not permitted");
        assert_eq!(error.kind(), ErrorKind::Refused);
        assert_eq!(error_kind(&limiter, "a").await, None);
    }
    server.kill();
    wait_for_states(&observed, &[HealthState::Up, HealthState::Down]).await;
}

/// The probe needs no permission beyond the documented ones.
#[tokio::test]
async fn documented_permissions_suffice_for_the_probe() {
    for (user, database) in [("limiter", ""), ("database", "/1"), ("zset", "")] {
        let server = RedisServer::builder().tcp().user_with_rules("app", "pw", "-@all").maxmemory(1).start();
        let mut command = vec!["ACL", "SETUSER", "app", "reset", "on", ">pw"];
        command.extend(documented_rules(user));
        server.command(&command);
        let url = server.url() + database;
        for builder in [Limiter::builder(), Limiter::builder().hash_keys([7; 32])] {
            server.command(&["CONFIG", "SET", "maxmemory", "1"]);
            let limiter = builder.url(&url).connect().await.expect("allowed");
            wait_for(&limiter, HealthState::Full).await;
            server.command(&["CONFIG", "SET", "maxmemory", "0"]);
            wait_for(&limiter, HealthState::Up).await;
        }
        assert!(server.keys().is_empty());
    }
    let cluster = Cluster::builder().masters_only().user_with_rules("app", "pw", "-@all").start();
    for master in cluster.masters() {
        let mut command = vec!["ACL", "SETUSER", "app", "reset", "on", ">pw"];
        command.extend(documented_rules("cluster"));
        cluster.server(master).command(&command);
        cluster.server(master).command(&["CONFIG", "SET", "maxmemory", "1"]);
    }
    let limiter = Limiter::builder().url(cluster.url()).connect().await.expect("allowed");
    wait_for(&limiter, HealthState::Full).await;
    for master in cluster.masters() {
        cluster.server(master).command(&["CONFIG", "SET", "maxmemory", "0"]);
    }
    wait_for(&limiter, HealthState::Up).await;
}

#[tokio::test]
async fn worst_server_of_a_cluster_counts() {
    let mut cluster = Cluster::builder().masters_only().setting("cluster-require-full-coverage", "no").start();
    let limiter =
        Limiter::builder().url(cluster.url()).deadline(LONG_DEADLINE).on_error(OnError::Raise).build().expect("a URL");
    wait_for(&limiter, HealthState::Up).await;
    let [first, second, _] = cluster.masters()[..] else { panic!("three masters") };
    let call_on = async |cluster: &Cluster, node| {
        let names = (0..).map(|number| format!("k{number}"));
        let name = names.into_iter().find(|name| cluster.master_of(slot_of(name.as_bytes())) == node);
        error_kind(&limiter, &name.expect("one of many names")).await
    };
    let is = |state, address: String| {
        let health = limiter.health();
        health.state == state && health.server.is_some_and(|server| server.contains(&address))
    };
    cluster.server(first).command(&["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(call_on(&cluster, first).await, Some(ErrorKind::OutOfMemory));
    assert!(is(HealthState::Full, cluster.address(first).to_string()));
    let lost = cluster.address(second).to_string();
    cluster.kill(second);
    eventually("down", || async { is(HealthState::Down, lost.clone()) }).await;
    cluster.restart(second);
    eventually("full", || async { is(HealthState::Full, cluster.address(first).to_string()) }).await;
    cluster.server(first).command(&["CONFIG", "SET", "maxmemory", "0"]);
    wait_for(&limiter, HealthState::Up).await;
    // A slot without an owner.
    for node in cluster.masters() {
        cluster.server(node).command(&["CLUSTER", "DELSLOTS", "0"]);
    }
    let name = (0..).map(|number| format!("s{number}")).find(|name| slot_of(name.as_bytes()) == 0);
    assert!(error_kind(&limiter, &name.expect("one of many names")).await.is_some());
    wait_for(&limiter, HealthState::NotServing).await;
    cluster.server(first).command(&["CLUSTER", "ADDSLOTS", "0"]);
    wait_for(&limiter, HealthState::Up).await;
}

#[tokio::test]
async fn health_works_behind_sentinels() {
    let mut server = RedisServer::builder().tcp().start();
    let sentinel = FakeServer::sentinel_for(tcp_address(&server).port());
    let url = format!("redis-sentinel://{}/mymaster", sentinel.address());
    let limiter = Limiter::builder().url(&url).connect().await.expect("a master");
    let health = limiter.health();
    assert_eq!((health.state, health.server), (HealthState::Up, Some(url)));
    server.kill();
    wait_for(&limiter, HealthState::Down).await;
    server.restart();
    wait_for(&limiter, HealthState::Up).await;
    server.command(&["REPLICAOF", "127.0.0.1", "1"]);
    server.command(&["CLIENT", "KILL", "TYPE", "normal"]);
    wait_for(&limiter, HealthState::ReadOnly).await;
    server.command(&["REPLICAOF", "NO", "ONE"]);
    wait_for(&limiter, HealthState::Up).await;
}

/// Returns a limiter whose first observer blocks until a message, and the names of the second observer's threads.
async fn limiter_with_a_blocking_observer(server: &RedisServer) -> (Limiter, Sender<()>, Receiver<String>) {
    let (release, released) = channel::<()>();
    let (sender, threads) = channel();
    let released = Mutex::new(released);
    let builder = builder_for(server)
        .on_state_change(move |_| released.lock().expect("no panic").recv().expect("the test releases it"))
        .on_state_change(|_| panic!("a panic of the observer"))
        .on_state_change(move |_| {
            let name = thread::current().name().unwrap_or_default().to_owned();
            sender.send(name).expect("the test waits");
        });
    let limiter = builder.on_error(OnError::Raise).connect().await.expect("it is there");
    (limiter, release, threads)
}

/// An observer that blocks or panics delays no call and no other observer's turn.
#[tokio::test]
async fn observers_run_on_a_thread_of_their_own() {
    let mut server = RedisServer::start();
    let (limiter, release, threads) = limiter_with_a_blocking_observer(&server).await;
    assert_eq!(error_kind(&limiter, "a").await, None);
    assert_eq!(limiter.health().state, HealthState::Up);
    server.kill();
    wait_for(&limiter, HealthState::Down).await;
    server.restart();
    wait_for(&limiter, HealthState::Up).await;
    assert_eq!(error_kind(&limiter, "a").await, None);
    for _ in 0..3 {
        release.send(()).expect("the observer waits");
        let name = threads.recv_timeout(WAIT_TIMEOUT).expect("called after each change, behind a panic");
        assert_eq!(name, "rate-limited-notifier");
    }
    assert!(threads.recv_timeout(Duration::ZERO).is_err());
}
