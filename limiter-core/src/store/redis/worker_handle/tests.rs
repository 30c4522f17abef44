use limiter_testkit::{RedisServer, unique};

use super::*;
use crate::clock::Clock;
use crate::store::redis::server::Server;
use crate::store::redis::worker::tests::settings;
use crate::{Key, Limit};

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(60);

/// The server replies to more calls in a row than there may be without a poll.
#[tokio::test]
async fn callers_poll_for_replies_unless_that_is_turned_off() {
    for (busy_poll, polls) in [(Duration::from_millis(1), true), (Duration::ZERO, false)] {
        let server = Server::from_url(&RedisServer::shared().url()).expect("a valid URL");
        let settings = WorkerSettings { busy_poll, deadline: LONG, ..settings(Clock::System) };
        let naming = Arc::clone(&settings.naming);
        let handle = WorkerHandle::start(&Endpoint::Single(Box::new(server)), settings, 10, None).expect("a thread");
        let (key, limit) = (Key::new(unique("polled")), Limit::new(1_000, LONG).expect("a limit"));
        let request = Request { key: &key, limit, cost: 1 };
        let (mut polled_calls, calls) = (0, 200);
        for _ in 0..calls {
            let keys = RedisKeys::new(&[request], &naming).expect("no secret");
            let action = Action::Take { max_wait: Duration::ZERO, leases: false };
            let sent = handle.send(action, &[request], keys, LONG).expect("room");
            polled_calls += usize::from(sent.polled.is_some());
            let reply = sent.await.expect("a reply");
            assert!(reply.reply.allowed && reply.requests.is_some());
        }
        assert_eq!(polled_calls > 0, polls, "{polled_calls} of {calls} calls");
    }
}
