//! tower-rate-limit-redis: GCRA by a script, as a layer of HTTP services.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use tower::{Layer, ServiceExt, service_fn};
use tower_rate_limit_redis::{KeyResolver, RateLimitLayer};

use super::TOWER_REDIS;
use crate::contestant::{
    Commands, Contestant, Entry, Failure, Kind, Place, Setup, Starting, Verdict, failed, starting,
};

pub(super) const ENTRY: Entry =
    Entry { name: TOWER_REDIS, kind: Kind::Peer, place: Place::Redis, commands: Commands::SCRIPT, start };

fn start(setup: Setup) -> Starting {
    starting(async move { TowerRedis::connect(&setup).await })
}

struct TowerRedis {
    layer: RateLimitLayer<ByExtension>,
    keys: Vec<String>,
}

impl TowerRedis {
    /// Connects. A limit above the range of the peer's types becomes the highest limit in that range.
    async fn connect(setup: &Setup) -> Result<Self, Failure> {
        let client = redis_of_tower::Client::open(setup.url.as_str()).map_err(failed)?;
        let layer = RateLimitLayer::builder()
            .conn(client.get_multiplexed_async_connection().await.map_err(failed)?)
            .key_resolver(ByExtension)
            .capacity(setup.rate.max.try_into().unwrap_or(u16::MAX))
            .emission_interval((setup.rate.window() / setup.rate.max).max(Duration::from_millis(1)))
            .build();
        Ok(Self { layer, keys: setup.names() })
    }
}

impl Contestant for TowerRedis {
    async fn decide(&self, key: usize) -> Result<Verdict, Failure> {
        let mut request = Request::new(());
        request.extensions_mut().insert(Subject(self.keys[key].clone()));
        let response = self.layer.layer(service_fn(served)).oneshot(request).await.map_err(failed)?;
        match response.status() {
            StatusCode::OK => Ok(Verdict::Allowed),
            StatusCode::TOO_MANY_REQUESTS => Ok(Verdict::Denied),
            status => Err(format!("replied {status}")),
        }
    }
}

fn served(_request: Request<()>) -> Ready<Result<Response<()>, Infallible>> {
    ready(Ok(Response::new(())))
}

#[derive(Clone)]
struct Subject(String);

#[derive(Debug, Clone, Copy)]
struct ByExtension;

impl KeyResolver for ByExtension {
    type Key = String;
    type ErrorBody = ();

    fn key<T>(&self, request: &Request<T>) -> Result<String, Response<()>> {
        request.extensions().get::<Subject>().map(|subject| subject.0.clone()).ok_or_else(|| Response::new(()))
    }
}
