//! One connection through the proxy.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use super::switch::{Direction, Forwarding, Switch};
use crate::socket::Socket;

/// The number of threads of one connection.
pub(super) const PUMPS_PER_LINK: usize = 3;

/// The greatest number of delayed reads of one connection, each of at most `CHUNK_BYTES`. Further replies wait at the
/// server.
const MAX_DELAYED_READS: usize = 256;
const CHUNK_BYTES: usize = 16 * 1024;

/// Both ends of a forwarded connection. They are closed as soon as one pump stops, except for the client's end of a
/// half-open connection.
#[derive(Debug)]
pub(super) struct Link {
    client: Socket,
    server: Socket,
    has_lost_bytes: AtomicBool,
    is_half_open: AtomicBool,
    has_replied: AtomicBool,
}

/// Bytes from the server, and the time at which the client may get them.
struct DelayedBytes {
    deliver_at: Instant,
    bytes: Vec<u8>,
}

/// Forwards bytes between the two ends by `PUMPS_PER_LINK` threads.
pub(super) fn start(client: Socket, server: Socket, switch: &Arc<Switch>) -> Vec<JoinHandle<()>> {
    let [has_lost_bytes, is_half_open, has_replied] = [false; 3].map(AtomicBool::new);
    let link = Arc::new(Link { client, server, has_lost_bytes, is_half_open, has_replied });
    switch.register(&link);
    let (sender, receiver) = sync_channel(MAX_DELAYED_READS);
    vec![
        spawn_pump(&link, switch, |link, switch| {
            link.forward_commands(switch);
            link.close();
        }),
        spawn_pump(&link, switch, move |link, switch| {
            link.collect_replies(switch, &sender);
            link.close_unless_half_open();
        }),
        spawn_pump(&link, switch, move |link, switch| {
            link.deliver_replies(switch, &receiver);
            link.close_unless_half_open();
        }),
    ]
}

fn spawn_pump(
    link: &Arc<Link>,
    switch: &Arc<Switch>,
    run: impl FnOnce(&Link, &Switch) + Send + 'static,
) -> JoinHandle<()> {
    let (link, switch) = (Arc::clone(link), Arc::clone(switch));
    thread::spawn(move || run(&link, &switch))
}

impl Link {
    /// Returns true if bytes were lost. Nothing valid could follow on this connection.
    pub(super) fn has_lost_bytes(&self) -> bool {
        self.has_lost_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn mark_lossy(&self) {
        self.has_lost_bytes.store(true, Ordering::Relaxed);
    }

    /// Returns true if the connection is half open.
    pub(super) fn is_half_open(&self) -> bool {
        self.is_half_open.load(Ordering::Relaxed)
    }

    pub(super) fn mark_half_open(&self) {
        self.is_half_open.store(true, Ordering::Relaxed);
    }

    /// Returns true if the client has received a byte.
    pub(super) fn has_replied(&self) -> bool {
        self.has_replied.load(Ordering::Relaxed)
    }

    /// Returns true if the client is connected and has received no reply yet.
    pub(super) fn is_attempt(&self) -> bool {
        !self.has_replied() && !self.client.has_ended()
    }

    pub(super) fn close(&self) {
        self.client.close();
        self.server.close();
    }

    fn close_unless_half_open(&self) {
        if !self.is_half_open() {
            self.close();
        }
    }

    fn forward_commands(&self, switch: &Switch) {
        while let Some(bytes) = receive(&self.client) {
            if switch.forwarding(Direction::Command, self) == Forwarding::Intact
                && (&self.server).write_all(&bytes).is_err()
            {
                return;
            }
        }
    }

    fn collect_replies(&self, switch: &Switch, queue: &SyncSender<DelayedBytes>) {
        while let Some(bytes) = receive(&self.server) {
            let delayed = DelayedBytes { deliver_at: switch.deliver_at(), bytes };
            if queue.send(delayed).is_err() {
                return;
            }
        }
    }

    fn deliver_replies(&self, switch: &Switch, queue: &Receiver<DelayedBytes>) {
        for DelayedBytes { deliver_at, bytes } in queue {
            switch.wait_until(deliver_at);
            let forwarding = switch.forwarding(Direction::Reply, self);
            let bytes = match forwarding {
                Forwarding::Intact => bytes,
                Forwarding::Inverted => bytes.into_iter().map(|byte| !byte).collect(),
                Forwarding::FirstHalf => bytes[..bytes.len() / 2].to_vec(),
                Forwarding::Discarded => continue,
            };
            self.has_replied.store(true, Ordering::Relaxed);
            if (&self.client).write_all(&bytes).is_err() || forwarding == Forwarding::FirstHalf {
                return;
            }
        }
    }
}

/// Reads at least one byte. Returns `None` when the connection has ended.
fn receive(mut socket: &Socket) -> Option<Vec<u8>> {
    let mut bytes = vec![0; CHUNK_BYTES];
    loop {
        match socket.read(&mut bytes) {
            Ok(0) => return None,
            Ok(length) => {
                bytes.truncate(length);
                return Some(bytes);
            }
            // `Socket::has_ended` sets a read timeout for a moment, which also ends reads on other threads.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return None,
        }
    }
}
