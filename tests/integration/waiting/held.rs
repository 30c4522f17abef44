//! A store whose answers come when a test lets them.

use std::time::Duration;

use limiter_testkit::{Proxy, RedisServer};
use rate_limited::{Limiter, ManualClock};

use super::by_hand::Polled;
use crate::support::on;

/// Longer than any test holds an answer.
const EVER: Duration = Duration::from_secs(3600);

/// A Redis behind a proxy that holds its replies, and a clock that the test moves.
pub(super) struct HeldStore {
    pub(super) limiter: Limiter,
    pub(super) clock: ManualClock,
    proxy: Proxy,
}

impl HeldStore {
    pub(super) async fn start() -> Self {
        let server = RedisServer::shared();
        let (proxy, clock) = (Proxy::start(server), ManualClock::new());
        let builder = on(server).url(proxy.url()).clock(clock.clone());
        let builder = builder.remember_denials(Duration::ZERO).deadline(Duration::from_secs(60));
        let limiter = builder.connect().await.expect("connects");
        proxy.delay(EVER);
        Self { limiter, clock, proxy }
    }

    /// Lets the answers come that are on their way, and waits for that of this call.
    pub(super) fn answer<T>(&self, call: &Polled<T>) {
        self.proxy.pass();
        call.until_woken();
        self.proxy.delay(EVER);
    }

    /// Polls a call that has nothing else to do than to ask, and again with the answer. Returns whether it is done.
    pub(super) fn ask<T>(&self, call: &mut Polled<T>) -> bool {
        assert!(call.poll().is_pending(), "done without an answer");
        self.answer(call);
        call.poll().is_ready()
    }

    /// Lets everything through from now on.
    pub(super) fn release(&self) {
        self.proxy.pass();
    }
}
