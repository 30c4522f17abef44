//! Compares the decisions of a server with its other answers.
//!
//! ```sh
//! cargo run --release -p limiter-server --example bench                # POST /v1/check beside a constant, 10 rounds of a second
//! cargo run --release -p limiter-server --example bench -- http 20 16  # 20 rounds, 16 requests in a write
//! cargo run --release -p limiter-server --example bench -- grpc 20 16  # ShouldRateLimit beside Health/Check, 16 calls at once
//! cargo run --release -p limiter-server --example bench -- redis       # the time of a check beside that of its script call
//! ```
//!
//! Client and server share the machine. The rounds of the two alternate, and the ratio is that of the medians. On Linux the
//! processor time of the server's threads for a request is measured too, which other programs of the machine disturb less.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use limiter_server::{BoundServer, ListenAddress, Server};
use rate_limited::{Builder, Limiter};

mod grpc;
mod http;
mod redis;

const CLIENTS: usize = 8;
const ROUND: Duration = Duration::from_secs(1);
/// The name of the server's threads.
const SERVER_THREAD: &str = "bench-server";

/// A request that is repeated.
#[derive(Clone, Copy)]
enum Kind {
    /// The server's answer needs no decision.
    Constant,
    Check,
}

/// The number of requests that a client made in a round, and the times of its writes.
type ClientRound = (usize, Vec<Duration>);
/// Sends requests until the end of a round, so many at once, as the client of this number.
type RunClient = fn(SocketAddr, Kind, usize, usize) -> ClientRound;

/// Returns the processor time of the server's threads so far. `None` where the system does not show it.
fn server_time() -> Option<Duration> {
    let mut nanos = 0;
    for task in std::fs::read_dir("/proc/self/task").ok()? {
        let task = task.ok()?.path();
        if std::fs::read_to_string(task.join("comm")).ok()?.trim() == SERVER_THREAD {
            let times = std::fs::read_to_string(task.join("schedstat")).ok()?;
            nanos += times.split_whitespace().next()?.parse::<u64>().ok()?;
        }
    }
    Some(Duration::from_nanos(nanos))
}

/// One round of all clients.
struct Round {
    requests_per_second: f64,
    /// The median time of a write, in microseconds.
    write_micros: u128,
    /// The server's processor time for a request, in microseconds.
    server_micros: f64,
}

/// Runs a round of all clients.
fn run_round(run_client: RunClient, address: SocketAddr, kind: Kind, depth: usize) -> Round {
    let (began, server_before) = (Instant::now(), server_time());
    let clients: Vec<_> =
        (0..CLIENTS).map(|client| thread::spawn(move || run_client(address, kind, depth, client))).collect();
    let results = clients.into_iter().map(|client| client.join().expect("no panic"));
    let (counts, times): (Vec<_>, Vec<_>) = results.unzip();
    let mut times = times.concat();
    times.sort();
    let requests = u32::try_from(counts.iter().sum::<usize>()).expect("few enough");
    let requests = f64::from(requests);
    let of_server =
        server_time().zip(server_before).map_or(Duration::ZERO, |(after, before)| after.saturating_sub(before));
    Round {
        requests_per_second: requests / began.elapsed().as_secs_f64(),
        write_micros: times[times.len() / 2].as_micros(),
        server_micros: of_server.as_secs_f64() * 1e6 / requests,
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A server on a runtime of its own. It runs until the end of the program.
struct BenchServer {
    http: SocketAddr,
    grpc: SocketAddr,
}

impl BenchServer {
    /// Starts a server on the limiter of this builder, with the options that `configure` sets.
    fn start(builder: Builder, configure: impl FnOnce(Server) -> Server + Send + 'static) -> Self {
        let (bound, addresses) = channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().thread_name(SERVER_THREAD).enable_all().build();
            runtime.expect("a runtime").block_on(async move {
                let limiter = builder.report_limits(true).build().expect("valid");
                let server = bind(configure(Server::new(limiter))).await;
                bound.send((server.address().clone(), server.grpc_address())).expect("the clients wait");
                server.run(std::future::pending()).await;
            });
        });
        let Ok((ListenAddress::Tcp(http), Some(ListenAddress::Tcp(grpc)))) = addresses.recv() else {
            panic!("the server has no ports")
        };
        Self { http, grpc }
    }
}

async fn bind(server: Server) -> BoundServer {
    let any = "127.0.0.1:0".parse().expect("an address");
    server.bind(&any).await.expect("a free port").bind_grpc(&any).await.expect("a free port")
}

/// Compares checks with constants in alternate rounds, and prints the ratios of their medians.
fn compare(run_client: RunClient, address: SocketAddr, rounds: usize, depth: usize) {
    let (mut constants, mut checks) = (Vec::new(), Vec::new());
    for number in 0..rounds {
        for (name, kind, all) in [("constant", Kind::Constant, &mut constants), ("check", Kind::Check, &mut checks)] {
            let round = run_round(run_client, address, kind, depth);
            let Round { requests_per_second, write_micros, server_micros } = round;
            println!(
                "{number:>3} {name:<8} {requests_per_second:>7.0}/s, {write_micros} us a write, server {server_micros:.2} us"
            );
            all.push(round);
        }
    }
    let medians = |value: fn(&Round) -> f64| {
        (median(constants.iter().map(value).collect()), median(checks.iter().map(value).collect()))
    };
    println!("medians of {rounds} rounds, {depth} requests at once:");
    let (constant, check) = medians(|round| round.requests_per_second);
    println!("requests: constant {constant:.0}/s, check {check:.0}/s, ratio {:.3}", check / constant);
    let (constant, check) = medians(|round| round.server_micros);
    println!("server: constant {constant:.2} us, check {check:.2} us, ratio {:.3}", constant / check);
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).peekable();
    let protocol =
        arguments.next_if(|argument| argument.parse::<usize>().is_err()).unwrap_or_else(|| "http".to_owned());
    let mut numbers = arguments.map(|argument| argument.parse::<usize>());
    let (rounds, depth) = (numbers.next().transpose()?.unwrap_or(10), numbers.next().transpose()?.unwrap_or(1));
    match &*protocol {
        "http" => {
            let rules = http::RULES.parse()?;
            let server = BenchServer::start(Limiter::builder().url("memory:").rules(rules), |server| server);
            compare(http::run_client, server.http, rounds, depth);
        }
        "grpc" => {
            let directory = tempfile::tempdir()?;
            std::fs::write(directory.path().join("bench.yaml"), grpc::CONFIG)?;
            let path = directory.path().to_owned();
            let server = BenchServer::start(Limiter::builder().url("memory:"), move |server| {
                server.envoy_config([path]).expect("no mistake")
            });
            compare(grpc::run_client, server.grpc, rounds, depth);
        }
        "redis" => redis::compare(rounds),
        other => return Err(format!("the first argument must be `http`, `grpc` or `redis`, got `{other}`").into()),
    }
    Ok(())
}
