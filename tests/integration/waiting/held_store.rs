//! Stores whose replies arrive when a test releases them.

use std::ops::Deref;
use std::time::Duration;

use limiter_testkit::{Proxy, RedisServer};
use rate_limited::{Builder, Limiter, ManualClock};

use super::polled::Polled;
use crate::support::{Subject, builder_for};

/// The delay of replies, which is longer than any test.
const HOLD_TIME: Duration = Duration::from_secs(3600);

async fn behind_proxy(server: &RedisServer, configure: impl FnOnce(Builder) -> Builder) -> (Subject, Proxy) {
    let proxy = Proxy::start(server);
    let builder = builder_for(server).url(proxy.url()).deadline(Duration::from_secs(60));
    (Subject::with_builder(configure(builder)).await, proxy)
}

/// A Redis server behind a proxy that holds its replies, and a limiter with a manual clock.
pub(super) struct HeldStore {
    pub(super) limiter: Limiter,
    pub(super) clock: ManualClock,
    proxy: Proxy,
}

impl HeldStore {
    pub(super) async fn start() -> Self {
        Self::on(RedisServer::timeless()).await
    }

    pub(super) async fn on(server: &RedisServer) -> Self {
        let (subject, proxy) = behind_proxy(server, |builder| builder.remember_denials(Duration::ZERO)).await;
        let Subject { limiter, clock, .. } = subject;
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

/// A limiter of which a test knows when a call sleeps in its queue. Without that, a reply may come during the poll that
/// sends its request, or after it.
pub(super) struct QueueSubject {
    subject: Subject,
    proxy: Option<Proxy>,
}

impl QueueSubject {
    pub(super) async fn memory() -> Self {
        Self { subject: Subject::memory().await, proxy: None }
    }

    pub(super) async fn redis() -> Self {
        Self::on(RedisServer::timeless(), |builder| builder).await
    }

    pub(super) async fn on(server: &RedisServer, configure: impl FnOnce(Builder) -> Builder) -> Self {
        let (subject, proxy) = behind_proxy(server, configure).await;
        Self { subject, proxy: Some(proxy) }
    }

    /// Polls a call until it sleeps in its queue. On Redis that takes the reply to its check.
    pub(super) fn enter_queue<T>(&self, call: &mut Polled<T>) {
        if let Some(proxy) = &self.proxy {
            proxy.delay(HOLD_TIME);
            assert!(call.poll().is_pending(), "done without a reply");
            proxy.pass();
            call.wait_until_woken();
        }
        assert!(call.poll().is_pending(), "done instead of waiting");
    }
}

impl Deref for QueueSubject {
    type Target = Subject;

    fn deref(&self) -> &Subject {
        &self.subject
    }
}
