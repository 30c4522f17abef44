//! All protocols and a program together: two servers and an annotated function count on one Redis, which fails and comes back
//! empty.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use limiter_server::{ListenAddress, Server};
use limiter_testkit::{RedisServer, poll_until};
use prost::Message;
use rate_limited::{Denied, HealthState, Limiter, rate_limited};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::support::Connection;

/// The limit of each key. Its window is longer than the test.
const MAX: usize = 300;
/// The servers and the program.
const LIMITERS: usize = 3;
/// The part of each limiter in an outage.
const PART: usize = MAX / LIMITERS;
/// The clients of each server, and the task of the program.
const CLIENTS: usize = 64;
/// The calls of each client in a stage: more than enough for the limit, and for the part of the program.
const CALLS: usize = 10;
const CALLS_OF_PROGRAM: usize = 2 * PART;
/// The deadline of the store, which no call of a healthy one reaches on an overloaded machine.
const DEADLINE: Duration = Duration::from_secs(20);
/// A time that no call takes, whatever happens.
const LONG: Duration = Duration::from_secs(60);

/// The rule of all, which Envoy's configuration names after its domain.
const RULE: &str = "together.user";
const CONFIG: &str = "domain: together
descriptors:
  - key: user
    rate_limit: {limit: 300/h}
";

/// The same rule in a program. Its name is of no other test: an annotated function is known to the whole process.
#[rate_limited(key = "together.user:{user}", name = "together.user", limit = "300/h")]
async fn annotated(user: u32) -> Result<(), Denied> {
    Ok(())
}

/// A caller with a connection of its own.
enum Caller {
    Http(Connection),
    Resp(TcpStream),
    Grpc(SendRequest<Full<Bytes>>),
    Program(Limiter),
}

#[derive(Clone, PartialEq, Message)]
struct LimitRequest {
    #[prost(string, tag = "1")]
    domain: String,
    #[prost(message, repeated, tag = "2")]
    descriptors: Vec<LimitDescriptor>,
}

#[derive(Clone, PartialEq, Message)]
struct LimitDescriptor {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<LimitEntry>,
}

#[derive(Clone, PartialEq, Message)]
struct LimitEntry {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct LimitReply {
    #[prost(int32, tag = "1")]
    overall_code: i32,
}

impl Caller {
    /// Makes one call. Returns whether it was allowed: another answer than a decision fails the test.
    async fn is_allowed(&mut self, user: u32) -> bool {
        match self {
            Self::Http(connection) => {
                let body = format!(r#"{{"rule":"{RULE}","values":{{"user":{user}}}}}"#);
                let received = connection.post("/v1/check", &body).await;
                assert!([200, 429].contains(&received.status), "{received:?}");
                received.status == 200
            }
            Self::Resp(stream) => {
                stream.write_all(format!("RL.CHECK {RULE} {user}\r\n").as_bytes()).await.expect("the server reads");
                let mut reply = Vec::new();
                // Five numbers, each in a line, behind that of their count.
                while reply.iter().filter(|byte| **byte == b'\n').count() < 6 {
                    assert!(stream.read_buf(&mut reply).await.expect("a reply") > 0, "{}", reply.escape_ascii());
                    assert!(
                        reply.starts_with(b"*5\r\n"[..].get(..reply.len().min(4)).unwrap_or_default()),
                        "{}",
                        reply.escape_ascii()
                    );
                }
                reply[4..].starts_with(b":1\r\n")
            }
            Self::Grpc(sender) => {
                let entry = LimitEntry { key: "user".to_owned(), value: user.to_string() };
                let descriptors = vec![LimitDescriptor { entries: vec![entry] }];
                let message = LimitRequest { domain: "together".to_owned(), descriptors }.encode_to_vec();
                let length = u32::try_from(message.len()).expect("a short message");
                let framed = [&[0][..], &length.to_be_bytes(), &message].concat();
                let path = "http://limiter/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
                let request = hyper::Request::post(path).header("content-type", "application/grpc");
                let request = request.body(Full::new(Bytes::from(framed))).expect("a request");
                let response = sender.send_request(request).await.expect("an answer");
                let body = response.into_body().collect().await.expect("a body");
                let status = body.trailers().and_then(|trailers| trailers.get("grpc-status")).cloned();
                assert_eq!(status.as_ref().map(|status| status.as_bytes()), Some(&b"0"[..]));
                let reply = LimitReply::decode(&body.to_bytes()[5..]).expect("a message");
                assert!([1, 2].contains(&reply.overall_code), "{reply:?}");
                reply.overall_code == 1
            }
            Self::Program(limiter) => limiter.scope(annotated(user)).await.is_ok(),
        }
    }

    fn calls(&self) -> usize {
        if matches!(self, Self::Program(_)) { CALLS_OF_PROGRAM } else { CALLS }
    }
}

/// A server in this process, with its limiter and its addresses.
struct CountingServer {
    limiter: Limiter,
    http: SocketAddr,
    resp: SocketAddr,
    grpc: SocketAddr,
    _config: tempfile::TempDir,
}

fn limiter(redis: &RedisServer) -> Limiter {
    Limiter::builder().url(redis.url()).deadline(DEADLINE).instances(3).report_limits(true).build().expect("valid")
}

impl CountingServer {
    async fn start(redis: &RedisServer) -> Self {
        let (limiter, config) = (limiter(redis), tempfile::tempdir().expect("a directory"));
        std::fs::write(config.path().join("together.yaml"), CONFIG).expect("a file");
        let any: ListenAddress = "127.0.0.1:0".parse().expect("an address");
        let server = Server::new(limiter.clone()).envoy_config([config.path()]).expect("no mistake");
        let bound = server.bind(&any).await.expect("a free port").bind_resp(&any).await.expect("another one");
        let bound = bound.bind_grpc(&any).await.expect("a third one");
        let port = |address: Option<ListenAddress>| match address {
            Some(ListenAddress::Tcp(address)) => address,
            other => panic!("{other:?}"),
        };
        let http = port(Some(bound.address().clone()));
        let (resp, grpc) = (port(bound.resp_address()), port(bound.grpc_address()));
        tokio::spawn(bound.run(pending()));
        Self { limiter, http, resp, grpc, _config: config }
    }

    /// Opens a connection of one of the three protocols.
    async fn caller(&self, number: usize) -> Caller {
        match number % 3 {
            0 => Caller::Http(Connection::open(self.http).await),
            1 => Caller::Resp(TcpStream::connect(self.resp).await.expect("the server listens")),
            _ => {
                let stream = TcpStream::connect(self.grpc).await.expect("the server listens");
                let connection = http2::Builder::new(TokioExecutor::new()).handshake(TokioIo::new(stream)).await;
                let (sender, connection) = connection.expect("a connection");
                tokio::spawn(connection);
                Caller::Grpc(sender)
            }
        }
    }
}

/// The callers with the number of their limiter.
struct Fleet {
    callers: Vec<(usize, Caller)>,
}

impl Fleet {
    async fn start(servers: &[CountingServer; 2], program: &Limiter) -> Self {
        let mut callers = vec![(2, Caller::Program(program.clone()))];
        for number in 0..CLIENTS - 1 {
            // Each protocol calls both servers.
            let server = number / 3 % 2;
            callers.push((server, servers[server].caller(number).await));
        }
        Self { callers }
    }

    /// Makes the calls of a stage at once. Returns the permits that each limiter granted. `meanwhile` gets the number of calls
    /// that were answered.
    async fn call(&mut self, user: u32, meanwhile: impl AsyncFnOnce(&AtomicUsize)) -> [usize; LIMITERS] {
        let (mut granted, answered) = ([0; LIMITERS], Arc::new(AtomicUsize::new(0)));
        let mut stage = JoinSet::new();
        for (limiter, mut caller) in self.callers.drain(..) {
            let answered = Arc::clone(&answered);
            stage.spawn(async move {
                let mut granted = 0;
                for _ in 0..caller.calls() {
                    let began = Instant::now();
                    granted += usize::from(caller.is_allowed(user).await);
                    assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
                    answered.fetch_add(1, Ordering::Relaxed);
                }
                (limiter, caller, granted)
            });
        }
        meanwhile(&answered).await;
        for (limiter, caller, permits) in stage.join_all().await {
            granted[limiter] += permits;
            self.callers.push((limiter, caller));
        }
        granted
    }
}

/// The permits of all limiters together.
fn sum(granted: [usize; LIMITERS]) -> usize {
    granted.iter().sum()
}

/// Adds up the permits of each limiter in two stages.
fn both(one: [usize; LIMITERS], other: [usize; LIMITERS]) -> [usize; LIMITERS] {
    std::array::from_fn(|limiter| one[limiter] + other[limiter])
}

fn wait_for_store(redis: &RedisServer, limiters: &[&Limiter]) {
    poll_until(
        "each limiter has its store",
        LONG,
        || redis.log_tail(),
        || {
            let states: Vec<_> = limiters.iter().map(|limiter| limiter.health().state).collect();
            if states.iter().all(|state| *state == HealthState::Up) { Ok(()) } else { Err(format!("{states:?}")) }
        },
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn all_protocols_and_a_program_keep_one_limit_through_an_outage() {
    let mut redis = RedisServer::start();
    let servers = [CountingServer::start(&redis).await, CountingServer::start(&redis).await];
    let program = limiter(&redis);
    let limiters = [&servers[0].limiter, &servers[1].limiter, &program];
    wait_for_store(&redis, &limiters);
    let mut fleet = Fleet::start(&servers, &program).await;
    assert_eq!(fleet.callers.len(), CLIENTS);

    // Healthy: exactly the limit, and one counter.
    let healthy = fleet.call(1, async |_| {}).await;
    assert_eq!(sum(healthy), MAX, "{healthy:?}");
    assert_eq!(redis.keys(), ["rl:{together.user:@1}1h"]);

    // The server dies while a second key is in use. What a limiter held above its part comes on top of the parts of the others.
    let calls = fleet.callers.iter().map(|(_, caller)| caller.calls()).sum::<usize>();
    let dying = fleet
        .call(2, async |answered| {
            while answered.load(Ordering::Relaxed) < calls / 8 {
                tokio::task::yield_now().await;
            }
            redis.kill();
        })
        .await;
    let most_around_a_failure = MAX + (LIMITERS - 1) * PART;
    assert!(sum(dying) <= most_around_a_failure, "{dying:?}");

    // Dead: a key that each limiter has used keeps what it was granted, and a new key has the parts alone.
    let without_store = fleet.call(1, async |_| {}).await;
    let fresh = fleet.call(3, async |_| {}).await;
    let assert_bounds = |first: [usize; LIMITERS], fresh: [usize; LIMITERS]| {
        for limiter in 0..LIMITERS {
            assert!(first[limiter] <= healthy[limiter].max(PART), "{limiter}: {healthy:?} {first:?}");
            assert!(fresh[limiter] <= PART, "{limiter}: {fresh:?}");
        }
    };
    assert_bounds(both(healthy, without_store), fresh);
    assert_eq!(fresh, [PART; LIMITERS], "each limiter decides by its standby limiter");

    // Back and empty: no key has a new quota.
    redis.restart();
    assert_eq!(redis.keys(), [""; 0]);
    wait_for_store(&redis, &limiters);
    let first = fleet.call(1, async |_| {}).await;
    let second = fleet.call(2, async |_| {}).await;
    let third = fleet.call(3, async |_| {}).await;
    assert_bounds(both(both(healthy, without_store), first), both(fresh, third));
    assert!(sum(both(dying, second)) <= most_around_a_failure, "{dying:?} {second:?}");
}
