use std::time::Instant;

use limiter_testkit::{RedisServer, unique};

use super::*;
use crate::clock::Clock;
use crate::store::redis::naming::Naming;
use crate::store::redis::server::Server;
use crate::store::redis::worker::tests::settings;
use crate::{Key, Limit};

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(60);

/// The callers' side of a worker on a server, and one key.
struct TestHandle {
    handle: WorkerHandle,
    naming: Arc<Naming>,
    key: Key,
}

/// A call, and whether its caller has polled for the reply.
struct TestCall {
    is_polled: bool,
    result: CallResult,
}

impl TestHandle {
    fn start(server: &RedisServer, busy_poll: Duration) -> Self {
        let server = Server::from_url(&server.url()).expect("a valid URL");
        let settings = WorkerSettings { busy_poll, deadline: LONG, ..settings(Clock::System) };
        let naming = Arc::clone(&settings.naming);
        let handle = WorkerHandle::start(&Endpoint::Single(Box::new(server)), settings, 10, None).expect("a thread");
        Self { handle, naming, key: Key::new(unique("polled")) }
    }

    async fn call(&self, timeout: Duration) -> TestCall {
        // The standby limiter is consulted for one window after a failure.
        let limit = Limit::new(1_000, Duration::from_millis(1)).expect("a limit");
        let request = Request::new(&self.key, limit, 1);
        let action = Action::TAKE_NOW;
        let ticket = StoreTicket::without_look_up(&[request]);
        let sent = self.handle.send(ticket, action, &[request], &self.naming, timeout).expect("room");
        TestCall { is_polled: sent.polled.is_some(), result: sent.await }
    }
}

/// The server replies to more calls in a row than there may be without a poll.
#[tokio::test]
async fn callers_poll_for_replies_unless_that_is_turned_off() {
    for (busy_poll, polls) in [(Duration::from_millis(1), true), (Duration::ZERO, false)] {
        let handle = TestHandle::start(RedisServer::shared(), busy_poll);
        let (mut polled_calls, calls) = (0, 200);
        for _ in 0..calls {
            let TestCall { is_polled, result } = handle.call(LONG).await;
            polled_calls += usize::from(is_polled);
            let reply = result.expect("a reply");
            assert!(reply.reply.allowed && reply.requests.is_some());
        }
        assert_eq!(polled_calls > 0, polls, "{polled_calls} of {calls} calls");
    }
}

/// The server is stopped, so a poll without the deadline would take all of its own time.
#[tokio::test]
async fn poll_ends_at_the_deadline_of_its_call() {
    let mut server = RedisServer::start();
    let handle = TestHandle::start(&server, LONG);
    for _ in 0..20 {
        let mut calls = 0;
        while !handle.call(LONG).await.is_polled {
            calls += 1;
            assert!(calls < 10_000, "no caller polls");
        }
        server.pause();
        let began = Instant::now();
        let call = handle.call(Duration::from_millis(20)).await;
        assert!(call.result.is_err() && began.elapsed() < LONG / 2);
        if call.is_polled {
            return;
        }
        server.resume();
    }
    panic!("no caller polls after one that does");
}
