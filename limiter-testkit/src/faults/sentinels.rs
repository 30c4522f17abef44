//! A master that dies under sentinels.

use std::thread;
use std::time::{Duration, Instant};

use super::Scene;
use crate::nodes::NodeId;
use crate::sentinel::Sentinels;

#[derive(Debug)]
struct Failover {
    sentinels: Sentinels,
    fallen: NodeId,
}

/// The sentinels take as long as they take; it is mended when the replica has become a master.
pub(super) fn failover() -> Box<dyn Scene> {
    let sentinels = Sentinels::start();
    let fallen = sentinels.master();
    Box::new(Failover { sentinels, fallen })
}

impl Scene for Failover {
    fn url(&self) -> String {
        self.sentinels.url()
    }

    fn breaks(&mut self, _lasting: Duration) {
        self.sentinels.kill(self.fallen);
    }

    fn lasts(&self, _length: Duration) {
        // Until somebody has taken its place, which `mends` waits for.
        thread::yield_now();
    }

    fn mends(&mut self) -> Instant {
        self.sentinels.wait_for_promotion(self.fallen).at
    }
}
