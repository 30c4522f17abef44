//! One connection through the proxy.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use super::switch::{Switch, Way};
use crate::socket::Socket;

/// Threads of one connection.
pub(super) const PUMPS: usize = 3;

/// How many replies of one connection may wait for their time, each of at most `CHUNK` bytes. More wait at the server.
const WAITING: usize = 256;
const CHUNK: usize = 16 * 1024;

/// Both ends, closed as soon as one pump stops.
#[derive(Debug)]
pub(super) struct Link {
    client: Socket,
    server: Socket,
    lost: AtomicBool,
}

/// What the server said, and when the client may know.
struct Delivery {
    due: Instant,
    bytes: Vec<u8>,
}

/// Connects the two ends by `PUMPS` threads.
pub(super) fn start(client: Socket, server: Socket, switch: &Arc<Switch>) -> Vec<JoinHandle<()>> {
    let link = Arc::new(Link { client, server, lost: AtomicBool::new(false) });
    switch.admit(&link);
    let (sender, receiver) = sync_channel(WAITING);
    vec![
        pump(&link, switch, Link::carry_commands),
        pump(&link, switch, move |link, switch| {
            link.collect_replies(switch, &sender);
        }),
        pump(&link, switch, move |link, switch| {
            link.deliver_replies(switch, &receiver);
        }),
    ]
}

fn pump(link: &Arc<Link>, switch: &Arc<Switch>, run: impl FnOnce(&Link, &Switch) + Send + 'static) -> JoinHandle<()> {
    let (link, switch) = (Arc::clone(link), Arc::clone(switch));
    thread::spawn(move || {
        run(&link, &switch);
        link.close();
    })
}

impl Link {
    /// Whether bytes were swallowed: then nothing that follows would make sense.
    pub(super) fn has_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    pub(super) fn lose(&self) {
        self.lost.store(true, Ordering::Relaxed);
    }

    pub(super) fn close(&self) {
        self.client.close();
        self.server.close();
    }

    fn carry_commands(&self, switch: &Switch) {
        while let Some(bytes) = receive(&self.client) {
            if switch.lets_through(Way::Command, self) && (&self.server).write_all(&bytes).is_err() {
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
            if switch.lets_through(Way::Reply, self) && (&self.client).write_all(&bytes).is_err() {
                return;
            }
        }
    }
}

/// The next bytes, at least one; none when the connection is over.
fn receive(mut socket: &Socket) -> Option<Vec<u8>> {
    let mut bytes = vec![0; CHUNK];
    let length = socket.read(&mut bytes).ok().filter(|length| *length > 0)?;
    bytes.truncate(length);
    Some(bytes)
}
