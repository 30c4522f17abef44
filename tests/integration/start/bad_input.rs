//! What is wrong with a URL, or with the server it leads to: one error each, at connect, that names the cause and the
//! way out.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

use limiter_testkit::{RedisServer, RedisServerBuilder};
use rate_limited::ErrorKind::{self, Config, Protocol, ReadOnly, Refused, Unavailable};
use rate_limited::{Builder, Limiter, Tls};
use tokio::task::JoinSet;

use super::{SECRET, speaker};
use crate::fake::Fake;
use crate::support::place;

/// However wrong it is, `connect` says so within 5 s, on a machine that has time for it; a machine under load takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is wrong, what the error is, and the words that are in it.
struct Case {
    builder: Builder,
    kind: ErrorKind,
    words: &'static [&'static str],
}

fn case(url: &str, kind: ErrorKind, words: &'static [&'static str]) -> Case {
    Case { builder: Limiter::builder().url(url), kind, words }
}

/// Each is over in time, of its kind, in its words, and without a secret.
async fn all_are_told(cases: Vec<Case>) {
    let mut tries = JoinSet::new();
    let count = cases.len();
    for (row, Case { builder, kind, words }) in cases.into_iter().enumerate() {
        tries.spawn(async move {
            let asked = Instant::now();
            let error = builder.connect().await.expect_err(words[0]);
            assert!(asked.elapsed() < PATIENCE, "row {row}: {:?}", asked.elapsed());
            assert_eq!(error.kind(), kind, "row {row}: {error}");
            let text = format!("{error} {error:?}");
            assert!(!text.contains(SECRET), "row {row}: {text}");
            for word in words {
                assert!(text.contains(word), "row {row} does not say {word:?}: {error}");
            }
            error.to_string()
        });
    }
    let mut told = Vec::new();
    while let Some(tried) = tries.join_next().await {
        told.extend(tried.ok());
    }
    assert_eq!(told.len(), count, "rows of the table; each other has said what is wrong: {told:#?}");
}

fn unused_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free TCP port");
    listener.local_addr().expect("the address of a bound listener").port()
}

fn tcp() -> RedisServerBuilder {
    RedisServer::builder().tcp()
}

#[tokio::test]
async fn a_place_where_no_redis_is() {
    let closed = unused_port();
    let (silent, http) = (speaker(""), speaker("HTTP/1.1 400 Bad Request\r\n\r\n"));
    let open = tcp().start();
    all_are_told(vec![
        case(
            &format!("http://:{SECRET}@127.0.0.1"),
            Config,
            &["unknown scheme", "`redis://host:port`", "`redis-sentinel://"],
        ),
        case(
            &format!("redis://:{SECRET}@nowhere.invalid"),
            Unavailable,
            &["redis://nowhere.invalid:6379", "host's name"],
        ),
        case(
            &format!("redis://:{SECRET}@127.0.0.1:{closed}"),
            Unavailable,
            &["cannot connect to redis://127.0.0.1:", "refused"],
        ),
        case(&format!("redis+unix:///nowhere/redis.sock?pass={SECRET}"), Unavailable, &["/nowhere/redis.sock"]),
        case(&format!("redis://:{SECRET}@{silent}"), Unavailable, &["did not answer within"]),
        case(&format!("redis://:{SECRET}@{http}"), Protocol, &["cannot connect to redis://127.0.0.1:"]),
        case(&format!("rediss://:{SECRET}@{}", place(&open)), Unavailable, &["rediss://127.0.0.1:"]),
    ])
    .await;
}

#[tokio::test]
async fn a_user_or_a_database_that_is_not_there() {
    let guarded = tcp().password("other").start();
    let (open, unable) = (tcp().start(), tcp().user_with_rules("app", SECRET, "~* +@all -evalsha").start());
    let (at, anywhere) = (place(&guarded), place(&open));
    all_are_told(vec![
        case(&format!("redis://{at}"), Refused, &["wants a password", "Builder::credentials"]),
        case(&format!("redis://:{SECRET}@{at}"), Refused, &["refused the user or the password"]),
        case(&format!("redis://nobody:{SECRET}@{at}"), Refused, &["refused the user or the password"]),
        case(&format!("redis://{anywhere}/16"), Config, &["no database of that number"]),
        case(&format!("redis://{anywhere}/-1"), Config, &["no database of that number"]),
        case(&unable.url(), Refused, &["a permission that the limiter needs", "README"]),
    ])
    .await;
}

#[tokio::test]
async fn a_server_that_cannot_run_the_script() {
    let (old, fresh) = (&[("server", "redis"), ("version", "6.0.16")], &[("server", "redis"), ("version", "5.0")]);
    let (old, ancient) = (Fake::greeting(old), Fake::greeting(fresh));
    let without = |command: &str| tcp().password(SECRET).setting("rename-command", &format!("{command} \"\"")).start();
    let (evalsha, script) = (without("EVALSHA"), without("SCRIPT"));
    // Valkey asks for the password first.
    let hello = tcp().setting("rename-command", "HELLO \"\"").start();
    all_are_told(vec![
        case(&old.url(), Config, &["Redis 6.0", "Redis 6.2 or later", "cannot use redis://127.0.0.1:"]),
        case(&ancient.url(), Config, &["Redis 5.0", "Redis 6.2 or later"]),
        case(&evalsha.url(), Config, &["does not have EVALSHA", "renamed or forbidden"]),
        case(&script.url(), Config, &["does not have SCRIPT", "renamed or forbidden"]),
        case(&hello.url(), Config, &["HELLO", "Redis 6.2"]),
    ])
    .await;
}

#[tokio::test]
async fn a_server_of_another_kind_than_the_url_says() {
    let (alone, node) =
        (tcp().password(SECRET).start(), tcp().password(SECRET).setting("cluster-enabled", "yes").start());
    let sentinel = Fake::greeting(&[("server", "redis"), ("version", "7.0.0"), ("mode", "sentinel")]);
    let cluster = format!("redis-cluster://:{SECRET}@{}", place(&alone));
    all_are_told(vec![
        case(&node.url(), Config, &["node of a cluster", "write `redis-cluster://`"]),
        // Valkey has others in a cluster, if it is told to.
        case(&format!("{}/3", node.url()), Config, &["cannot connect to redis://127.0.0.1:", "database"]),
        case(&cluster, Config, &["no node of a cluster", "write `redis://`"]),
        case(&format!("{cluster}/3"), Config, &["database 0 alone"]),
        case(&sentinel.url(), Config, &["it is a sentinel", "`redis-sentinel://host:port/name`"]),
    ])
    .await;
}

#[tokio::test]
async fn a_master_that_sentinels_cannot_name() {
    let (master, closed) = (tcp().password(SECRET).start(), unused_port());
    let port = place(&master).port();
    let replica = tcp().setting("replicaof", "127.0.0.1 1").start();
    let follower = place(&replica).port();
    let unknown = Fake::sentinel("*-1\r\n");
    let unsure = Fake::sentinel("-IDONTKNOW I have not enough information to reply.\r\n");
    let closed_off = Fake::sentinel("-NOAUTH Authentication required.\r\n");
    let (silent, foreign) = (Fake::sentinel(""), Fake::sentinel("+PONG\r\n"));
    let (away, lagging) = (Fake::naming(closed), Fake::naming(follower));
    let good = Fake::naming(port);
    let by = |sentinels: &[&Fake], rest: &str| {
        let hosts: Vec<_> = sentinels.iter().map(|sentinel| sentinel.address().to_string()).collect();
        format!("redis-sentinel://:{SECRET}@{}{rest}", hosts.join(","))
    };
    let mixed = format!("redis-sentinel://:{SECRET}@127.0.0.1:{closed},{}/wrong", unknown.address());
    let nobody = format!("redis-sentinel://:{SECRET}@127.0.0.1:{closed},127.0.0.1:{closed}/mymaster");
    all_are_told(vec![
        case(&by(&[&unknown], "/wrong"), Config, &["knows no master `wrong`", "the name in the URL"]),
        // What one says tells more than that another is away.
        case(&by(&[&silent, &unknown], "/wrong"), Config, &["knows no master `wrong`"]),
        case(&mixed, Config, &["knows no master `wrong`"]),
        case(&by(&[&unknown], ""), Config, &["names no master", "`redis-sentinel://host:port/name`"]),
        case(&nobody, Unavailable, &["none of 2 sentinels", "mymaster", "refused"]),
        case(&by(&[&silent, &silent], "/m"), Unavailable, &["none of 2 sentinels", "`m`"]),
        case(&by(&[&unsure], "/m"), Unavailable, &["does not know enough of the others"]),
        case(&by(&[&closed_off], "/m"), Refused, &["sentinel", "wants a password", "?sentinel_password="]),
        case(&by(&[&foreign], "/m"), Protocol, &["something else than an address"]),
        case(&by(&[&away], "/m"), Unavailable, &["the master of `m` is redis://127.0.0.1:", "refused"]),
        case(&by(&[&lagging], "/m"), ReadOnly, &["the master of `m` is", "a replica"]),
        case(&by(&[&good], "/m/99"), Config, &["the master of `m` is", "no database of that number"]),
        case(&by(&[&good], "/m").replace(SECRET, "wr0ng"), Refused, &["the master of `m` is", "user or the password"]),
        // A server is no sentinel.
        case(&format!("redis-sentinel://{}/m", place(&replica)), Config, &["is it a sentinel"]),
    ])
    .await;
}

#[tokio::test]
async fn a_tls_certificate_that_proves_nothing() {
    let read = |path| fs::read(path).expect("a certificate");
    let server = RedisServer::builder().tls().password(SECRET).setting("bind", "127.0.0.1 127.0.0.2").start();
    let strict = RedisServer::builder().tls().setting("tls-auth-clients", "yes").start();
    let expired = RedisServer::builder().expired_tls().start();
    let trusting = |server: &RedisServer| Tls::new().root_certificate(read(server.ca_certificate().expect("TLS")));
    let (stranger, stranger_key) = server.client_certificate().expect("TLS");
    let with = |url: &str, tls: Tls, kind, words| Case { builder: Limiter::builder().url(url).tls(tls), kind, words };
    let (own, own_key) = (read(stranger.clone()), read(stranger_key.clone()));
    let (_, other_key) = strict.client_certificate().expect("TLS");
    let text = SECRET.as_bytes();
    let pem = "-----BEGIN CERTIFICATE-----\nczNjcmV0\n-----END CERTIFICATE-----\n";
    all_are_told(vec![
        with(&server.url(), trusting(&strict), Refused, &["invalid peer certificate", "`Tls::root_certificate`"]),
        with(
            &server.url().replace("127.0.0.1", "127.0.0.2"),
            trusting(&server),
            Refused,
            &["invalid peer certificate", "another name"],
        ),
        with(&expired.url(), trusting(&expired), Refused, &["invalid peer certificate", "xpired", "needs a new one"]),
        with(&strict.url(), trusting(&strict), Refused, &["asks for a certificate", "`Tls::client_certificate`"]),
        with(
            &strict.url(),
            trusting(&strict).client_certificate(&own, &own_key),
            Refused,
            &["refuses the connection", "`Tls::client_certificate`"],
        ),
        with(&server.url(), Tls::new().root_certificate(text), Config, &["`Tls::root_certificate`", "PEM"]),
        with(&server.url(), Tls::new().root_certificate(pem), Config, &["`Tls::root_certificate`", "PEM"]),
        with(&server.url(), Tls::new().client_certificate(text, &own_key), Config, &["first, a certificate in PEM"]),
        with(&server.url(), Tls::new().client_certificate(&own, text), Config, &["second, a private key in PEM"]),
        with(&server.url(), Tls::new().client_certificate(&own, read(other_key)), Config, &["do not belong together"]),
        with("redis://127.0.0.1", trusting(&server), Config, &["options for TLS", "write `rediss://`"]),
        with("redis-sentinel://127.0.0.1/m", Tls::new(), Config, &["options for TLS", "`rediss-sentinel://`"]),
        with("memory:", Tls::new(), Config, &["`tls` must be used with a server", "`memory:`"]),
    ])
    .await;
}
