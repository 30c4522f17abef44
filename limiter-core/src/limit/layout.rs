//! The layouts of a sliding window in Redis.

use crate::named_value::NamedValue;

/// The layout of a sliding window's log in Redis: this crate's own, or one that other programs share.
///
/// The layout does not change decisions. In memory and in the standby limiter all layouts are the same.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Layout {
    /// One small string a key. See [the algorithms' page](https://docs.rs/rate-limited) for its size.
    #[default]
    Compact,
    /// A sorted set with an entry for each permit, as in the Spring library redis-current-limiter. It shares one quota
    /// with services that use this library, for example during a migration.
    ///
    /// - The Redis key is `CurrentLimiter:` and the [`Key`](crate::Key) as written. `Key::new("getId")` corresponds to
    ///   `@CurrentLimiting("getId")`. In texts `%`, `@` and `+` stay escaped, and parts are delimited and escaped as
    ///   usual. A key longer than 200 bytes, with all of its escapes, becomes a digest. The limiter's prefix is not
    ///   used.
    /// - The window is not part of the name, because the library does not put it there. All programs must use the same
    ///   window for a name. Several windows for one name share one history, which is correct if every decision is about
    ///   all of them.
    /// - An entry counts while its stamp is younger than a window, and no more than a window ahead, by the clock of
    ///   Redis. Allowed calls remove all other entries, by the longest window of their decision. So hosts whose clocks
    ///   differ by more than the window have practically no limit.
    /// - A permit takes about 120 bytes in Redis while it counts, so 1 000 000 permits take 120 MB. A decision that
    ///   takes more than 10 000 permits of one key would block Redis, and gets a [final](crate::Denied::is_final)
    ///   denial.
    /// - A refund removes exactly the entries that the call added.
    Zset,
}

impl NamedValue for Layout {
    const OPTION: &'static str = "layout";
    const VALUES: &'static [Self] = &[Self::Compact, Self::Zset];

    fn name(self) -> &'static str {
        match self {
            Self::Compact => "compact",
            Self::Zset => "zset",
        }
    }
}
