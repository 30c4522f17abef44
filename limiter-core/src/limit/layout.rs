//! How Redis keeps what a sliding window has taken.

/// How Redis keeps what a sliding window has taken: in this crate's own form, or in one that others share.
///
/// It changes neither what is allowed nor what a decision says. In memory, and in the stand-in, all layouts are the same.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Layout {
    /// One small string a key: see [the algorithms' page](https://docs.rs/rate-limited) for its size.
    #[default]
    Compact,
    /// A sorted set with an entry for each permit, as the Spring system redis-current-limiter keeps it: to share one quota
    /// with its services while they are being moved.
    ///
    /// - The Redis key is `CurrentLimiter:` and the [`Key`](crate::Key) as written: `Key::new("getId")` is what there is
    ///   `@CurrentLimiting("getId")`. In texts `%`, `@` and `+` stay escaped, and parts are set off and escaped as ever. A
    ///   key longer than 200 bytes, counted with all of its escapes, becomes a digest. The limiter's prefix is not used.
    /// - The window is not in that name, as it is not there: all who use a name must give it the same window. Several
    ///   windows on one name are one history, which is right as long as every decision is about all of them.
    /// - An entry counts while its stamp is younger than a window, and no more than a window ahead, by the clock of Redis.
    ///   Calls that are allowed trim all others, by the longest window of their decision. So hosts whose clocks differ by
    ///   more than the window have practically no limit.
    /// - A permit takes about 120 bytes in Redis for as long as it counts, so 1 000 000 take 120 MB. A decision that takes
    ///   more than 10 000 permits of one key would hold up Redis, and is denied [for good](crate::Denied::is_final).
    /// - A refund takes out the very entries that the call put in.
    Zset,
}
