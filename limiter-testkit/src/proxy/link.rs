//! One connection through the proxy.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use super::switch::{Fate, Switch, Way};
use crate::socket::Socket;

/// Threads of one connection.
pub(super) const PUMPS: usize = 3;

/// How many replies of one connection may wait for their time, each of at most `CHUNK` bytes. More wait at the server.
const WAITING: usize = 256;
const CHUNK: usize = 16 * 1024;

/// Both ends, closed as soon as one pump stops: except that of an orphan's client, which learns of nothing.
#[derive(Debug)]
pub(super) struct Link {
    client: Socket,
    server: Socket,
    lost: AtomicBool,
    orphaned: AtomicBool,
    answered: AtomicBool,
}

/// What the server said, and when the client may know.
struct Delivery {
    due: Instant,
    bytes: Vec<u8>,
}

/// Connects the two ends by `PUMPS` threads.
pub(super) fn start(client: Socket, server: Socket, switch: &Arc<Switch>) -> Vec<JoinHandle<()>> {
    let [lost, orphaned, answered] = [false; 3].map(AtomicBool::new);
    let link = Arc::new(Link { client, server, lost, orphaned, answered });
    switch.admit(&link);
    let (sender, receiver) = sync_channel(WAITING);
    vec![
        pump(&link, switch, |link, switch| {
            link.carry_commands(switch);
            link.close();
        }),
        pump(&link, switch, move |link, switch| {
            link.collect_replies(switch, &sender);
            link.close_unless_orphaned();
        }),
        pump(&link, switch, move |link, switch| {
            link.deliver_replies(switch, &receiver);
            link.close_unless_orphaned();
        }),
    ]
}

fn pump(link: &Arc<Link>, switch: &Arc<Switch>, run: impl FnOnce(&Link, &Switch) + Send + 'static) -> JoinHandle<()> {
    let (link, switch) = (Arc::clone(link), Arc::clone(switch));
    thread::spawn(move || run(&link, &switch))
}

impl Link {
    /// Whether bytes were swallowed: then nothing that follows would make sense.
    pub(super) fn has_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    pub(super) fn lose(&self) {
        self.lost.store(true, Ordering::Relaxed);
    }

    /// Whether its other end is gone without a word.
    pub(super) fn is_orphaned(&self) -> bool {
        self.orphaned.load(Ordering::Relaxed)
    }

    pub(super) fn orphan(&self) {
        self.orphaned.store(true, Ordering::Relaxed);
    }

    /// Whether the client has heard anything yet.
    pub(super) fn is_answered(&self) -> bool {
        self.answered.load(Ordering::Relaxed)
    }

    /// Whether the client is still there and waits for its first answer.
    pub(super) fn is_attempt(&self) -> bool {
        !self.is_answered() && !self.client.has_ended()
    }

    pub(super) fn close(&self) {
        self.client.close();
        self.server.close();
    }

    fn close_unless_orphaned(&self) {
        if !self.is_orphaned() {
            self.close();
        }
    }

    fn carry_commands(&self, switch: &Switch) {
        while let Some(bytes) = receive(&self.client) {
            if switch.fate(Way::Command, self) == Fate::Whole && (&self.server).write_all(&bytes).is_err() {
                return;
            }
        }
    }

    fn collect_replies(&self, switch: &Switch, queue: &SyncSender<Delivery>) {
        while let Some(bytes) = receive(&self.server) {
            let delivery = Delivery { due: switch.due(), bytes };
            if queue.send(delivery).is_err() {
                return;
            }
        }
    }

    fn deliver_replies(&self, switch: &Switch, queue: &Receiver<Delivery>) {
        for Delivery { due, bytes } in queue {
            switch.wait_until(due);
            let fate = switch.fate(Way::Reply, self);
            let bytes = match fate {
                Fate::Whole => bytes,
                Fate::Garbled => bytes.into_iter().map(|byte| !byte).collect(),
                Fate::Half => bytes[..bytes.len() / 2].to_vec(),
                Fate::Lost => continue,
            };
            self.answered.store(true, Ordering::Relaxed);
            if (&self.client).write_all(&bytes).is_err() || fate == Fate::Half {
                return;
            }
        }
    }
}

/// The next bytes, at least one; none when the connection is over.
fn receive(mut socket: &Socket) -> Option<Vec<u8>> {
    let mut bytes = vec![0; CHUNK];
    loop {
        match socket.read(&mut bytes) {
            Ok(0) => return None,
            Ok(length) => {
                bytes.truncate(length);
                return Some(bytes);
            }
            // `Socket::has_ended` lets reads of other threads end early.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => return None,
        }
    }
}
