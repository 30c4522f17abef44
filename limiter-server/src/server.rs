//! A server with its sockets, or its routes for another one.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use rate_limited::Limiter;
use tokio::sync::watch;
use tokio::time::{sleep, sleep_until};

use crate::access::Access;
use crate::envoy::{self, EnvoyConfig};
use crate::error::Error;
use crate::grpc::{self, GrpcService};
use crate::http::auth::PartHeaders;
use crate::http::{self, HttpService};
use crate::listen::{Connections, ListenAddress, Listener, Phase};
use crate::resp::{self, RespService};
use crate::service::{Catalog, CatalogRule, DecisionService, ServicePolicy};

/// The time in which the server is not ready and still accepts, and that of the end in all.
const DRAIN_TIME: Duration = Duration::from_secs(1);
const END_TIME: Duration = Duration::from_millis(4_500);
/// The longest time between two sweeps of the slots.
const MAX_SWEEP_TIME: Duration = Duration::from_secs(1);
/// A decision service on a limiter: its options, and its sockets or routes.
///
/// The limiter should be built with [`report_limits`](rate_limited::Builder::report_limits), so that an answer has each of
/// several limits, and with a [`receipt_secret`](rate_limited::Builder::receipt_secret) for receipts.
///
/// ```
/// use limiter_server::Server;
/// use rate_limited::{Limiter, RuleSet};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let rules: RuleSet = "[rules.search]\nkey = \"search:{user_id}\"\nlimit = \"5/10s\"".parse()?;
/// let limiter = Limiter::builder().url("memory:").rules(rules).report_limits(true).build()?;
/// let server = Server::new(limiter).bind(&"127.0.0.1:0".parse()?).await?;
/// println!("http://{}/v1/check", server.address());
/// server.run(async { /* returns when the server should end */ }).await;
/// # Ok(())
/// # }
/// ```
#[must_use = "a server answers nothing until it is run or its routes are served"]
#[derive(Clone)]
pub struct Server {
    limiter: Limiter,
    policy: ServicePolicy,
    access: Access,
    part_headers: PartHeaders,
    render_metrics: Option<Arc<dyn Fn() -> String + Send + Sync>>,
    max_connections: u32,
    is_insecure: bool,
    envoy: Arc<EnvoyConfig>,
}

impl Server {
    /// Creates a server on a limiter.
    pub fn new(limiter: Limiter) -> Self {
        Self {
            limiter,
            policy: ServicePolicy::default(),
            access: Access::default(),
            part_headers: PartHeaders::default(),
            render_metrics: None,
            max_connections: 10_000,
            is_insecure: false,
            envoy: Arc::default(),
        }
    }

    /// Reads the configuration of Envoy's rate limit service: files, and directories of files, each with a `domain`. Its limits
    /// are rules of the limiter, in the place of those that its [builder](rate_limited::Limiter::set_builder_rules) has set.
    /// The files may change while the server runs: with a mistake, their last good rules stay.
    ///
    /// # Errors
    /// All mistakes of all files, each with its line and column.
    pub fn envoy_config(mut self, paths: impl IntoIterator<Item = impl Into<PathBuf>>) -> Result<Self, Vec<Error>> {
        let paths = paths.into_iter().map(Into::into).collect();
        let config = EnvoyConfig::load(paths, &self.limiter);
        let config = config
            .map_err(|mistakes| mistakes.iter().map(|mistake| Error::new(mistake.to_string())).collect::<Vec<_>>())?;
        self.envoy = Arc::new(config);
        Ok(self)
    }

    /// Sets the longest wait that a call may demand. The default is 1 s.
    pub fn max_wait(mut self, max_wait: Duration) -> Self {
        self.policy.max_wait = max_wait;
        self
    }

    /// Permits calls with limits of their own, on keys that no rule reaches.
    pub fn allow_limits(mut self) -> Self {
        self.policy.allows_limits = true;
        self
    }

    /// Sets the most calls that run at once. Further ones get 503 at once. The default is 10 000.
    pub fn max_calls(mut self, calls: usize) -> Self {
        self.policy.max_calls = calls;
        self
    }

    /// Sets the most slots that callers hold at once. Further ones get 503. The default is 100 000.
    pub fn max_slots(mut self, slots: usize) -> Self {
        self.policy.max_slots = slots;
        self
    }

    /// Sets the most connections at once. Further ones get 503. The default is 10 000.
    pub fn max_connections(mut self, connections: u32) -> Self {
        self.max_connections = connections.clamp(1, u32::MAX >> 3);
        self
    }

    /// Sets the token that each call needs, as `Authorization: Bearer`.
    ///
    /// # Errors
    /// It has less than 16 bytes, or others than visible ASCII letters.
    pub fn token(mut self, token: impl AsRef<[u8]>) -> Result<Self, Error> {
        self.access = Access::with_token(token.as_ref())?;
        Ok(self)
    }

    /// Names the header that has a part of the key, for the requests of gateways: `user_id=x-user-id` for the part of every
    /// rule, `search/user_id=x-user-id` for that of one.
    ///
    /// The gateway must set the header. One that it passes on from a client is chosen by the client.
    ///
    /// # Errors
    /// The text has another form, or the part has a header already.
    pub fn header(mut self, text: impl AsRef<str>) -> Result<Self, Error> {
        self.part_headers.add(text.as_ref())?;
        Ok(self)
    }

    /// Adds `/metrics` with the text that an exporter renders, in the format of Prometheus. Install the recorder before
    /// [`bind`](Server::bind) or [`into_router`](Server::into_router): the series are those of the recorder at that time.
    pub fn metrics(mut self, render: impl Fn() -> String + Send + Sync + 'static) -> Self {
        self.render_metrics = Some(Arc::new(render));
        self
    }

    /// Permits an address that other machines reach, without a token.
    pub fn insecure(mut self) -> Self {
        self.is_insecure = true;
        self
    }

    /// Returns the routes, to be served by another server. It must have time limits and bounds of its own.
    ///
    /// # Panics
    /// It is called outside of a runtime of tokio, which frees slots that are not left.
    pub fn into_router(self) -> Router {
        self.into_http().into_router()
    }

    fn into_http(self) -> HttpService {
        let service = Arc::new(DecisionService::new(self.limiter, self.policy));
        sweep_slots(&service);
        let mut http = HttpService::new(service);
        http.access = self.access;
        http.part_headers = self.part_headers;
        http.render_metrics = self.render_metrics;
        http
    }

    /// Binds the address of HTTP.
    ///
    /// # Errors
    /// The address is in use, or other machines reach it and there is no [`token`](Server::token).
    ///
    /// # Panics
    /// As for [`into_router`](Server::into_router).
    pub async fn bind(self, address: &ListenAddress) -> Result<BoundServer, Error> {
        self.check_address("http", address)?;
        let listener = Listener::bind("http", address).await?;
        let address = listener.address().unwrap_or_else(|| address.clone());
        let server = self.clone();
        let http = self.into_http();
        let service = Arc::clone(&http.service);
        Ok(BoundServer {
            is_ending: Arc::clone(&http.is_ending),
            router: http.into_router(),
            listener,
            address,
            server,
            service,
            resp: None,
            grpc: None,
        })
    }

    /// Returns whether a call can be decided: the limiter has a rule, or calls may bring limits of their own.
    #[must_use]
    pub fn has_rules(&self) -> bool {
        self.policy.allows_limits || !Catalog::read(&self.limiter).rules().is_empty()
    }

    /// Returns the mistakes of the options together: an address that needs a token, and headers of rules or parts that the
    /// limiter does not have. Rules that it reads from its store later are not known yet.
    #[must_use]
    pub fn mistakes(&self, address: &ListenAddress) -> Vec<Error> {
        let catalog = Catalog::read(&self.limiter);
        let of_headers = self.part_headers.rules().filter_map(|(rule, part)| match catalog.rule(rule) {
            Err(problem) => {
                let remedy = problem.suggestion().unwrap_or_else(|| "remove it".to_owned());
                Some(Error::new(format!("`header` must be of a rule, got `{rule}`: {remedy}")))
            }
            Ok(found) if found.parts().is_some_and(|parts| parts.contains(&part)) => None,
            Ok(found) => {
                let parts: Vec<_> = found.parts().unwrap_or_default().iter().map(|part| format!("`{part}`")).collect();
                let parts = if parts.is_empty() { "none".to_owned() } else { parts.join(", ") };
                Some(Error::new(format!(
                    "`header` must be of a part of the key, got `{part}` of the rule `{rule}`, whose parts are {parts}: write one \
                     of them, or remove it"
                )))
            }
        });
        let all_parts = || catalog.rules().into_iter().filter_map(CatalogRule::parts).flatten();
        let of_no_rule = self.part_headers.parts_of_all().filter(|part| !all_parts().any(|known| known == *part));
        let of_no_rule = of_no_rule.map(|part| {
            let remedy = match limiter_syntax::nearest(part, all_parts()) {
                Some(nearest) => format!("write `{nearest}`"),
                None => "remove it".to_owned(),
            };
            Error::new(format!("`header` must be of a part of a rule's key, got `{part}`: {remedy}"))
        });
        self.check_address("http", address).err().into_iter().chain(of_headers).chain(of_no_rule).collect()
    }

    /// Checks that an address needs no [`token`](Server::token), or there is one. `option` is its name in the error.
    ///
    /// # Errors
    /// Other machines reach it, there is no token, and the server is not [`insecure`](Server::insecure).
    pub fn check_address(&self, option: &str, address: &ListenAddress) -> Result<(), Error> {
        if address.is_local() || self.access.has_token() || self.is_insecure {
            return Ok(());
        }
        Err(Error::new(format!(
            "`{option}` must be an address of this machine alone without a token, got {address}: set `token-file`, or `insecure` \
             in a network that you trust"
        )))
    }
}

/// Does not contain the token.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limiter, policy, access, part_headers, max_connections, .. } = self;
        f.debug_struct("Server")
            .field("limiter", limiter)
            .field("policy", policy)
            .field("access", access)
            .field("part_headers", part_headers)
            .field("max_connections", max_connections)
            .finish_non_exhaustive()
    }
}

/// A server whose address is bound.
#[must_use = "a server answers nothing until it is run"]
pub struct BoundServer {
    router: Router,
    is_ending: Arc<AtomicBool>,
    listener: Listener,
    address: ListenAddress,
    server: Server,
    service: Arc<DecisionService>,
    resp: Option<Listener>,
    grpc: Option<Listener>,
}

impl BoundServer {
    /// The address of HTTP, with the port that the system has chosen for port 0.
    #[must_use]
    pub fn address(&self) -> &ListenAddress {
        &self.address
    }

    /// Binds the address of RESP, for clients of Redis: `docs/service.md` has its commands. Its connections have a bound of their
    /// own, which is that of HTTP.
    ///
    /// # Errors
    /// As for [`Server::bind`].
    pub async fn bind_resp(mut self, address: &ListenAddress) -> Result<Self, Error> {
        self.server.check_address("resp", address)?;
        self.resp = Some(Listener::bind("resp", address).await?);
        Ok(self)
    }

    /// The address of RESP, with the port that the system has chosen for port 0. `None` without
    /// [`bind_resp`](BoundServer::bind_resp).
    #[must_use]
    pub fn resp_address(&self) -> Option<ListenAddress> {
        self.resp.as_ref().and_then(Listener::address)
    }

    /// Binds the address of gRPC, for Envoy: see [`envoy_config`](Server::envoy_config). Its connections have a bound of their
    /// own, which is that of HTTP.
    ///
    /// # Errors
    /// As for [`Server::bind`].
    pub async fn bind_grpc(mut self, address: &ListenAddress) -> Result<Self, Error> {
        self.server.check_address("grpc", address)?;
        self.grpc = Some(Listener::bind("grpc", address).await?);
        Ok(self)
    }

    /// The address of gRPC, with the port that the system has chosen for port 0. `None` without
    /// [`bind_grpc`](BoundServer::bind_grpc).
    #[must_use]
    pub fn grpc_address(&self) -> Option<ListenAddress> {
        self.grpc.as_ref().and_then(Listener::address)
    }

    /// Serves until `end` is ready, and then ends in order within 5 s.
    ///
    /// First `/readyz` answers 503, and each answer closes its connection. After a second no connection is accepted any more,
    /// and idle ones are closed. The calls that run are answered.
    ///
    /// # Cancel safety
    /// A future that is dropped accepts no further connections. Those that are open go on.
    pub async fn run(self, end: impl Future<Output = ()>) {
        let Self { server, service, router, is_ending, listener, resp, grpc, .. } = self;
        let (phase, watched) = watch::channel(Phase::Serving);
        let (is_serving, health) = watch::channel(true);
        let new_connections = || Connections::new(server.max_connections, watched.clone());
        let (connections, of_resp, of_grpc) = (new_connections(), new_connections(), new_connections());
        envoy::follow_files(&server.envoy, &service);
        let resp_service = Arc::new(RespService::new(Arc::clone(&service), server.access.clone()));
        let serving_resp = async {
            if let Some(listener) = resp {
                let serve = move |socket, phase| Arc::clone(&resp_service).serve(socket, phase);
                of_resp.serve(listener, serve, resp::TOO_MANY_CONNECTIONS).await;
            }
        };
        let calls = GrpcService::new(service, server.envoy, server.access, health);
        let serving_grpc = async {
            if let Some(listener) = grpc {
                of_grpc.serve(listener, move |socket, phase| grpc::serve(calls.clone(), socket, phase), b"").await;
            }
        };
        let serve = move |socket, phase| http::serve_connection(router.clone(), socket, phase);
        let serving = connections.serve(listener, serve, http::TOO_MANY_CONNECTIONS);
        let ending = async {
            end.await;
            is_ending.store(true, Ordering::Relaxed);
            is_serving.send_replace(false);
            sleep(DRAIN_TIME).await;
            phase.send_replace(Phase::Closing);
            // It ends the watches of health.
            drop(is_serving);
        };
        tokio::join!(serving, serving_resp, serving_grpc, ending);
        let rest = END_TIME - DRAIN_TIME;
        tokio::join!(connections.ended(rest), of_resp.ended(rest), of_grpc.ended(rest));
    }
}

impl fmt::Debug for BoundServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundServer").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Frees slots at their ends, as long as the service lives.
fn sweep_slots(service: &Arc<DecisionService>) {
    let service = Arc::downgrade(service);
    let held = metrics::gauge!("limiter_server_slots_held");
    let sweep = move |service: Arc<DecisionService>| {
        let next = service.sweep_slots();
        // A number of slots is far below that of a float.
        held.set(f64::from(u32::try_from(service.held_slots()).unwrap_or(u32::MAX)));
        next
    };
    tokio::spawn(async move {
        while let Some(next) = service.upgrade().map(&sweep) {
            let latest = Instant::now() + MAX_SWEEP_TIME;
            sleep_until(next.map_or(latest, |next| next.min(latest)).into()).await;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_other_machines_needs_a_token() {
        let address = "0.0.0.0:0".parse().expect("an address");
        let server = || Server::new(Limiter::memory());
        let error = server().check_address("http", &address).expect_err("no token").to_string();
        assert!(error.contains("`http`") && error.contains("`insecure`"), "{error}");
        assert!(server().insecure().check_address("http", &address).is_ok());
        let with_token = server().token("0123456789abcdef").expect("long enough");
        assert!(with_token.check_address("http", &address).is_ok());
        assert!(!format!("{with_token:?}").contains("0123456789abcdef"));
    }
}
