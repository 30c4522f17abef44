//! A fault of a master that sentinels replace.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use limiter_testkit::{NodeId, Sentinels};

use super::Scene;
use crate::transport::Transport;

#[derive(Debug)]
struct Failover {
    sentinels: Sentinels,
    old_master: NodeId,
}

/// Creates a scene that kills the master. The fault ends when the replica has been promoted.
pub(super) fn failover(transport: Transport) -> Box<dyn Scene> {
    let sentinels = transport.sentinels().start();
    let old_master = sentinels.master();
    Box::new(Failover { sentinels, old_master })
}

impl Scene for Failover {
    fn url(&self) -> String {
        self.sentinels.url()
    }

    fn ca_certificate(&self) -> Option<PathBuf> {
        self.sentinels.ca_certificate()
    }

    fn inject(&mut self, _lasting: Duration) {
        self.sentinels.kill(self.old_master);
    }

    fn hold(&self, _length: Duration) {
        // The fault lasts until the promotion, for which `repair` waits.
        thread::yield_now();
    }

    fn repair(&mut self) -> Instant {
        self.sentinels.wait_for_promotion(self.old_master).at
    }
}
