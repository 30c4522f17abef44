//! The part of each limit by which the standby limiter decides.

use std::num::NonZeroU32;
use std::ops::Deref;
use std::time::Duration;

use super::Standby;
use crate::local::recent_failures::RecentFailure;
use crate::request::{PerRequest, Request, StoreReply, sharing, without_blocks};
use crate::{Algorithm, Limit};

/// The part of each limit by which the mirror decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The whole limit.
    Whole,
    /// The whole limit, and of a bucket this instance's share: a bucket that refills by the whole rate would forget permits
    /// that count against the share. It is for permits that the store has granted.
    OfGranted,
    /// This instance's share, so that all instances together stay within the limit.
    Share,
}

impl Part {
    /// The part that is checked beside a store after its last failure. The counters of a server that is well have what other
    /// instances were granted, so a late call alone reduces nobody to a share.
    pub(super) fn after(failure: RecentFailure) -> Self {
        match failure {
            RecentFailure::Calls => Self::Whole,
            RecentFailure::Server => Self::Share,
        }
    }

    fn applies_to(self, limit: &Limit) -> bool {
        match self {
            Self::Whole => false,
            Self::OfGranted => matches!(limit.algorithm(), Algorithm::TokenBucket | Algorithm::LeakyBucket),
            Self::Share => true,
        }
    }
}

/// The `retry_after` of a denial for which no exact value is known.
pub(super) const UNKNOWN_RETRY_AFTER: Duration = Duration::from_secs(1);

impl Standby {
    /// Decides by the mirror, with this part of each limit.
    pub(super) fn decide_by(&self, part: Part, requests: &[Request<'_>], max_wait: Duration) -> StoreReply {
        self.with_part(part, requests, |requests| self.mirror.decide_within(requests, max_wait))
    }

    /// Decides by the mirror about several requests. Adds the report of each.
    pub(super) fn decide_each_by(
        &self,
        part: Part,
        requests: &[Request<'_>],
        per_request: &mut PerRequest,
    ) -> StoreReply {
        self.with_part(part, requests, |requests| self.mirror.decide_each(requests, per_request))
    }

    /// Calls `decide` for the requests with this part of their limits.
    pub(super) fn with_part(
        &self,
        part: Part,
        requests: &[Request<'_>],
        decide: impl FnOnce(&[Request<'_>]) -> StoreReply,
    ) -> StoreReply {
        let parts = self.parts(part, requests);
        if let Parts::Whole(requests) = parts {
            return decide(requests);
        }
        // A block holds here too. A denial by this instance's share begins none, and one by the whole limit does.
        let has_block = requests.iter().any(|request| request.block.is_some());
        let is_by_share = has_block
            && self.mirror.blocked(requests, false).is_none()
            && self.mirror.peek(&without_blocks(requests)).allowed;
        let reply = if is_by_share { decide(&without_blocks(&parts)) } else { decide(&parts) };
        let fits = |request: &Request<'_>| request.cost <= request.limit.max_cost();
        match (reply.allowed, reply.retry_after) {
            // The cost exceeds the share but not the limit: the store may allow the call once it is back.
            (false, None) if requests[..sharing::enforced(requests)].iter().all(fits) => {
                StoreReply { retry_after: Some(UNKNOWN_RETRY_AFTER), ..reply }
            }
            _ => reply,
        }
    }

    /// The requests with this part of their limits.
    pub(super) fn parts<'r, 'a>(&self, part: Part, requests: &'r [Request<'a>]) -> Parts<'r, 'a> {
        if self.instances.is_one() {
            return Parts::Whole(requests);
        }
        let share_of = |request: &Request<'a>| {
            let applies = part.applies_to(&request.limit);
            let instances = if applies { self.instances.sharing(request.key, &request.limit) } else { NonZeroU32::MIN };
            (instances > NonZeroU32::MIN).then(|| Request { limit: request.limit.share_of(instances), ..*request })
        };
        if let [request] = requests {
            return share_of(request).map_or(Parts::Whole(requests), |share| Parts::One([share]));
        }
        let Some(first) = requests.iter().position(|request| share_of(request).is_some()) else {
            return Parts::Whole(requests);
        };
        let of_rest = requests[first..].iter().map(|request| share_of(request).unwrap_or(*request));
        Parts::Several(requests[..first].iter().copied().chain(of_rest).collect())
    }
}

/// Requests with a part of their limits. One request, the usual number, allocates nothing.
pub(super) enum Parts<'r, 'a> {
    /// The whole limit of each.
    Whole(&'r [Request<'a>]),
    One([Request<'a>; 1]),
    Several(Vec<Request<'a>>),
}

impl<'a> Deref for Parts<'_, 'a> {
    type Target = [Request<'a>];

    fn deref(&self) -> &[Request<'a>] {
        match self {
            Self::Whole(requests) => requests,
            Self::One(request) => request,
            Self::Several(requests) => requests,
        }
    }
}
