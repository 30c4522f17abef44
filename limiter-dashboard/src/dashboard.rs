//! The options of a dashboard.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use rate_limited::{Limiter, OnError};

use crate::access::{Access, MIN_TOKEN_BYTES};
use crate::error::Error;
use crate::hosts::Hosts;
use crate::routes::{Service, routes};
use crate::server::DashboardServer;

/// A page about all limiters that share a store, and its routes.
///
/// Without a token the page has rates and counts alone. With the token it has keys, hosts and the text of the shared rules.
/// With an operator's URL it edits them.
///
/// ```no_run
/// use axum::Router;
/// use limiter_dashboard::Dashboard;
/// use rate_limited::Limiter;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Limiter::builder().url("redis://127.0.0.1:6379").build()?;
/// let dashboard = Dashboard::new(limiter)
///     .token(std::env::var("DASHBOARD_TOKEN")?)
///     .operator("redis://operator:secret@127.0.0.1:6379")
///     .hosts(["limits.example.com"]);
/// let app: Router = Router::new().nest("/limits", dashboard.router()?);
/// # Ok(())
/// # }
/// ```
///
/// Serve the router with `into_make_service_with_connect_info::<SocketAddr>()`: wrong tokens are then counted for each
/// address, and otherwise for all clients together.
#[must_use = "a dashboard has no effect until `router` or `bind`"]
pub struct Dashboard {
    limiter: Limiter,
    operator: Option<String>,
    token: Option<String>,
    hosts: Vec<String>,
    is_insecure: bool,
}

/// The time in which the store must reply to an edit. A person waits for it.
const OPERATOR_DEADLINE: Duration = Duration::from_secs(2);

impl Dashboard {
    /// Creates a dashboard that reads by this limiter. Its user needs the permissions of `docs/dashboard.md`.
    pub fn new(limiter: Limiter) -> Self {
        Self { limiter, operator: None, token: None, hosts: Vec::new(), is_insecure: false }
    }

    /// Sets the URL by which the shared rules are edited, with an operator's user. Without it nothing can be edited.
    ///
    /// It must be that of the limiter's store. Its prefix is that of the limiter.
    pub fn operator(mut self, url: impl Into<String>) -> Self {
        self.operator = Some(url.into());
        self
    }

    /// Sets the token of requests that read keys, hosts and rules: at least 16 bytes of visible ASCII.
    ///
    /// Requests send it as `Authorization: Bearer TOKEN`. The page keeps it in its memory alone.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Adds the names by which browsers reach the page, such as `limits.example.com`. Requests to another host than these and
    /// loopback addresses are refused, so that no foreign name can be pointed at the page.
    pub fn hosts<H: Into<String>>(mut self, hosts: impl IntoIterator<Item = H>) -> Self {
        self.hosts.extend(hosts.into_iter().map(Into::into));
        self
    }

    /// Permits [`bind`](Self::bind) beyond loopback. The server has no TLS: a proxy in front of it must have it.
    pub fn insecure(mut self) -> Self {
        self.is_insecure = true;
        self
    }

    /// Returns the routes, to be mounted under any path.
    ///
    /// # Errors
    /// A token that is too short, a host that is no name, an operator's URL without a token or that cannot be used, and a
    /// limiter in memory.
    pub fn router(self) -> Result<Router, Error> {
        Ok(routes(self.service()?))
    }

    /// Opens a socket for the dashboard alone.
    ///
    /// # Errors
    /// Those of [`router`](Self::router), an address that cannot be bound, and one beyond loopback without both
    /// [`token`](Self::token) and [`insecure`](Self::insecure).
    pub async fn bind(self, address: SocketAddr) -> Result<DashboardServer, Error> {
        let is_permitted = self.is_insecure && self.token.is_some();
        if !address.ip().is_loopback() && !is_permitted {
            return Err(Error::new(format!(
                "`listen` must be a loopback address, got {address}: use 127.0.0.1 behind a proxy with TLS, or set a `token` \
                 and `insecure`, which sends it without TLS"
            )));
        }
        DashboardServer::bind(self.router()?, address).await
    }

    fn service(self) -> Result<Arc<Service>, Error> {
        let Self { limiter, operator, token, hosts, .. } = self;
        let Some(prefix) = limiter.prefix() else {
            return Err(Error::new(
                "the limiter must have a store that processes share, got one in memory: set the `url` of a Redis",
            ));
        };
        if let Some(token) = &token {
            check_token(token)?;
        } else if operator.is_some() {
            return Err(Error::new(
                "`token` must be set for edits by an operator's URL, got none: set one, or leave the URL out",
            ));
        }
        let operator = operator.map(|url| {
            let builder = Limiter::builder().url(url).prefix(prefix).presence(false);
            builder.on_error(OnError::Raise).deadline(OPERATOR_DEADLINE).build()
        });
        let operator = operator.transpose()?;
        let hosts = Hosts::new(hosts)?;
        Ok(Arc::new(Service::new(limiter, operator, Access::new(token), hosts)))
    }
}

fn check_token(token: &str) -> Result<(), Error> {
    if token.len() < MIN_TOKEN_BYTES {
        return Err(Error::new(format!(
            "`token` must have at least {MIN_TOKEN_BYTES} bytes, got {}: use random ones, such as `openssl rand -hex 16`",
            token.len()
        )));
    }
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Error::new("`token` must be visible ASCII, got other bytes: use hex digits"));
    }
    Ok(())
}

impl fmt::Debug for Dashboard {
    /// Formats all but the token, and the URL with its password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limiter, operator, token, hosts, is_insecure } = self;
        let mut debug = f.debug_struct("Dashboard");
        debug.field("limiter", limiter).field("operator", &operator.is_some()).field("token", &token.is_some());
        debug.field("hosts", hosts).field("is_insecure", is_insecure).finish()
    }
}
