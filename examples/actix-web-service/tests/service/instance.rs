//! A process of the service.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use limiter_testkit::RedisServer;

/// The longest wait for the end of a process: far more than it takes on a machine under load.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// The options of a service whose decisions take as long as they take.
pub(crate) const PATIENT: [&str; 2] = ["--deadline", "60000"];

/// A process of the service on a free port. It ends with this value.
pub(crate) struct Instance {
    process: Child,
    pub(crate) address: SocketAddr,
    /// Open, so that the process can write.
    _output: BufReader<ChildStdout>,
}

impl Instance {
    /// Starts an instance that counts in this Redis. No policy decides because the machine is slow.
    pub(crate) fn start(server: &RedisServer) -> Self {
        Self::start_with(server, &PATIENT)
    }

    /// Starts an instance that counts in this Redis, with these options besides.
    pub(crate) fn start_with(server: &RedisServer, options: &[&str]) -> Self {
        let mut process = command(&["--listen", "127.0.0.1:0", "--redis", &server.url()])
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .expect("the service starts");
        let mut output = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).expect("the service writes");
        let address = line.trim().strip_prefix("listening on http://").and_then(|address| address.parse().ok());
        Self { address: address.expect("an address"), process, _output: output }
    }

    /// Sends a signal: `INT` is that of Ctrl-C.
    pub(crate) fn signal(&self, name: &str) {
        // The shell's `kill` is built in: small systems have no program of that name.
        let id = self.process.id().to_string();
        let status = Command::new("sh").args(["-c", r#"kill -s "$1" "$2""#, "kill", name, &id]).status();
        assert!(status.expect("a shell").success());
    }

    /// Waits for the end of the process.
    pub(crate) fn end(&mut self) -> ExitStatus {
        let until = Instant::now() + WAIT_TIMEOUT;
        loop {
            if let Some(status) = self.process.try_wait().expect("a process") {
                return status;
            }
            assert!(Instant::now() < until, "the service does not end within {WAIT_TIMEOUT:?}");
            sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn command(options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_actix-web-service"));
    command.args(options);
    command
}

/// Runs the service with these options to its end. Returns its exit code, its output and its errors.
pub(crate) fn run(options: &[&str]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command(options).output().expect("the service runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
}
