//! Tests of the worker: processes of it, a partner of the tests' own, and a Redis server of each test.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use http::StatusCode;
use http::header::RETRY_AFTER;
use limiter_testkit::RedisServer;
use tokio::net::TcpListener;

const TIMEOUT: Duration = Duration::from_secs(60);

/// A partner that counts its calls, and answers each with this status.
struct Partner {
    url: String,
    calls: Arc<AtomicU32>,
}

impl Partner {
    async fn start(status: StatusCode) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("an address"));
        let calls = Arc::new(AtomicU32::new(0));
        let receive = move |State(calls): State<Arc<AtomicU32>>| async move {
            calls.fetch_add(1, Relaxed);
            let answer: Response = (status, [(RETRY_AFTER, "3600")]).into_response();
            answer
        };
        let router = Router::new().route("/", post(receive)).with_state(Arc::clone(&calls));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, calls }
    }
}

/// A process of the worker.
struct Worker {
    process: Child,
    lines: BufReader<ChildStdout>,
}

impl Worker {
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_worker"));
        let mut process = command.args(arguments).stdout(Stdio::piped()).spawn().expect("the worker runs");
        let lines = BufReader::new(process.stdout.take().expect("piped"));
        Self { process, lines }
    }

    /// Reads the output up to a line with this text.
    fn wait_for(&mut self, text: &str) {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            assert!(self.lines.read_line(&mut line).expect("text") > 0, "the worker ended before {text:?}");
        }
    }

    fn interrupt(&self) {
        let id = self.process.id().to_string();
        let status = Command::new("sh").args(["-c", r#"kill -s INT "$1""#, "kill", &id]).status();
        assert!(status.expect("a shell runs").success());
    }

    /// Waits for the end of the process. Returns the rest of its output.
    fn end(mut self) -> String {
        let mut output = String::new();
        self.lines.read_to_string(&mut output).expect("text");
        let began = Instant::now();
        loop {
            match self.process.try_wait().expect("a child") {
                Some(status) => break assert!(status.success(), "{status}: {output}"),
                None => assert!(began.elapsed() < TIMEOUT, "the worker does not end: {output}"),
            }
            std::thread::yield_now();
        }
        output
    }
}

fn number_before(text: &str, output: &str) -> u32 {
    let end = output.find(text).unwrap_or_else(|| panic!("no {text:?}: {output}"));
    let number = output[..end].trim_end().rsplit([' ', '\n']).next().expect("a word");
    number.parse().expect("a number")
}

#[test]
fn the_demonstration_does_all_jobs_despite_a_maintenance() {
    let output = Worker::start(&["--jobs", "40"]).end();
    assert!(output.contains("40 jobs done, 0 left"), "{output}");
    assert!(output.contains("the partner refuses job ") && output.contains(": 503 Service Unavailable"), "{output}");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_keep_the_limit_of_the_partner() {
    let (server, partner) = (RedisServer::builder().tcp().start(), Partner::start(StatusCode::OK).await);
    let url = server.url();
    let arguments = ["--redis", &url, "--partner", &partner.url, "--limit", "20/h", "--jobs", "30"];
    let mut workers = [Worker::start(&arguments), Worker::start(&arguments)];
    // No permit is left then, and the calls that have one arrive.
    workers.iter_mut().for_each(|worker| worker.wait_for("has no permit"));
    let began = Instant::now();
    while partner.calls.load(Relaxed) < 20 {
        assert!(began.elapsed() < TIMEOUT, "{} calls", partner.calls.load(Relaxed));
        tokio::task::yield_now().await;
    }
    workers.iter().for_each(Worker::interrupt);
    let done: u32 = workers.map(|worker| number_before(" jobs done", &worker.end())).into_iter().sum();
    // The reply to the last call may have been on its way.
    assert!(done <= 20, "{done}");
    assert_eq!(partner.calls.load(Relaxed), 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_call_is_sent_before_the_retry_after_of_a_429() {
    let partner = Partner::start(StatusCode::TOO_MANY_REQUESTS).await;
    let mut worker = Worker::start(&["--partner", &partner.url, "--tasks", "1"]);
    worker.wait_for("the partner refuses job 1: 429 Too Many Requests");
    // The pause is the longest one, 5 min, so this is the only denial.
    worker.wait_for("has no permit: its task returns in ");
    worker.interrupt();
    let output = worker.end();
    assert!(output.contains("0 jobs done, 60 left, 1 denials"), "{output}");
    assert_eq!(partner.calls.load(Relaxed), 1);
}
