//! The options of a store on Redis, and its construction.

use std::fmt;
#[cfg(feature = "rules")]
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "tls")]
use crate::Tls;
use crate::activity::Recorder;
use crate::builder::Builder;
use crate::builder::connection::{Store, Target, config_error};
use crate::guard::{Guard, RemoteStore};
use crate::health::HealthState;
use crate::instances::{HEARTBEAT_INTERVAL, Instances};
use crate::limiter::Backend;
use crate::metrics::{self, StoreUp};
use crate::overflow::Overflows;
use crate::rule::RuleTable;
use crate::store::redis::{Endpoint, Options, PresenceOptions, Provider, RedisStore, Secret};
use crate::{Credentials, Error, Limiter};

/// The options that only a store on Redis has.
#[derive(Default)]
pub(super) struct RedisOptions {
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
    provider: Option<Provider>,
    secret: Option<Result<Secret, Error>>,
    /// The limiter writes no heartbeats.
    is_silent: bool,
    /// Another interval of heartbeats than the usual one.
    heartbeat_interval: Option<Duration>,
    /// The limiter follows the shared rules.
    #[cfg(feature = "rules")]
    follows_shared_rules: bool,
    #[cfg(feature = "rules")]
    shared_rules_cache: Option<PathBuf>,
}

impl Builder {
    /// Sets the store by a client of the `redis` crate instead of a URL.
    ///
    /// The limiter uses the client's address, user, password, database and certificates. It opens a connection of its
    /// own, and always uses RESP3. The client must come from `rate_limited::redis`, the version of the `redis` crate
    /// that the limiter is built with.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::{Limiter, redis};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = redis::Client::open("redis://127.0.0.1:6379/3")?;
    /// let limiter = Limiter::builder().client(client).build()?;
    /// # Ok(())
    /// # }
    /// ```
    #[expect(clippy::needless_pass_by_value, reason = "the limiter is its only user")]
    pub fn client(mut self, client: redis::Client) -> Self {
        self.connection.target = Target::Redis(Endpoint::from_client(&client));
        self
    }

    /// Sets the certificates for a store over TLS, instead of those that the system trusts: see [`Tls`].
    ///
    /// The store's URL must be one with TLS, or [`build`](Builder::build) fails with
    /// [`ErrorKind::Config`](crate::ErrorKind::Config).
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.redis.tls = Some(tls);
        self
    }

    /// Sets a provider of user and password, for credentials that change while the program runs. It is called before
    /// every connection, and its credentials replace those of the URL.
    ///
    /// The provider runs on a thread where it may block, one call at a time. Connections that are opened meanwhile use
    /// the same credentials. An attempt to connect takes at most 1 s, the first one of [`connect`](Builder::connect) at
    /// most 4 s. The provider's time is part of that. If the provider panics, the attempt fails with
    /// [`ErrorKind::Config`](crate::ErrorKind::Config), and [`on_error`](Builder::on_error) decides about calls.
    ///
    /// An open connection stays open when credentials change. An operator who revokes a password must end its
    /// connections as well, by `CLIENT KILL` or `ACL DELUSER`. The limiter then reconnects with new credentials from
    /// the provider.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use std::fs;
    /// use rate_limited::{Credentials, Limiter};
    ///
    /// let limiter = Limiter::builder()
    ///     .url("redis://redis.internal")
    ///     .credentials(|| {
    ///         let password = fs::read_to_string("/run/secrets/redis").unwrap_or_default();
    ///         Credentials::new("limiter", password.trim_end())
    ///     })
    ///     .build()?;
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    pub fn credentials(mut self, provider: impl Fn() -> Credentials + Send + Sync + 'static) -> Self {
        self.redis.provider = Some(Provider::new(provider));
        self
    }

    /// Makes keys unreadable in the store, for keys with personal data. Default: keys are readable.
    ///
    /// In each Redis key the text and parts are replaced by 128 bits of their HMAC-SHA-256 under this secret, of 16
    /// bytes or more.
    ///
    /// - Processes that share counters need the same secret. With another secret every key starts with an empty
    ///   counter. So a rotation of the secret grants each quota once more, and the old counters expire.
    /// - The prefix, the algorithm and the window stay readable, and so do the names of rules in logs and metrics. In
    ///   this process keys are not hashed.
    /// - In a cluster a key's slot is the CRC16 of its name. A user who can choose keys can put all of them on one
    ///   node, but not with a secret that the user does not know.
    /// - [`Layout::Zset`](crate::Layout::Zset) cannot be used with it, because those sets are addressed by the key's
    ///   text. `build` and `connect` reject a rule with such a limit. A decision about one fails with
    ///   [`ErrorKind::Config`](crate::ErrorKind::Config), and nothing is sent.
    ///
    /// A limiter in memory does not write keys anywhere and ignores the secret. `Debug` does not show the secret.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::Limiter;
    ///
    /// # let secret = [7; 32];
    /// let limiter = Limiter::builder().url("redis://127.0.0.1:6379").hash_keys(secret).build()?;
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    pub fn hash_keys(mut self, secret: impl AsRef<[u8]>) -> Self {
        self.redis.secret = Some(Secret::new(secret.as_ref()));
        self
    }

    /// Sets whether the limiter writes a heartbeat into its store every 5 s, from 10 s after its start on. Default: it does.
    /// [`Limiter::instances`] and the command `limiter instances` list the limiters that write some.
    ///
    /// A heartbeat has a random id, the names of host and process, the start, the versions of the limiter and of its
    /// [shared rules](Builder::shared_rules), and the state of its store. Beside it are the rules with their keys and
    /// limits, without overrides. All of it expires after 15 s, and a limiter that is dropped removes its own. No call waits
    /// for a heartbeat, and one that fails is no failure of the store.
    ///
    /// The user needs more permissions for it, which docs/live.md lists. Without them the log has one warning.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::Limiter;
    ///
    /// let limiter = Limiter::builder().url("redis://127.0.0.1:6379").presence(false).build()?;
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    pub fn presence(mut self, is_on: bool) -> Self {
        self.redis.is_silent = !is_on;
        self
    }

    /// Shortens the interval of heartbeats, the time before the first one and the life of an instance, for tests of this
    /// project.
    #[cfg(feature = "test-util")]
    #[doc(hidden)]
    pub fn presence_interval(mut self, interval: Duration) -> Self {
        self.redis.heartbeat_interval = Some(interval);
        self
    }
}

#[cfg(feature = "rules")]
impl Builder {
    /// Makes the limiter follow the shared rules: one text for all processes, which [`SharedRules`](crate::SharedRules)
    /// or the command `limiter` publishes in the store. Default: it does not. Needs the features `rules` and `redis`.
    ///
    /// A process sends a GET every 450 to 500 ms on its connection, and reads the text when the version has changed.
    /// [`connect`](Builder::connect) reads it once before it returns, and fails if the store refuses that.
    /// [`build`](Builder::build) does not wait.
    ///
    /// - The rules are a level of their own, after [`set_rules`](crate::Limiter::set_rules) and before the file.
    /// - A text that is missing, or that this process cannot use, changes nothing: the last good rules stay in force. The
    ///   log gets one error for each distinct mistake, with line and column: see
    ///   [`shared_rules_error`](crate::Limiter::shared_rules_error).
    /// - Names are not compared with the functions of this program: several services may share one text.
    /// - Until the first text is read, a rule of `configured` limits that has none elsewhere is treated as if the store
    ///   had failed. Its `on_error` decides, with `standby` as `closed`.
    /// - A store that has lost the text gets it back from a process that may write it. See docs/rules.md.
    /// - After a failover that takes a change back, all processes follow the older text and log it.
    /// - A child of `fork` follows the rules from its first call on.
    ///
    /// `shared = true` at the top of the [file of rules](Builder::rules_file) does the same. The user of the process needs
    /// the permissions `%R~rl-rules:* +get +mget`, with its [`prefix`](Builder::prefix) in place of `rl`. Redis 6.2 has no
    /// `%R~`: there `~rl-rules:*` permits writing too.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::Limiter;
    ///
    /// let limiter = Limiter::builder().url("redis://127.0.0.1:6379").shared_rules().build()?;
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    pub fn shared_rules(mut self) -> Self {
        self.redis.follows_shared_rules = true;
        self
    }

    /// Keeps the last good text of the [shared rules](Builder::shared_rules) in this file, for a process that starts while
    /// the store is away or empty. Default: no file. Needs the features `rules` and `redis`.
    ///
    /// [`build`](Builder::build) reads the file. Its rules are in force until the store answers. They are put back into a
    /// store that has lost its text, if a poll has confirmed them in the last 24 hours. The file is replaced at once when
    /// another text is in force, and each hour. Only the user of the process may read it.
    ///
    /// - The file belongs to one `url` with its database, and to one [`prefix`](Builder::prefix). That of others, a
    ///   damaged one, and one that cannot be read are not used: the log has a warning, and the file is replaced.
    /// - A file that cannot be written is a warning in the log.
    /// - Processes with the same shared rules may use one file.
    ///
    /// # Errors
    /// `build` and `connect` return [`ErrorKind::Config`](crate::ErrorKind::Config) for an empty path, for one with a
    /// directory or a file of another kind, which is not replaced, and for a limiter without shared rules.
    ///
    /// ```
    /// # use limiter_core as rate_limited;
    /// use rate_limited::Limiter;
    ///
    /// # let directory = std::env::temp_dir();
    /// # let path = directory.join("rate-limited-example-cache");
    /// let limiter = Limiter::builder().url("redis://127.0.0.1:6379").shared_rules().shared_rules_cache(path).build()?;
    /// # Ok::<(), rate_limited::Error>(())
    /// ```
    pub fn shared_rules_cache(mut self, path: impl AsRef<Path>) -> Self {
        self.redis.shared_rules_cache = Some(path.as_ref().to_owned());
        self
    }
}

impl RedisOptions {
    pub(super) fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// The secret of the names of keys.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for a secret that is too short.
    pub(super) fn secret(&self) -> Result<Option<Secret>, Error> {
        self.secret.clone().transpose()
    }

    /// Returns the store with these options.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for options that only a server has and a store in this process, and
    /// for certificates that cannot be used.
    pub(super) fn apply_to(&self, store: Store) -> Result<Store, Error> {
        match store {
            Store::Memory if self.provider.is_some() => Err(config_error(
                "`credentials` must be used with a server, got the store `memory:`: write a URL such as `redis://host`",
            )),
            #[cfg(feature = "tls")]
            Store::Memory if self.tls.is_some() => Err(config_error(
                "`tls` must be used with a server, got the store `memory:`: write a URL such as `rediss://host`",
            )),
            Store::Redis(endpoint) => {
                #[cfg(feature = "tls")]
                let endpoint = match &self.tls {
                    Some(tls) => endpoint.with_tls(tls)?,
                    None => endpoint,
                };
                Ok(Store::Redis(match &self.provider {
                    Some(provider) => endpoint.with_provider(provider),
                    None => endpoint,
                }))
            }
            // A test may keep the credentials and certificates of the program's own options.
            store => Ok(store),
        }
    }

    #[cfg(feature = "rules")]
    pub(super) fn follows_shared_rules(&self) -> bool {
        self.follows_shared_rules
    }

    /// Checks the cache of the shared rules of a limiter that follows them, or does not.
    ///
    /// # Errors
    /// [`ErrorKind::Config`](crate::ErrorKind::Config) for a cache without a path or without shared rules.
    #[cfg(feature = "rules")]
    pub(super) fn check_cache(&self, follows_shared_rules: bool) -> Result<(), Error> {
        match &self.shared_rules_cache {
            Some(path) if path.as_os_str().is_empty() => Err(config_error(
                "`shared_rules_cache` must be the path of a file, got an empty one: write one, or leave it out",
            )),
            Some(_) if !follows_shared_rules => Err(config_error(
                "`shared_rules_cache` must be used with shared rules, got a limiter that does not follow them: call \
                 `Builder::shared_rules`, or leave it out",
            )),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for RedisOptions {
    /// Omits credentials, certificates and the secret of the keys.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("RedisOptions");
        debug.field("is_silent", &self.is_silent);
        #[cfg(feature = "rules")]
        debug
            .field("follows_shared_rules", &self.follows_shared_rules)
            .field("shared_rules_cache", &self.shared_rules_cache);
        debug.finish_non_exhaustive()
    }
}

// The store of a limiter, and its start.

impl Builder {
    /// The usual time between two heartbeats.
    pub(super) fn heartbeat_interval(&self) -> Duration {
        self.redis.heartbeat_interval.unwrap_or(HEARTBEAT_INTERVAL)
    }

    /// The options of heartbeats, which an examiner does not write, and of the stream of activity.
    pub(super) fn presence_options(
        &self,
        rules: &RuleTable,
        activity: Option<&Arc<Recorder>>,
        instances: Instances,
        is_examiner: bool,
    ) -> PresenceOptions {
        let is_silent = self.redis.is_silent || is_examiner;
        let inventory = if is_silent { None } else { Some(Arc::new(rules.inventory()) as _) };
        let activity = activity.map(|activity| Arc::clone(activity) as _);
        PresenceOptions::new(inventory, self.heartbeat_interval(), instances).with_activity(activity)
    }

    /// Makes a store that is not started yet.
    pub(super) fn redis_backend(
        &self,
        endpoint: &Endpoint,
        secret: Option<&Secret>,
        presence: PresenceOptions,
        is_in_child: bool,
    ) -> (Backend, Arc<Overflows>) {
        let options = self.local_options(endpoint.slots(), is_in_child, presence.instances());
        let (local, overflows) = (options.new_local(), options.overflows);
        let mut health_observers = self.health_observers.clone();
        let store_up = StoreUp::new(HealthState::Connecting);
        if metrics::IS_ON {
            let state = store_up.state();
            health_observers.add(move |health| state.set(health.state));
        }
        let options = Options {
            prefix: self.prefix.clone(),
            secret: secret.cloned(),
            deadline: self.deadline,
            busy_poll: self.busy_poll,
            max_in_flight: self.max_in_flight,
            clock: self.clock.clone(),
            local: Arc::clone(&local),
            health_observers: Arc::new(health_observers),
            presence,
        };
        let store = Box::new(RedisStore::new(endpoint.clone_without_state(), options));
        let guard = Guard::new(RemoteStore::Redis(store), local).with_store_up(store_up);
        (Backend::Guarded(guard), overflows)
    }
}

/// The start of a limiter: its store connects, and it follows the shared rules. Nothing starts where neither is used.
pub(super) struct StoreStart {
    #[cfg(feature = "rules")]
    follows_shared_rules: bool,
    #[cfg(feature = "rules")]
    cache: Option<PathBuf>,
}

impl StoreStart {
    pub(super) fn of(
        #[cfg_attr(not(feature = "rules"), expect(unused_variables, reason = "of rules"))] builder: &Builder,
    ) -> Self {
        Self {
            #[cfg(feature = "rules")]
            follows_shared_rules: builder.follows_shared_rules(),
            #[cfg(feature = "rules")]
            cache: builder.redis.shared_rules_cache.clone(),
        }
    }

    /// Begins to connect, and waits for nothing.
    ///
    /// # Errors
    /// The system cannot start a thread, or the cache of the shared rules is no file of its kind.
    pub(super) fn begin(&self, limiter: &Limiter) -> Result<(), Error> {
        if let Some(store) = limiter.inside().redis() {
            store.start()?;
        }
        #[cfg(feature = "rules")]
        if self.follows_shared_rules {
            drop(limiter.follow_shared_rules(self.cache.as_deref())?);
        }
        Ok(())
    }

    /// Waits until the store is connected and the shared rules are read.
    ///
    /// # Errors
    /// As for [`begin`](Self::begin). The failure of the store.
    pub(super) async fn complete(&self, limiter: &Limiter) -> Result<(), Error> {
        if let Some(store) = limiter.inside().redis() {
            store.connect().await?;
        }
        #[cfg(feature = "rules")]
        if self.follows_shared_rules {
            limiter.follow_shared_rules(self.cache.as_deref())?.await?;
        }
        Ok(())
    }
}
