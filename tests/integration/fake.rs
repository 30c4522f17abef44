//! A server that greets like Redis and then says what a test wants it to say.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

/// What follows a script call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Then {
    /// These bytes.
    Say(&'static str),
    /// These bytes, and the end of the connection.
    SayAndClose(&'static str),
    /// Nothing, ever.
    Nothing,
}

/// Ends its listener when dropped; connections end with their clients.
#[derive(Debug)]
pub(crate) struct Fake {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    then: Then,
    /// The next script calls are answered by an admission, whatever `then` says.
    well: AtomicBool,
    calls: AtomicU64,
    ended: AtomicBool,
}

/// What the script says when it admits a call that came alone.
const ADMITTED: &str = "*2\r\n:1000000000000000\r\n*4\r\n:1\r\n:4\r\n:-1\r\n:10000000\r\n";

impl Fake {
    pub(crate) fn answering(then: Then) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free TCP port");
        let address = listener.local_addr().expect("the address of a bound listener");
        let shared = Shared { then, well: false.into(), calls: 0.into(), ended: false.into() };
        let shared = Arc::new(shared);
        let for_listener = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if for_listener.ended.load(Ordering::Relaxed) {
                    return;
                }
                let shared = Arc::clone(&for_listener);
                thread::spawn(move || shared.serve(&stream));
            }
        });
        Self { address, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Script calls so far.
    pub(crate) fn calls(&self) -> u64 {
        self.shared.calls.load(Ordering::Relaxed)
    }

    /// From now on it answers as it should.
    pub(crate) fn recover(&self) {
        self.shared.well.store(true, Ordering::Relaxed);
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        // Wakes the listener.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn serve(&self, stream: &TcpStream) {
        let mut commands = BufReader::new(stream);
        while let Some(command) = read_command(&mut commands) {
            let reply = match command.as_str() {
                "HELLO" => "%1\r\n+server\r\n+redis\r\n",
                "SCRIPT" => "$40\r\n0123456789012345678901234567890123456789\r\n",
                "EVALSHA" => {
                    self.calls.fetch_add(1, Ordering::Relaxed);
                    match self.then {
                        _ if self.well.load(Ordering::Relaxed) => ADMITTED,
                        Then::Say(reply) | Then::SayAndClose(reply) => reply,
                        Then::Nothing => "",
                    }
                }
                _ => "+OK\r\n",
            };
            let mut out = stream;
            let closes = matches!(self.then, Then::SayAndClose(end) if end == reply);
            if out.write_all(reply.as_bytes()).is_err() || closes {
                let _ = stream.shutdown(Shutdown::Both);
                return;
            }
        }
    }
}

/// The name of the next command; none when the connection is over.
fn read_command(stream: &mut impl BufRead) -> Option<String> {
    let arguments: usize = read_number(stream, '*')?;
    let mut name = None;
    for _ in 0..arguments {
        let mut argument = vec![0; read_number(stream, '$')? + 2];
        stream.read_exact(&mut argument).ok()?;
        name.get_or_insert(String::from_utf8_lossy(&argument).trim_end().to_owned());
    }
    name
}

fn read_number(stream: &mut impl BufRead, mark: char) -> Option<usize> {
    let mut line = String::new();
    stream.read_line(&mut line).ok()?;
    line.trim_end().strip_prefix(mark)?.parse().ok()
}
