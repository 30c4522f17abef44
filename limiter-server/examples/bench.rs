//! Compares `POST /v1/check` in memory with the same server answering a constant.
//!
//! ```sh
//! cargo run --release -p limiter-server --example bench             # 10 rounds of a second for each
//! cargo run --release -p limiter-server --example bench -- 20 16    # 20 rounds, 16 requests in a write
//! ```
//!
//! Client and server share the machine. The rounds of the two alternate, and the ratio is that of the medians. On Linux the
//! processor time of the server's threads for a request is measured too, which other programs of the machine disturb less.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use limiter_server::{ListenAddress, Server};
use rate_limited::Limiter;

const CLIENTS: usize = 8;
const ROUND: Duration = Duration::from_secs(1);
/// The name of the server's threads.
const SERVER_THREAD: &str = "bench-server";
const RULES: &str = "[rules.search]\nkey = \"search:{user_id}\"\nlimit = \"1000000000/h\"\n";

/// A request that is repeated, without the value that changes.
#[derive(Clone, Copy)]
enum Kind {
    Constant,
    Check,
}

impl Kind {
    fn write(self, user: usize, bytes: &mut Vec<u8>) {
        let body = format!(r#"{{"rule":"search","values":{{"user_id":"{user:04}"}}}}"#);
        let (method, path) = match self {
            Self::Constant => ("GET", "/healthz"),
            Self::Check => ("POST", "/v1/check"),
        };
        bytes.extend(format!("{method} {path} HTTP/1.1\r\nhost: bench\r\n").into_bytes());
        match self {
            Self::Constant => bytes.extend(b"\r\n"),
            Self::Check => {
                let length = body.len();
                bytes.extend(
                    format!("content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes(),
                );
            }
        }
    }
}

/// Sends requests until the end of a round, `depth` in a write. Returns their number and the times of the writes.
fn run_client(address: SocketAddr, kind: Kind, depth: usize, client: usize) -> std::io::Result<(usize, Vec<Duration>)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let (began, mut answered, mut times) = (Instant::now(), 0, Vec::new());
    let (mut requests, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    while began.elapsed() < ROUND {
        requests.clear();
        for index in 0..depth {
            kind.write((answered + index + client * 100) % 1_000, &mut requests);
        }
        let sent = Instant::now();
        stream.write_all(&requests)?;
        let (mut used, mut open) = (0, depth);
        while open > 0 {
            used += stream.read(&mut buffer[used..])?;
            let mut start = 0;
            while let Some(end) = answer_end(&buffer[start..used]) {
                start += end;
                open -= 1;
            }
            buffer.copy_within(start..used, 0);
            used -= start;
        }
        times.push(sent.elapsed());
        answered += depth;
    }
    Ok((answered, times))
}

/// Returns the length of a whole answer with the status 200.
fn answer_end(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|window| window == b"\r\n\r\n")?;
    let text = std::str::from_utf8(&bytes[..head]).expect("ASCII");
    assert!(text.starts_with("HTTP/1.1 200 "), "{text}");
    let length = text.split("content-length: ").nth(1)?.lines().next()?.parse::<usize>().ok()?;
    Some(head + 4 + length).filter(|end| *end <= bytes.len())
}

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
fn run_round(address: SocketAddr, kind: Kind, depth: usize) -> Round {
    let (began, server_before) = (Instant::now(), server_time());
    let clients: Vec<_> =
        (0..CLIENTS).map(|client| thread::spawn(move || run_client(address, kind, depth, client))).collect();
    let results = clients.into_iter().map(|client| client.join().expect("no panic").expect("the server answers"));
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

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<usize>());
    let (rounds, depth) = (arguments.next().transpose()?.unwrap_or(10), arguments.next().transpose()?.unwrap_or(1));
    let (bound, address) = channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .thread_name(SERVER_THREAD)
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async move {
            let rules = RULES.parse().expect("rules");
            let limiter = Limiter::builder().url("memory:").rules(rules).report_limits(true).build().expect("valid");
            let server =
                Server::new(limiter).bind(&"127.0.0.1:0".parse().expect("an address")).await.expect("a free port");
            let ListenAddress::Tcp(address) = server.address().clone() else { panic!("a port") };
            bound.send(address).expect("the clients wait");
            server.run(std::future::pending()).await;
        });
    });
    let address = address.recv()?;
    let (mut constants, mut checks) = (Vec::new(), Vec::new());
    for number in 0..rounds {
        for (name, kind, all) in [("constant", Kind::Constant, &mut constants), ("check", Kind::Check, &mut checks)] {
            let round = run_round(address, kind, depth);
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
    println!("medians of {rounds} rounds, {depth} requests in a write:");
    let (constant, check) = medians(|round| round.requests_per_second);
    println!("requests: constant {constant:.0}/s, check {check:.0}/s, ratio {:.3}", check / constant);
    let (constant, check) = medians(|round| round.server_micros);
    println!("server: constant {constant:.2} us, check {check:.2} us, ratio {:.3}", constant / check);
    Ok(())
}
