//! Envoy with the service: admitted, denied, a budget that is charged at the end, and the service down.
//!
//! `RATE_LIMITED_ENVOY` names the program. Without it and without `envoy` in the path, the test is skipped, but not in CI.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use limiter_server::{ListenAddress, Server};
use rate_limited::{Key, Limiter};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::sleep;

/// The longest start on an overloaded machine.
const START_TIME: Duration = Duration::from_secs(60);
/// The longest time from an answer to the charge of its cost.
const CHARGE_TIME: Duration = Duration::from_secs(60);

const LIMITS: &str = "domain: edge
descriptors:
  - key: user
    rate_limit: {name: of-user, unit: hour, requests_per_unit: 2}
  - key: org
    rate_limit: {limit: 1000/h, postpaid: true}
";

/// An Envoy that runs. It is killed when it is dropped.
struct Envoy {
    child: Child,
    directory: TempDir,
}

/// An answer as it was received.
#[derive(Debug)]
struct Received {
    status: u16,
    /// The fields, one a line, with names in lower case.
    head: String,
    body: String,
}

impl Received {
    fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

fn program() -> Option<PathBuf> {
    if let Some(program) = env::var_os("RATE_LIMITED_ENVOY").filter(|program| !program.is_empty()) {
        return Some(program.into());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|directory| directory.join("envoy")).find(|program| program.is_file());
    assert!(found.is_some() || env::var_os("CI").is_none_or(|value| value != "true"), "there is no envoy");
    if found.is_none() {
        println!("skipped: there is no envoy, and RATE_LIMITED_ENVOY names none");
    }
    found
}

impl Envoy {
    /// Starts Envoy in a directory with the service's socket, and waits until it answers.
    async fn start(program: &Path, directory: TempDir) -> Self {
        let at = directory.path();
        let configuration = include_str!("envoy/envoy.yaml").replace("DIRECTORY", &at.display().to_string());
        fs::write(at.join("envoy.yaml"), configuration).expect("a file");
        let log = || fs::File::create(at.join("log")).expect("a file");
        let child = Command::new(program)
            .args(["--disable-hot-restart", "--concurrency", "1", "--log-level", "warning", "-c"])
            .arg(at.join("envoy.yaml"))
            .stdin(Stdio::null())
            .stdout(log())
            .stderr(log())
            .spawn()
            .expect("Envoy starts");
        let mut envoy = Self { child, directory };
        let begin = Instant::now();
        while envoy.ask("open", "/free", "").await.is_none_or(|received| received.status != 200) {
            let log = fs::read_to_string(envoy.directory.path().join("log")).unwrap_or_default();
            assert!(envoy.child.try_wait().expect("a child").is_none(), "Envoy has ended: {log}");
            assert!(begin.elapsed() < START_TIME, "Envoy does not answer: {log}");
            sleep(Duration::from_millis(20)).await;
        }
        envoy
    }

    /// Sends a request to a listener. `None` if it does not listen.
    async fn ask(&self, listener: &str, path: &str, fields: &str) -> Option<Received> {
        let socket = self.directory.path().join(format!("{listener}.sock"));
        let mut stream = UnixStream::connect(socket).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{fields}\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await.ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some(Received { status, head: head.to_owned(), body: body.to_owned() })
    }

    async fn get(&self, listener: &str, path: &str, fields: &str) -> Received {
        self.ask(listener, path, fields).await.expect("Envoy answers")
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn envoy_limits_requests_and_budgets_by_the_service() {
    let Some(program) = program() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("limits.yaml"), LIMITS).expect("a file");
    let limiter = Limiter::builder().url("memory:").report_limits(true).build().expect("valid");
    let server =
        Server::new(limiter.clone()).envoy_config([directory.path().join("limits.yaml")]).expect("no mistakes");
    let server = server.bind(&"127.0.0.1:0".parse().expect("an address")).await.expect("a free port");
    let socket = ListenAddress::Unix(directory.path().join("limiter.sock"));
    let server = server.bind_grpc(&socket).await.expect("a free path");
    assert_eq!(server.grpc_address(), Some(socket));
    let serving = tokio::spawn(server.run(std::future::pending()));
    let envoy = Envoy::start(&program, directory).await;

    // Admitted, with the fields of the service and those of Envoy's own.
    let admitted = envoy.get("open", "/", "x-user: 42\r\n").await;
    assert_eq!((admitted.status, &*admitted.body), (200, "behind"), "{admitted:?}");
    assert_eq!(admitted.field("ratelimit-policy"), Some("\"edge.user\";q=2;w=3600"), "{admitted:?}");
    assert!(admitted.field("ratelimit").is_some_and(|field| field.starts_with("\"edge.user\";r=1;t=")), "{admitted:?}");
    assert_eq!(admitted.field("x-ratelimit-limit"), Some("2, 2;w=3600;name=\"of-user\""), "{admitted:?}");
    assert_eq!((admitted.field("retry-after"), admitted.field("x-envoy-ratelimited")), (None, None), "{admitted:?}");
    assert_eq!(envoy.get("closed", "/", "x-user: 42\r\n").await.status, 200);

    // Denied.
    for listener in ["open", "closed"] {
        let denied = envoy.get(listener, "/", "x-user: 42\r\n").await;
        assert_eq!((denied.status, denied.field("x-envoy-ratelimited")), (429, Some("true")), "{denied:?}");
        assert_eq!(denied.field("content-type"), Some("application/problem+json"), "{denied:?}");
        let wait: u32 = denied.field("retry-after").and_then(|wait| wait.parse().ok()).expect("a time");
        assert!((1..=3_600).contains(&wait), "{denied:?}");
        assert!(denied.field("ratelimit").is_some_and(|field| field.contains("r=0")), "{denied:?}");
        assert!(denied.body.contains("\"status\":429"), "{denied:?}");
    }
    assert_eq!(envoy.get("open", "/", "x-user: 7\r\n").await.status, 200);

    // A budget: each answer costs 600 of 1000, which Envoy reports when the answer has ended.
    let (key, budget) = (Key::new("edge.org:").part("acme"), "1000/h".parse().expect("a limit"));
    for charged in [600, 1_200] {
        assert_eq!(envoy.get("open", "/tokens", "x-org: acme\r\n").await.status, 200);
        let begin = Instant::now();
        loop {
            let usage = limiter.named("edge.org").charge(&key, &budget, 0).await.expect("memory");
            if 1_000 - i64::from(usage.remaining()) + i64::from(usage.overdrawn()) == charged {
                break;
            }
            assert!(begin.elapsed() < CHARGE_TIME, "{charged}: {usage:?}");
            sleep(Duration::from_millis(5)).await;
        }
    }
    assert_eq!(envoy.get("open", "/tokens", "x-org: acme\r\n").await.status, 429);
    assert_eq!(envoy.get("open", "/tokens", "x-org: other\r\n").await.status, 200);

    // The service is down: `failure_mode_deny` decides.
    assert_eq!(envoy.get("down-open", "/", "x-user: 42\r\n").await.status, 200);
    let closed = envoy.get("down-closed", "/", "x-user: 42\r\n").await;
    assert_eq!((closed.status, &*closed.body), (500, ""), "{closed:?}");
    serving.abort();
}
