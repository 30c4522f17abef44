//! A server that greets like Redis and then says what a test wants it to say.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
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
    /// What it says of itself.
    greeting: String,
    /// What it says when it is asked for a master, if it is a sentinel.
    master: Mutex<String>,
    /// What it says instead as soon as somebody listens, without a word of it.
    next: Mutex<Option<String>>,
    /// Who wants to be told when that changes.
    listeners: Mutex<Vec<TcpStream>>,
    subscriptions: AtomicU64,
    then: Then,
    /// The next script calls are answered by an admission, whatever `then` says.
    well: AtomicBool,
    calls: AtomicU64,
    ended: AtomicBool,
}

/// What sentinels call it when another server is the master.
const SWITCHED: &str = "+switch-master";

/// What the script says when it admits a call that came alone.
const ADMITTED: &str = "*2\r\n:1000000000000000\r\n$24\r\n\
    \0\0\0\x01\0\0\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\x7f\x7f\x7f\r\n";

impl Fake {
    pub(crate) fn answering(then: Then) -> Self {
        Self::start("%1\r\n+server\r\n+redis\r\n".to_owned(), String::new(), then)
    }

    /// A server that says this of itself, as names and values.
    pub(crate) fn greeting(fields: &[(&str, &str)]) -> Self {
        let fields = fields.iter().map(|(name, value)| format!("+{name}\r\n+{value}\r\n"));
        let fields: Vec<_> = fields.collect();
        Self::start(format!("%{}\r\n{}", fields.len(), fields.concat()), String::new(), Then::Say(ADMITTED))
    }

    /// A server that answers a greeting with these bytes.
    pub(crate) fn refusing(greeting: &str) -> Self {
        Self::start(greeting.to_owned(), String::new(), Then::Nothing)
    }

    /// A sentinel that answers with these bytes when it is asked where a master is: with silence, if there are none.
    pub(crate) fn sentinel(master: &str) -> Self {
        Self::start(String::new(), master.to_owned(), Then::Nothing)
    }

    /// A sentinel that says that the master is at this port of 127.0.0.1.
    pub(crate) fn naming(port: u16) -> Self {
        Self::start("%0\r\n".to_owned(), at(port), Then::Nothing)
    }

    /// Names this port from now on, and tells who listens that it has done so since it named the other.
    pub(crate) fn rename(&self, before: u16, now: u16) {
        *self.shared.master.lock().expect("no panic") = at(now);
        let said = format!("mymaster 127.0.0.1 {before} 127.0.0.1 {now}");
        for mut listener in self.shared.listeners.lock().expect("no panic").iter() {
            write!(listener, ">3\r\n+message\r\n+{SWITCHED}\r\n+{said}\r\n").expect("a listener");
        }
    }

    /// Names this port just before anybody hears of it.
    pub(crate) fn rename_unheard(&self, now: u16) {
        *self.shared.next.lock().expect("no panic") = Some(at(now));
    }

    /// Names this port from now on, and closes the connections that would have heard of it.
    pub(crate) fn rename_and_hang_up(&self, now: u16) {
        *self.shared.master.lock().expect("no panic") = at(now);
        for listener in self.shared.listeners.lock().expect("no panic").iter() {
            // The client may have closed it already.
            let _ = listener.shutdown(Shutdown::Both);
        }
    }

    /// How many connections wait to hear of another master, and how many have ever.
    pub(crate) fn listeners(&self) -> (usize, u64) {
        let now = self.shared.listeners.lock().expect("no panic").len();
        (now, self.shared.subscriptions.load(Ordering::SeqCst))
    }

    fn start(greeting: String, master: String, then: Then) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free TCP port");
        let address = listener.local_addr().expect("the address of a bound listener");
        let (master, listeners) = (Mutex::new(master), Mutex::default());
        let shared = Shared {
            greeting,
            master,
            listeners,
            next: Mutex::default(),
            subscriptions: 0.into(),
            then,
            well: false.into(),
            calls: 0.into(),
            ended: false.into(),
        };
        let shared = Arc::new(shared);
        let for_listener = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if for_listener.ended.load(Ordering::Relaxed) {
                    return;
                }
                let shared = Arc::clone(&for_listener);
                thread::spawn(move || {
                    shared.serve(&stream);
                    shared.forget(&stream);
                });
            }
        });
        Self { address, shared }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Script calls so far.
    pub(crate) fn calls(&self) -> u64 {
        self.shared.calls.load(Ordering::Relaxed)
    }

    /// From now on it answers as it should.
    pub(crate) fn recover(&self) {
        self.shared.well.store(true, Ordering::Relaxed);
    }

    /// No longer.
    pub(crate) fn fail_again(&self) {
        self.shared.well.store(false, Ordering::Relaxed);
    }
}

/// The address that a sentinel gives for a master.
fn at(port: u16) -> String {
    let port = port.to_string();
    format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len())
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
            let words: Vec<_> = command.iter().map(String::as_str).collect();
            let reply = match words[..] {
                ["HELLO", ..] => &*self.greeting,
                ["SENTINEL", ..] => {
                    self.calls.fetch_add(1, Ordering::Relaxed);
                    &*self.master.lock().expect("no panic").clone()
                }
                ["SUBSCRIBE", SWITCHED] => {
                    self.listeners.lock().expect("no panic").push(stream.try_clone().expect("another handle"));
                    self.subscriptions.fetch_add(1, Ordering::SeqCst);
                    if let Some(next) = self.next.lock().expect("no panic").take() {
                        *self.master.lock().expect("no panic") = next;
                    }
                    ">3\r\n+subscribe\r\n++switch-master\r\n:1\r\n"
                }
                ["SCRIPT", ..] => "$40\r\n0123456789012345678901234567890123456789\r\n",
                // Whether there are scripts at all.
                ["EVALSHA", _, "0"] => "-NOSCRIPT No matching script.\r\n",
                ["EVALSHA", ..] => {
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

impl Shared {
    /// Its connection has ended.
    fn forget(&self, stream: &TcpStream) {
        let client = |stream: &TcpStream| stream.peer_addr().ok();
        let gone = client(stream);
        self.listeners.lock().expect("no panic").retain(|listener| client(listener) != gone);
    }
}

/// The words of the next command; none when the connection is over.
fn read_command(stream: &mut impl BufRead) -> Option<Vec<String>> {
    let count: usize = read_number(stream, '*')?;
    let mut words = Vec::new();
    for _ in 0..count {
        let mut word = vec![0; read_number(stream, '$')? + 2];
        stream.read_exact(&mut word).ok()?;
        words.push(String::from_utf8_lossy(&word).trim_end().to_owned());
    }
    Some(words)
}

fn read_number(stream: &mut impl BufRead, mark: char) -> Option<usize> {
    let mut line = String::new();
    stream.read_line(&mut line).ok()?;
    line.trim_end().strip_prefix(mark)?.parse().ok()
}
