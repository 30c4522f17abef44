//! Cached denials of a key whose permits are on lease.

use super::*;

impl LeasedWorker {
    /// Returns whether the cache denies a call with this cost and limit.
    fn denies(&self, cost: u32, limit: Limit) -> bool {
        self.worker.keeper.local.denials().get(&[Request { limit, ..self.request(cost) }]).is_some()
    }

    /// Takes permits so that the store has this number left, by a call of another process.
    async fn leave(&self, permits: u32) {
        let cost = self.remaining().await - permits;
        let (mut call, _reply) = self.call(Action::Take { max_wait: Duration::ZERO, leases: false });
        call.requests = OwnedRequest::copy_all(&[self.request(cost)]);
        assert!(self.worker.decide_unbatched(&call).await.expect("no failure").reply.allowed);
        // Another process does not change this cache.
        self.worker.keeper.local.denials().invalidate(&[self.request(1)]);
    }

    /// Renews a lease that is used up, when the store has 20 permits left.
    async fn lease_the_last_permits(&self) {
        self.take_until_leased().await;
        assert!(self.take_from_lease(64));
        self.leave(20).await;
        self.renew().await;
        assert_eq!(self.remaining().await, 0);
    }
}

#[tokio::test]
async fn a_lease_of_the_last_permits_shows_that_the_next_call_is_denied() {
    with_worker(async |leased| {
        leased.lease_the_last_permits().await;
        let higher = Limit::new(MAX + 1, leased.limit.window()).expect("a limit");
        assert_eq!(
            [(1, leased.limit), (2, leased.limit), (1, higher)].map(|(cost, limit)| leased.denies(cost, limit)),
            [true, false, false]
        );
        assert!(leased.take_from_lease(20), "they are used first");
        leased.clock.advance(leased.limit.lease_time() - Duration::from_micros(1));
        assert!(leased.denies(1, leased.limit));
        leased.clock.advance(Duration::from_micros(1));
        assert!(!leased.denies(1, leased.limit), "another process may have returned permits");
    })
    .await;
}

#[tokio::test]
async fn a_batch_that_leases_the_last_permits_shows_that_the_next_call_is_denied() {
    with_worker(async |leased| {
        leased.take_until_leased().await;
        assert!(leased.take_from_lease(64));
        leased.leave(20).await;
        assert_eq!(leased.take(1).await, [Source::Store]);
        assert!(leased.denies(1, leased.limit) && leased.take_from_lease(19) && !leased.take_from_lease(1));
    })
    .await;
}

#[tokio::test]
async fn no_renewal_is_sent_while_the_store_has_no_permits() {
    with_worker(async |leased| {
        leased.lease_the_last_permits().await;
        let (demands, returned) = (&leased.worker.keeper.demands, ReturnedPermits { permits: 9, id: ID });
        assert_eq!(demands.keep(&leased.request(1), returned), Ok(()));
        leased.renew().await;
        assert_eq!(demands.take_kept(&leased.request(1), ID), Some(returned), "a script call would return them");
        leased.leave(0).await;
        leased.renew().await;
        assert!(leased.denies(1, leased.limit), "a renewal without a lease shows it as well");
    })
    .await;
}

/// A permit of this process is not denied while it waits for the next script call.
#[tokio::test]
async fn a_process_that_keeps_unused_permits_caches_no_denial() {
    with_worker(async |leased| {
        leased.take_until_leased().await;
        leased.leave(20).await;
        leased.renew().await;
        assert!(leased.take_from_lease(20));
        assert_eq!(leased.remaining().await, 0);
        assert!(!leased.denies(1, leased.limit));
        assert_eq!(leased.take(1).await, [Source::Store], "it returns the 64 permits of the first lease");
    })
    .await;
}

#[tokio::test]
async fn returned_permits_and_changes_meanwhile_invalidate_a_denial() {
    with_worker(async |leased| {
        leased.lease_the_last_permits().await;
        // The lease is over. So a task of the worker returns its permits.
        leased.clock.advance(usable_time(leased.limit));
        leased.until_remaining(20).await;
        let is_invalidated = async {
            while leased.denies(1, leased.limit) {
                yield_now().await;
            }
        };
        timeout(Duration::from_secs(60), is_invalidated).await.expect("the return completes");

        leased.leave(0).await;
        let mut renewed = Box::pin(leased.renew());
        let is_pending = poll_fn(|context| Poll::Ready(renewed.as_mut().poll(context).is_pending())).await;
        assert!(is_pending);
        leased.worker.local.denials().invalidate(&[leased.request(1)]);
        renewed.await;
        assert!(!leased.denies(1, leased.limit), "the reply is from before a change");
        leased.renew().await;
        assert!(leased.denies(1, leased.limit));
    })
    .await;
}

#[tokio::test]
async fn permits_returned_with_a_batch_invalidate_a_denial() {
    with_worker(async |leased| {
        leased.lease_the_last_permits().await;
        for has_returned in [false, true] {
            let effects = SideEffects { has_returned, ..SideEffects::default() };
            let sent = leased.worker.local.begin_batch(vec![leased.reserve(leased.pending().0)]);
            let too_few = BatchEntryReply { granted: 0, ..ENTRY };
            sent.settle_all(|entry| entry.settle(&too_few, effects));
            assert_eq!(leased.denies(1, leased.limit), !has_returned);
        }
    })
    .await;
}
