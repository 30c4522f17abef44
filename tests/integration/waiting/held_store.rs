//! A store whose replies arrive when a test releases them.

use std::time::Duration;

use limiter_testkit::{Proxy, RedisServer};
use rate_limited::{Limiter, ManualClock};

use super::polled::Polled;
use crate::support::builder_for;

/// The delay of replies, which is longer than any test.
const HOLD_TIME: Duration = Duration::from_secs(3600);

/// A Redis server behind a proxy that holds its replies, and a limiter with a manual clock.
pub(super) struct HeldStore {
    pub(super) limiter: Limiter,
    pub(super) clock: ManualClock,
    proxy: Proxy,
}

impl HeldStore {
    pub(super) async fn start() -> Self {
        let server = RedisServer::timeless();
        let (proxy, clock) = (Proxy::start(server), ManualClock::new());
        let builder = builder_for(server).url(proxy.url()).clock(clock.clone());
        let builder = builder.remember_denials(Duration::ZERO).deadline(Duration::from_secs(60));
        let limiter = builder.connect().await.expect("connects");
        proxy.delay(HOLD_TIME);
        Self { limiter, clock, proxy }
    }

    /// Releases the replies in flight, and waits until this call is woken by its own.
    pub(super) fn deliver_reply<T>(&self, call: &Polled<T>) {
        self.proxy.pass();
        call.wait_until_woken();
        self.proxy.delay(HOLD_TIME);
    }

    /// Polls a call that next sends a request, and again with the reply. Returns whether it is done.
    pub(super) fn poll_with_reply<T>(&self, call: &mut Polled<T>) -> bool {
        assert!(call.poll().is_pending(), "done without a reply");
        self.deliver_reply(call);
        call.poll().is_ready()
    }

    /// Stops holding replies.
    pub(super) fn release(&self) {
        self.proxy.pass();
    }
}
