//! Tests of errors at connect: each names the cause, in the URL or in the server, and the fix.

use std::fs;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use limiter_testkit::{RedisServer, RedisServerBuilder};
use rate_limited::ErrorKind::{self, Config, Protocol, ReadOnly, Refused, Unavailable};
use rate_limited::{Builder, Limiter, Tls};
use tokio::net::TcpSocket;
use tokio::task::JoinSet;

use super::{SECRET, start_raw_server};
use crate::fake_server::FakeServer;
use crate::support::tcp_address;

/// The longest time until `connect` fails. Usually it takes less than 5 s, but a machine under load needs longer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// A builder that cannot connect, with the error's kind and parts of its text.
struct Case {
    builder: Builder,
    kind: ErrorKind,
    parts: &'static [&'static str],
}

fn case(url: &str, kind: ErrorKind, parts: &'static [&'static str]) -> Case {
    Case { builder: Limiter::builder().url(url), kind, parts }
}

/// Asserts that each case fails in time, with its kind and its text, and without the secret.
async fn assert_errors(cases: Vec<Case>) {
    let mut tries = JoinSet::new();
    let count = cases.len();
    for (row, Case { builder, kind, parts }) in cases.into_iter().enumerate() {
        tries.spawn(async move {
            let started = Instant::now();
            let error = builder.connect().await.expect_err(parts[0]);
            assert!(started.elapsed() < CONNECT_TIMEOUT, "row {row}: {:?}", started.elapsed());
            assert_eq!(error.kind(), kind, "row {row}: {error}");
            let text = format!("{error} {error:?}");
            assert!(!text.contains(SECRET), "row {row}: {text}");
            for part in parts {
                assert!(text.contains(part), "row {row} lacks {part:?}: {error}");
            }
            error.to_string()
        });
    }
    let mut messages = Vec::new();
    while let Some(tried) = tries.join_next().await {
        messages.extend(tried.ok());
    }
    assert_eq!(messages.len(), count, "rows succeeded; failures of the others are printed above: {messages:#?}");
}

/// A port that refuses connections: it is bound, so no other server gets it, and does not listen.
fn closed_port() -> (TcpSocket, u16) {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free TCP port");
    let port = socket.local_addr().expect("the address of a bound socket").port();
    (socket, port)
}

fn tcp() -> RedisServerBuilder {
    RedisServer::builder().tcp()
}

#[tokio::test]
async fn addresses_without_redis_give_clear_errors() {
    let (_closed, closed) = closed_port();
    let (silent, http) = (start_raw_server(""), start_raw_server("HTTP/1.1 400 Bad Request\r\n\r\n"));
    let open = tcp().start();
    assert_errors(vec![
        case(
            &format!("http://:{SECRET}@127.0.0.1"),
            Config,
            &["unknown scheme", "`redis://host:port`", "`redis-sentinel://"],
        ),
        case(
            &format!("redis://:{SECRET}@nowhere.invalid"),
            Unavailable,
            &["redis://nowhere.invalid:6379", "check the host name"],
        ),
        case(
            &format!("redis://:{SECRET}@127.0.0.1:{closed}"),
            Unavailable,
            &["cannot connect to redis://127.0.0.1:", "refused"],
        ),
        case(&format!("redis+unix:///nowhere/redis.sock?pass={SECRET}"), Unavailable, &["/nowhere/redis.sock"]),
        case(&format!("redis://:{SECRET}@{silent}"), Unavailable, &["did not answer within"]),
        case(&format!("redis://:{SECRET}@{http}"), Protocol, &["cannot connect to redis://127.0.0.1:"]),
        case(&format!("rediss://:{SECRET}@{}", tcp_address(&open)), Unavailable, &["rediss://127.0.0.1:"]),
    ])
    .await;
}

#[tokio::test]
async fn missing_users_and_databases_give_clear_errors() {
    let guarded = tcp().password("other").start();
    let (open, unable) = (tcp().start(), tcp().user_with_rules("app", SECRET, "~* +@all -evalsha").start());
    let (guarded_at, open_at) = (tcp_address(&guarded), tcp_address(&open));
    assert_errors(vec![
        case(&format!("redis://{guarded_at}"), Refused, &["requires a password", "Builder::credentials"]),
        case(&format!("redis://:{SECRET}@{guarded_at}"), Refused, &["refused the user or the password"]),
        case(&format!("redis://stranger:{SECRET}@{guarded_at}"), Refused, &["refused the user or the password"]),
        case(&format!("redis://{open_at}/16"), Config, &["no database of that number"]),
        case(&format!("redis://{open_at}/-1"), Config, &["no database of that number"]),
        case(&unable.url(), Refused, &["a permission that the limiter needs", "README"]),
    ])
    .await;
}

#[tokio::test]
async fn servers_that_cannot_run_the_script_give_clear_errors() {
    let (old, oldest) = (&[("server", "redis"), ("version", "6.0.16")], &[("server", "redis"), ("version", "5.0")]);
    let (old, ancient) = (FakeServer::with_server_info(old), FakeServer::with_server_info(oldest));
    let without = |command: &str| tcp().password(SECRET).setting("rename-command", &format!("{command} \"\"")).start();
    let (evalsha, script) = (without("EVALSHA"), without("SCRIPT"));
    // No password here, because Valkey checks it first.
    let hello = tcp().setting("rename-command", "HELLO \"\"").start();
    assert_errors(vec![
        case(&old.url(), Config, &["Redis 6.0", "Redis 6.2 or later", "cannot use redis://127.0.0.1:"]),
        case(&ancient.url(), Config, &["Redis 5.0", "Redis 6.2 or later"]),
        case(&evalsha.url(), Config, &["does not have EVALSHA", "renamed or forbidden"]),
        case(&script.url(), Config, &["does not have SCRIPT", "renamed or forbidden"]),
        case(&hello.url(), Config, &["HELLO", "Redis 6.2"]),
    ])
    .await;
}

#[tokio::test]
async fn servers_of_another_kind_than_the_url_give_clear_errors() {
    let (alone, node) =
        (tcp().password(SECRET).start(), tcp().password(SECRET).setting("cluster-enabled", "yes").start());
    let sentinel = FakeServer::with_server_info(&[("server", "redis"), ("version", "7.0.0"), ("mode", "sentinel")]);
    let cluster = format!("redis-cluster://:{SECRET}@{}", tcp_address(&alone));
    assert_errors(vec![
        case(&node.url(), Config, &["node of a cluster", "write `redis-cluster://`"]),
        // Valkey supports several databases in a cluster, if configured.
        case(&format!("{}/3", node.url()), Config, &["cannot connect to redis://127.0.0.1:", "database"]),
        case(&cluster, Config, &["not a node of a cluster", "write `redis://`"]),
        case(&format!("{cluster}/3"), Config, &["database 0 or none"]),
        case(&sentinel.url(), Config, &["it is a sentinel", "`redis-sentinel://host:port/name`"]),
    ])
    .await;
}

#[tokio::test]
async fn missing_masters_of_sentinels_give_clear_errors() {
    let (master, (_closed, closed)) = (tcp().password(SECRET).start(), closed_port());
    let port = tcp_address(&master).port();
    let replica = tcp().setting("replicaof", "127.0.0.1 1").start();
    let follower = tcp_address(&replica).port();
    let unknown = FakeServer::sentinel("*-1\r\n");
    let unsure = FakeServer::sentinel("-IDONTKNOW I have not enough information to reply.\r\n");
    let closed_off = FakeServer::sentinel("-NOAUTH Authentication required.\r\n");
    let (silent, foreign) = (FakeServer::sentinel(""), FakeServer::sentinel("+PONG\r\n"));
    let (away, lagging) = (FakeServer::sentinel_for(closed), FakeServer::sentinel_for(follower));
    let good = FakeServer::sentinel_for(port);
    let url_of = |sentinels: &[&FakeServer], rest: &str| {
        let hosts: Vec<_> = sentinels.iter().map(|sentinel| sentinel.address().to_string()).collect();
        format!("redis-sentinel://:{SECRET}@{}{rest}", hosts.join(","))
    };
    let mixed = format!("redis-sentinel://:{SECRET}@127.0.0.1:{closed},{}/wrong", unknown.address());
    let unreachable = format!("redis-sentinel://:{SECRET}@127.0.0.1:{closed},127.0.0.1:{closed}/mymaster");
    assert_errors(vec![
        case(&url_of(&[&unknown], "/wrong"), Config, &["has no master named `wrong`", "into the URL"]),
        // The reply of one sentinel is more informative than the absence of another.
        case(&url_of(&[&silent, &unknown], "/wrong"), Config, &["has no master named `wrong`"]),
        case(&mixed, Config, &["has no master named `wrong`"]),
        case(&url_of(&[&unknown], ""), Config, &["must have the master's name", "`redis-sentinel://host:port/name`"]),
        case(&unreachable, Unavailable, &["none of 2 sentinels", "mymaster", "refused"]),
        case(&url_of(&[&silent, &silent], "/m"), Unavailable, &["none of 2 sentinels", "`m`"]),
        case(&url_of(&[&unsure], "/m"), Unavailable, &["has not discovered enough other sentinels"]),
        case(&url_of(&[&closed_off], "/m"), Refused, &["sentinel", "requires a password", "?sentinel_password="]),
        case(&url_of(&[&foreign], "/m"), Protocol, &["not an address"]),
        case(&url_of(&[&away], "/m"), Unavailable, &["redis://127.0.0.1:", "as the master of `m`", "refused"]),
        case(&url_of(&[&lagging], "/m"), ReadOnly, &["as the master of `m`", "a replica"]),
        case(&url_of(&[&good], "/m/99"), Config, &["as the master of `m`", "no database of that number"]),
        case(
            &url_of(&[&good], "/m").replace(SECRET, "wr0ng"),
            Refused,
            &["as the master of `m`", "user or the password"],
        ),
        // A Redis server instead of a sentinel.
        case(&format!("redis-sentinel://{}/m", tcp_address(&replica)), Config, &["not a sentinel"]),
    ])
    .await;
}

#[tokio::test]
async fn invalid_tls_certificates_give_clear_errors() {
    let read = |path| fs::read(path).expect("a certificate");
    let server = RedisServer::builder().tls().password(SECRET).setting("bind", "127.0.0.1 127.0.0.2").start();
    let strict = RedisServer::builder().tls().setting("tls-auth-clients", "yes").start();
    let expired = RedisServer::builder().expired_tls().start();
    let trusting = |server: &RedisServer| Tls::new().root_certificate(read(server.ca_certificate().expect("TLS")));
    let (stranger, stranger_key) = server.client_certificate().expect("TLS");
    let with = |url: &str, tls: Tls, kind, parts| Case { builder: Limiter::builder().url(url).tls(tls), kind, parts };
    let (own, own_key) = (read(stranger.clone()), read(stranger_key.clone()));
    let (_, other_key) = strict.client_certificate().expect("TLS");
    let text = SECRET.as_bytes();
    let pem = "-----BEGIN CERTIFICATE-----\nczNjcmV0\n-----END CERTIFICATE-----\n";
    assert_errors(vec![
        with(&server.url(), trusting(&strict), Refused, &["invalid peer certificate", "`Tls::root_certificate`"]),
        with(
            &server.url().replace("127.0.0.1", "127.0.0.2"),
            trusting(&server),
            Refused,
            &["invalid peer certificate", "another host name"],
        ),
        with(
            &expired.url(),
            trusting(&expired),
            Refused,
            &["invalid peer certificate", "xpired", "renew the server's certificate"],
        ),
        with(
            &strict.url(),
            trusting(&strict),
            Refused,
            &["requires a client certificate", "`Tls::client_certificate`"],
        ),
        with(
            &strict.url(),
            trusting(&strict).client_certificate(&own, &own_key),
            Refused,
            &["rejected the connection", "`Tls::client_certificate`"],
        ),
        with(&server.url(), Tls::new().root_certificate(text), Config, &["`Tls::root_certificate`", "PEM"]),
        with(&server.url(), Tls::new().root_certificate(pem), Config, &["`Tls::root_certificate`", "PEM"]),
        with(
            &server.url(),
            Tls::new().client_certificate(text, &own_key),
            Config,
            &["a certificate in PEM as its first argument"],
        ),
        with(&server.url(), Tls::new().client_certificate(&own, text), Config, &["as its second argument"]),
        with(&server.url(), Tls::new().client_certificate(&own, read(other_key)), Config, &["belong together"]),
        with("redis://127.0.0.1", trusting(&server), Config, &["`tls` must", "write `rediss://`"]),
        with("redis-sentinel://127.0.0.1/m", Tls::new(), Config, &["`tls` must", "`rediss-sentinel://`"]),
        with("memory:", Tls::new(), Config, &["`tls` must be used with a server", "`memory:`"]),
    ])
    .await;
}
