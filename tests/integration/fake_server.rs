//! A fake Redis server or sentinel that sends the replies that a test chooses.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use rate_limited::{Builder, Limiter};

/// The reply to a script call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ScriptReply {
    /// These bytes.
    Bytes(&'static str),
    /// These bytes, and the end of the connection.
    BytesThenClose(&'static str),
    /// No reply.
    Never,
}

/// A fake server. Dropping it ends the listener; connections end with their clients.
#[derive(Debug)]
pub(crate) struct FakeServer {
    address: SocketAddr,
    state: Arc<FakeState>,
}

#[derive(Debug)]
struct FakeState {
    /// The reply to HELLO.
    hello_reply: String,
    /// The reply to a sentinel's request for the master's address.
    master: Mutex<String>,
    /// The reply that replaces `master` on the next subscription, without an announcement.
    next_master: Mutex<Option<String>>,
    /// Connections that are subscribed to changes of the master.
    subscribers: Mutex<Vec<TcpStream>>,
    subscriptions: AtomicU64,
    script_reply: ScriptReply,
    /// True if script calls get an admission instead of `script_reply`.
    is_recovered: AtomicBool,
    calls: AtomicU64,
    is_ended: AtomicBool,
}

/// The channel on which sentinels announce a new master.
const SWITCH_CHANNEL: &str = "+switch-master";

/// The script's reply that admits a single call.
const ADMITTED: &str = "*2\r\n:1000000000000000\r\n$24\r\n\
    \0\0\0\x01\0\0\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\x7f\x7f\x7f\r\n";

/// The script's reply that admits a write probe.
const PROBED: &str = "*7\r\n:1\r\n:0\r\n:1\r\n:0\r\n:0\r\n:1000000000000000\r\n:0\r\n";

impl FakeServer {
    /// Starts a server that sends this reply to script calls.
    pub(crate) fn with_script_reply(script_reply: ScriptReply) -> Self {
        Self::start("%1\r\n+server\r\n+redis\r\n".to_owned(), String::new(), script_reply)
    }

    /// Starts a server that replies to HELLO with these fields.
    pub(crate) fn with_server_info(fields: &[(&str, &str)]) -> Self {
        let fields = fields.iter().map(|(name, value)| format!("+{name}\r\n+{value}\r\n"));
        let fields: Vec<_> = fields.collect();
        Self::start(format!("%{}\r\n{}", fields.len(), fields.concat()), String::new(), ScriptReply::Bytes(ADMITTED))
    }

    /// Starts a server that replies to HELLO with these bytes.
    pub(crate) fn with_hello_reply(hello_reply: &str) -> Self {
        Self::start(hello_reply.to_owned(), String::new(), ScriptReply::Never)
    }

    /// Starts a sentinel that replies with these bytes to a request for the master. An empty text means no reply.
    pub(crate) fn sentinel(master: &str) -> Self {
        Self::start(String::new(), master.to_owned(), ScriptReply::Never)
    }

    /// Starts a sentinel that names this port of 127.0.0.1 as the master.
    pub(crate) fn sentinel_for(port: u16) -> Self {
        Self::start("%0\r\n".to_owned(), master_reply(port), ScriptReply::Never)
    }

    /// Names the master at port `now`, and announces the change from port `before` to all subscribers.
    pub(crate) fn announce_master(&self, before: u16, now: u16) {
        *self.state.master.lock().expect("no panic") = master_reply(now);
        self.announce(SWITCH_CHANNEL, &format!("mymaster 127.0.0.1 {before} 127.0.0.1 {now}"));
    }

    /// Sends a message to all subscribers.
    pub(crate) fn announce(&self, channel: &str, message: &str) {
        for mut subscriber in self.state.subscribers.lock().expect("no panic").iter() {
            write!(subscriber, ">3\r\n+message\r\n+{channel}\r\n+{message}\r\n").expect("an open subscription");
        }
    }

    /// Names the master at port `now` from the next subscription on, without an announcement.
    pub(crate) fn change_master_on_subscribe(&self, now: u16) {
        *self.state.next_master.lock().expect("no panic") = Some(master_reply(now));
    }

    /// Names the master at port `now`, and closes the subscribed connections instead of announcing it.
    pub(crate) fn change_master_and_disconnect(&self, now: u16) {
        *self.state.master.lock().expect("no panic") = master_reply(now);
        for subscriber in self.state.subscribers.lock().expect("no panic").iter() {
            // The client may have closed it already.
            let _ = subscriber.shutdown(Shutdown::Both);
        }
    }

    /// Returns the number of open subscriptions, and of all subscriptions so far.
    pub(crate) fn subscribers(&self) -> (usize, u64) {
        let now = self.state.subscribers.lock().expect("no panic").len();
        (now, self.state.subscriptions.load(Ordering::SeqCst))
    }

    fn start(hello_reply: String, master: String, script_reply: ScriptReply) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free TCP port");
        let address = listener.local_addr().expect("the address of a bound listener");
        let (master, subscribers) = (Mutex::new(master), Mutex::default());
        let state = FakeState {
            hello_reply,
            master,
            subscribers,
            next_master: Mutex::default(),
            subscriptions: 0.into(),
            script_reply,
            is_recovered: false.into(),
            calls: 0.into(),
            is_ended: false.into(),
        };
        let state = Arc::new(state);
        let listener_state = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if listener_state.is_ended.load(Ordering::Relaxed) {
                    return;
                }
                let state = Arc::clone(&listener_state);
                thread::spawn(move || {
                    state.serve(&stream);
                    state.remove_subscriber(&stream);
                });
            }
        });
        Self { address, state }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the number of script calls, or of requests for the master, so far.
    pub(crate) fn calls(&self) -> u64 {
        self.state.calls.load(Ordering::Relaxed)
    }

    /// A builder of a limiter on this server, without heartbeats: the server has one reply for every script, and with none
    /// the next reply would be taken for theirs.
    pub(crate) fn limiter(&self) -> Builder {
        Limiter::builder().url(self.url()).presence(false)
    }

    /// Admits script calls from now on.
    pub(crate) fn recover(&self) {
        self.state.is_recovered.store(true, Ordering::Relaxed);
    }

    /// Sends the chosen reply again from now on.
    pub(crate) fn fail_again(&self) {
        self.state.is_recovered.store(false, Ordering::Relaxed);
    }
}

/// Returns a sentinel's reply that names the master at this port.
fn master_reply(port: u16) -> String {
    let port = port.to_string();
    format!("*2\r\n$9\r\n127.0.0.1\r\n${}\r\n{port}\r\n", port.len())
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.state.is_ended.store(true, Ordering::Relaxed);
        // Wakes the listener.
        let _ = TcpStream::connect(self.address);
    }
}

impl FakeState {
    fn serve(&self, stream: &TcpStream) {
        // The replies to commands that are sent together do not wait for each other's acknowledgement.
        let _ = stream.set_nodelay(true);
        let mut commands = BufReader::new(stream);
        while let Some(command) = read_command(&mut commands) {
            let words: Vec<_> = command.iter().map(String::as_str).collect();
            let reply = match words[..] {
                ["HELLO", ..] => &*self.hello_reply,
                ["SENTINEL", ..] => {
                    self.calls.fetch_add(1, Ordering::Relaxed);
                    &*self.master.lock().expect("no panic").clone()
                }
                ["SUBSCRIBE", SWITCH_CHANNEL] => {
                    self.subscribers.lock().expect("no panic").push(stream.try_clone().expect("another handle"));
                    self.subscriptions.fetch_add(1, Ordering::SeqCst);
                    if let Some(next_master) = self.next_master.lock().expect("no panic").take() {
                        *self.master.lock().expect("no panic") = next_master;
                    }
                    &*confirmations(&[SWITCH_CHANNEL])
                }
                ["SUBSCRIBE", ref channels @ ..] => &*confirmations(channels),
                ["SCRIPT", ..] => "$40\r\n0123456789012345678901234567890123456789\r\n",
                // The check whether scripts are supported at all.
                ["EVALSHA", _, "0"] => "-NOSCRIPT No matching script.\r\n",
                // The limiter's own write, which is no call.
                ["EVALSHA", _, "1", key, ..] if key.contains("{!probe") => PROBED,
                ["EVALSHA", ..] => {
                    self.calls.fetch_add(1, Ordering::Relaxed);
                    match self.script_reply {
                        _ if self.is_recovered.load(Ordering::Relaxed) => ADMITTED,
                        ScriptReply::Bytes(reply) | ScriptReply::BytesThenClose(reply) => reply,
                        ScriptReply::Never => "",
                    }
                }
                ["TIME"] => "*2\r\n$10\r\n1000000000\r\n$1\r\n0\r\n",
                _ => "+OK\r\n",
            };
            let mut out = stream;
            let closes = matches!(self.script_reply, ScriptReply::BytesThenClose(end) if end == reply);
            if out.write_all(reply.as_bytes()).is_err() || closes {
                let _ = stream.shutdown(Shutdown::Both);
                return;
            }
        }
    }
}

impl FakeState {
    /// Removes the subscription of a connection that has ended.
    fn remove_subscriber(&self, stream: &TcpStream) {
        let client = |stream: &TcpStream| stream.peer_addr().ok();
        let gone = client(stream);
        self.subscribers.lock().expect("no panic").retain(|subscriber| client(subscriber) != gone);
    }
}

/// Returns the replies to a subscription.
fn confirmations(channels: &[&str]) -> String {
    channels.iter().map(|channel| format!(">3\r\n+subscribe\r\n+{channel}\r\n:1\r\n")).collect()
}

/// Reads the next command. Returns `None` when the connection has ended.
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
