//! The process of a gateway.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::page::Addresses;
use crate::support::{Connection, Received};

/// The starts at other ports, if a port is taken meanwhile.
const MAX_STARTS: u32 = 5;
/// The longest start on an overloaded machine.
pub(super) const START_TIME: Duration = Duration::from_secs(60);

/// A gateway that runs. It is killed when it is dropped.
pub(super) struct Gateway {
    child: Child,
    address: SocketAddr,
    directory: TempDir,
}

/// Returns the program of a gateway. `None` if it is missing, so that its tests are skipped.
pub(super) fn program_of(name: &str) -> Option<PathBuf> {
    let variable = format!("RATE_LIMITED_{}", name.to_uppercase());
    if let Some(program) = env::var_os(&variable).filter(|program| !program.is_empty()) {
        return Some(program.into());
    }
    // nginx and HAProxy are where a user's path may not lead.
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    let found = directories.map(|directory| directory.join(name)).find(|program| program.is_file());
    assert!(found.is_some() || env::var_os("CI").is_none_or(|value| value != "true"), "there is no {name}");
    if found.is_none() {
        println!("skipped: there is no {name}, and {variable} names none");
    }
    found
}

impl Gateway {
    /// Starts a gateway in a directory of its own. `prepare` writes its files there and returns the arguments.
    pub(super) async fn start(
        program: &Path,
        service: SocketAddr,
        behind: SocketAddr,
        prepare: impl Fn(&Path, Addresses) -> Vec<OsString>,
    ) -> Self {
        let mut output = String::new();
        for _ in 0..MAX_STARTS {
            let directory = tempfile::tempdir().expect("a directory");
            let addresses = Addresses { gateway: free_address(), service, program: behind };
            let arguments = prepare(directory.path(), addresses);
            let log = || fs::File::create(directory.path().join("log")).expect("a file");
            let child = Command::new(program)
                .args(arguments)
                .current_dir(directory.path())
                .env("HOME", directory.path())
                .env("XDG_DATA_HOME", directory.path())
                .env("XDG_CONFIG_HOME", directory.path())
                .stdin(Stdio::null())
                .stdout(log())
                .stderr(log())
                .spawn()
                .expect("the gateway starts");
            let mut gateway = Self { child, address: addresses.gateway, directory };
            if gateway.listens().await {
                return gateway;
            }
            output = gateway.log();
        }
        panic!("the gateway does not start: {output}");
    }

    /// Returns whether the gateway listens. It ends early if its port is taken.
    async fn listens(&mut self) -> bool {
        let begin = Instant::now();
        while self.child.try_wait().expect("a child").is_none() {
            if TcpStream::connect(self.address).await.is_ok() {
                return true;
            }
            assert!(begin.elapsed() < START_TIME, "the gateway does not listen: {}", self.log());
            sleep(Duration::from_millis(10)).await;
        }
        false
    }

    /// Sends a request on a connection of its own.
    pub(super) async fn ask(&self, request: &str) -> Received {
        Connection::open(self.address).await.ask(request, "").await
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_address() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("bound")
}
