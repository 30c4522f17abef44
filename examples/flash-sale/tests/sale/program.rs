//! A process of the program.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use limiter_testkit::RedisServer;

/// The longest wait for a condition: far more than it takes on a machine under load.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// A process that serves. It ends with this value.
pub(crate) struct Program {
    process: Child,
    lines: BufReader<ChildStdout>,
    pub(crate) address: SocketAddr,
}

impl Program {
    /// Starts a process with these options, on a free port.
    pub(crate) fn start(server: &RedisServer, options: &[&str]) -> Self {
        let mut process = command(&server.url(), options).stdout(Stdio::piped()).spawn().expect("the program starts");
        let mut lines = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut line = String::new();
        lines.read_line(&mut line).expect("text");
        let address = line.trim().strip_prefix("listening on http://").and_then(|address| address.parse().ok());
        Self { process, lines, address: address.expect("an address") }
    }

    /// Reads the output up to a line that has a property, and returns that line.
    pub(crate) fn wait_for(&mut self, what: &str, is_met: impl Fn(&str) -> bool) -> String {
        let mut line = String::new();
        while !is_met(&line) {
            line.clear();
            assert!(self.lines.read_line(&mut line).expect("text") > 0, "the program ended before {what}");
        }
        line
    }

    /// Sends SIGINT, as Ctrl-C does.
    pub(crate) fn interrupt(&self) {
        let id = self.process.id().to_string();
        let status = Command::new("sh").args(["-c", r#"kill -s INT "$1""#, "kill", &id]).status();
        assert!(status.expect("a shell").success());
    }

    /// Waits for the end. Returns the code, and the rest of the output.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let mut output = String::new();
        self.lines.read_to_string(&mut output).expect("text");
        let status = eventually("the end of the program", || self.process.try_wait().expect("a process"));
        (status.code(), output)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs a process that ends by itself.
pub(crate) fn run(redis: &str, options: &[&str]) -> Output {
    command(redis, options).output().expect("the program runs")
}

fn command(redis: &str, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flash-sale"));
    command.args(["--redis", redis]).args(options);
    command
}

/// Polls until there is a value, and panics after a minute.
pub(crate) fn eventually<T>(what: &str, mut poll: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(value) = poll() {
            return value;
        }
        assert!(began.elapsed() < WAIT_TIMEOUT, "{what} does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the number before a text in the output.
pub(crate) fn number_before(text: &str, output: &str) -> u64 {
    let end = output.find(text).unwrap_or_else(|| panic!("no {text:?}: {output}"));
    let number = output[..end].trim_end().rsplit([' ', '\n']).next().expect("a word");
    number.parse().unwrap_or_else(|error| panic!("{number:?} before {text:?}: {error}"))
}
