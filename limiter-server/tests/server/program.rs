//! The program: its options, its end by a signal, and its share in a count with other processes.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use limiter_testkit::RedisServer;
use rate_limited::{Denied, Limiter, rate_limited};

use crate::support::Connection;

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_limiter-server"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("LIMITER_") || name == "RATE_LIMITED_URL") {
        command.env_remove(name);
    }
    // Its default port is for one program of the machine.
    command.env("LIMITER_RESP", "off");
    command
}

/// A program that runs until the end of the test.
struct Program {
    child: Child,
    address: SocketAddr,
    _stdout: BufReader<ChildStdout>,
}

impl Program {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the program");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("limiter-server: http on ").and_then(|address| address.parse().ok());
        Self { child, address: address.unwrap_or_else(|| panic!("{line:?}")), _stdout: stdout }
    }

    fn terminate(&self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().expect("kill").success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn rules(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(text.as_bytes()).expect("written");
    file
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

const SEARCH: &str = "[rules.search]\nkey = \"search:{user_id}\"\nlimit = \"500/h\"\n";

#[tokio::test(flavor = "multi_thread")]
async fn servers_and_an_attribute_share_one_count_exactly() {
    // The name is of no other rule here: a function with the attribute is known to all tests of this process.
    #[rate_limited(key = "shared:{user_id}", name = "shared", limit = "500/h")]
    async fn shared(user_id: u64) -> Result<(), Denied> {
        Ok(())
    }

    let text = "[rules.shared]\nkey = \"shared:{user_id}\"\nlimit = \"500/h\"\n";
    let (redis, file) = (RedisServer::start(), rules(text));
    let mut command = program();
    command.args(["--http=127.0.0.1:0", "--url", &redis.url(), "--deadline=10s", "--rules"]).arg(file.path());
    let servers = [Program::start(&mut command), Program::start(&mut command)];
    let limiter =
        Limiter::builder().url(redis.url()).deadline(std::time::Duration::from_secs(10)).build().expect("valid");
    let allowed = std::sync::Arc::new(AtomicU32::new(0));
    let mut clients = tokio::task::JoinSet::new();
    for client in 0..16 {
        let (address, allowed) = (servers[client % 2].address, std::sync::Arc::clone(&allowed));
        clients.spawn(async move {
            let mut connection = Connection::open(address).await;
            for _ in 0..40 {
                let received = connection.post("/v1/check", r#"{"rule":"shared","values":{"user_id":42}}"#).await;
                assert!([200, 429].contains(&received.status), "{received:?}");
                allowed.fetch_add(u32::from(received.status == 200), Ordering::Relaxed);
            }
        });
    }
    let of_attribute = std::sync::Arc::clone(&allowed);
    clients.spawn(async move {
        limiter
            .scope(async {
                for _ in 0..100 {
                    of_attribute.fetch_add(u32::from(shared(42).await.is_ok()), Ordering::Relaxed);
                }
            })
            .await;
    });
    clients.join_all().await;
    assert_eq!(allowed.load(Ordering::Relaxed), 500);
    assert_eq!(redis.keys(), ["rl:{shared:@42}1h"]);
}

#[tokio::test]
async fn the_program_ends_in_order_at_a_signal() {
    let file = rules(SEARCH);
    let mut server = Program::start(program().arg("--http=127.0.0.1:0").arg("--rules").arg(file.path()));
    let mut connection = Connection::open(server.address).await;
    assert_eq!(connection.post("/v1/check", r#"{"rule":"search","values":{"user_id":1}}"#).await.status, 200);
    let metrics = connection.get("/metrics").await.body;
    let line = r#"limiter_server_requests_total{protocol="http",command="check",outcome="ok"} 1"#;
    assert!(metrics.contains(line), "{metrics}");
    assert!(
        metrics.contains("limiter_server_request_seconds_count{protocol=\"http\",command=\"check\"} 1"),
        "{metrics}"
    );
    assert!(metrics.contains("rate_limited_") && !metrics.contains("user_id"), "{metrics}");
    let began = std::time::Instant::now();
    server.terminate();
    let status = tokio::task::spawn_blocking(move || server.child.wait().map(|status| (status, server)));
    let (status, _server) = status.await.expect("no panic").expect("its status");
    assert_eq!(status.code(), Some(0));
    // 5 s on an idle machine.
    assert!(began.elapsed() < std::time::Duration::from_secs(30));
    assert!(connection.is_closed_within(std::time::Duration::from_secs(30)).await);
}

#[test]
fn check_reports_every_mistake_and_ends() {
    let (good, bad) = (rules(SEARCH), rules("[rules.search]\nlimt = \"5/10s\"\n"));
    let output = program().args(["--check", "--http=127.0.0.1:0", "--rules"]).arg(good.path()).output();
    let output = output.expect("the program");
    assert_eq!((output.status.code(), text(&output)), (Some(0), "the settings have no mistake\n".to_owned()));
    let mut wrong = program();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let resp = format!("--resp={}", taken.local_addr().expect("bound"));
    wrong.args(["--check", "--max-wait=1", &resp, "--rules"]).arg(bad.path()).env("LIMITER_HTTP", "nowhere");
    let output = wrong.output().expect("the program");
    let shown = text(&output);
    assert_eq!(output.status.code(), Some(2), "{shown}");
    for part in ["`http`", "`resp` must be a free address", "`max-wait`", "line 2, column 1"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(shown.lines().count(), 4, "{shown}");
}

#[test]
fn a_port_in_use_ends_the_program_with_1() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = taken.local_addr().expect("bound").to_string();
    let output = program().args(["--http", &address]).output().expect("the program");
    let shown = text(&output);
    assert_eq!(output.status.code(), Some(1), "{shown}");
    assert!(shown.contains(&format!("`http` must be a free address, got {address}: ")), "{shown}");
}

#[tokio::test]
async fn the_program_listens_on_a_unix_socket_and_removes_it() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("limiter.sock");
    // One that an ended process has left.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("a free path"));
    let mut command = program();
    command.arg("--http").arg(format!("unix:{}", path.display())).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("the program");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    assert_eq!(line, format!("limiter-server: http on unix:{}\n", path.display()));
    let mut stream = tokio::net::UnixStream::connect(&path).await.expect("it listens");
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().expect("kill").success());
    assert_eq!(child.wait().expect("its status").code(), Some(0));
    assert!(!path.exists());
}
