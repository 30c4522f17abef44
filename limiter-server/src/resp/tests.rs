use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rate_limited::{Builder, Limiter, ManualClock, RuleSet};
use tokio::runtime::Runtime;

use super::*;
use crate::listen::{Connections, ListenAddress, Listener};
use crate::service::ServicePolicy;

mod clients;
mod commands;
mod limits;
mod speed;
mod throttle;

const TOKEN: &str = "0123456789abcdef";
/// A bound for what takes no time of its own.
const LONG: Duration = Duration::from_secs(30);

const RULES: &str = r#"
    [rules.search]
    key = "search:{user}/{tenant}"
    limits = ["2/10s", "5/h"]
    [rules.getId]
    limit = "5/10s"
    [rules.bucket]
    key = "bucket:{user}"
    limit = "2/10s"
    algorithm = "token_bucket"
    burst = 4
    [rules.off]
    mode = "off"
    [rules.denied]
    mode = "deny"
    [rules.erp]
    limit = "1 concurrent"
    [rules.plans]
    limit = "1/10s"
    plans = ["pro"]
    [plans.pro]
    limit = "100/10s"
"#;

/// A server of one test, with its own threads.
struct TestServer {
    address: SocketAddr,
    /// The server closes with it.
    _phase: watch::Sender<Phase>,
    _runtime: Runtime,
}

struct Setup {
    builder: Builder,
    rules: &'static str,
    policy: ServicePolicy,
    token: Option<&'static str>,
    max_connections: u32,
}

impl Default for Setup {
    fn default() -> Self {
        let policy = ServicePolicy { allows_limits: true, ..ServicePolicy::default() };
        let builder = Limiter::builder().url("memory:").clock(ManualClock::new());
        Self { builder, rules: RULES, policy, token: None, max_connections: 100 }
    }
}

impl Setup {
    fn service(self) -> Arc<DecisionService> {
        let rules: RuleSet = self.rules.parse().expect("rules");
        let builder = self.builder.rules(rules).report_limits(true).receipt_secret([7; 32]);
        Arc::new(DecisionService::new(builder.build().expect("valid"), self.policy))
    }

    fn access(&self) -> Access {
        self.token.map_or_else(Access::default, |token| Access::with_token(token.as_bytes()).expect("long enough"))
    }

    fn start(self) -> TestServer {
        let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let (runtime, access, max_connections) = (threads.expect("a runtime"), self.access(), self.max_connections);
        let any = "127.0.0.1:0".parse().expect("an address");
        // The limiter may need the runtime.
        let (service, listener) = runtime.block_on(async { (self.service(), Listener::bind("resp", &any).await) });
        let listener = listener.expect("a free port");
        let Some(ListenAddress::Tcp(address)) = listener.address() else { panic!("a port") };
        let resp = Arc::new(RespService::new(service, access));
        let (phase, watched) = watch::channel(Phase::Serving);
        runtime.spawn(async move {
            let serve = move |socket, phase| Arc::clone(&resp).serve(socket, phase);
            Connections::new(max_connections, watched).serve(listener, serve, TOO_MANY_CONNECTIONS).await;
        });
        TestServer { address, _phase: phase, _runtime: runtime }
    }
}

impl TestServer {
    fn start() -> Self {
        Setup::default().start()
    }

    fn connect(&self) -> Raw {
        let stream = TcpStream::connect(self.address).expect("a server");
        stream.set_read_timeout(Some(LONG)).expect("a socket");
        Raw { stream }
    }
}

/// A client that sends and receives bytes.
struct Raw {
    stream: TcpStream,
}

impl Raw {
    fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("the server reads");
    }

    /// Receives as many bytes as are expected, and compares them.
    #[track_caller]
    fn expect(&mut self, replies: impl AsRef<[u8]>) {
        let replies = replies.as_ref();
        let (mut received, mut length) = (vec![0; replies.len()], 0);
        while length < received.len() {
            match self.stream.read(&mut received[length..]).expect("replies") {
                0 => break,
                count => length += count,
            }
            // A shorter reply must not be waited for.
            if !replies.starts_with(&received[..length]) {
                break;
            }
        }
        assert_eq!(received[..length].escape_ascii().to_string(), replies.escape_ascii().to_string());
    }

    /// Sends a line and receives its reply.
    #[track_caller]
    fn call(&mut self, line: &str, reply: &str) {
        self.send(array(line));
        self.expect(reply);
    }

    #[track_caller]
    fn expect_end(&mut self) {
        let count = self.stream.read(&mut [0; 64]).unwrap_or(0);
        assert_eq!(count, 0, "the connection goes on");
    }
}

/// Returns a line of words as an array of bulks.
fn array(line: &str) -> Vec<u8> {
    let words: Vec<_> = line.split(' ').collect();
    let bulks = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    std::iter::once(format!("*{}\r\n", words.len())).chain(bulks).collect::<String>().into_bytes()
}
