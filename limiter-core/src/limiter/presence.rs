//! The list of the limiters that share a store.

use crate::limiter::Limiter;
use crate::{Error, ErrorKind, Instance};
#[cfg(feature = "test-util")]
use crate::{Key, Limit};

impl Limiter {
    /// Lists the limiters that live and share this one's store and [`prefix`](crate::Builder::prefix): each writes a
    /// [heartbeat](crate::Builder::presence) every 5 s. Needs the feature `redis`.
    ///
    /// They are in the order of their start. A limiter is listed after its first 10 s. It is no longer listed when it was
    /// dropped, or 15 s after the end of a process that did not drop it. The user needs the permissions
    /// `~rl-live:* +time +hgetall +zrange +get`, with the prefix in place of `rl`. The command `limiter instances` prints the
    /// list.
    ///
    /// ```no_run
    /// # use limiter_core as rate_limited;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), rate_limited::Error> {
    /// let limiter = rate_limited::Limiter::connect("redis://127.0.0.1:6379").await?;
    /// for instance in limiter.instances().await? {
    ///     println!("{} on {:?}", instance.id, instance.host);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The failure of the store, within 5 s. [`ErrorKind::Config`] for a limiter without a store that processes share.
    ///
    /// # Cancel safety
    /// Nothing changes.
    pub async fn instances(&self) -> Result<Vec<Instance>, Error> {
        self.inside().redis().ok_or_else(in_memory)?.instances().await
    }

    /// Reads the inventory of limiters that live, by its digest: [`Instance::inventory`]. Needs the feature `redis`.
    ///
    /// It is a line of JSON for each rule, with its keys as templates, its limits, its mode and the level that they come
    /// from, such as `{"rule":"search","keys":["search:{user}"],"limits":["5/10s"],"mode":"enforce","origin":"attribute"}`.
    /// A limit of another algorithm or layout than the default is an object, and so is one of expressions in the source.
    /// The last line may be `{"left_out":N}`: so many rules had no place in 256 kB. `None` if the last limiter that had it
    /// has ended. The user needs the permissions `~rl-live:* +get`, with the prefix in place of `rl`.
    ///
    /// # Errors
    /// As for [`instances`](Self::instances).
    ///
    /// # Cancel safety
    /// Nothing changes.
    pub async fn inventory(&self, digest: &str) -> Result<Option<String>, Error> {
        self.inside().redis().ok_or_else(in_memory)?.inventory(digest).await
    }
}

#[cfg(feature = "test-util")]
impl Limiter {
    /// The instances that share a limit for a key while the store is away, for tests of this project.
    #[doc(hidden)]
    #[must_use]
    pub fn instances_sharing(&self, key: &Key, limit: &Limit) -> u32 {
        self.inside().instances.sharing(key, limit).get()
    }
}

fn in_memory() -> Error {
    Error::new(
        ErrorKind::Config,
        "the instances must share a store, got one in this process: write the `url` of a Redis",
    )
}
