//! The scripts: those that ship, as they are and with one constant changed, and small ones around the same arithmetic in
//! which one thing is done in another way.

use crate::contestant::{Failure, Rate};

use super::cases::Case;

/// Where the scripts that ship have their files.
macro_rules! shipped {
    ($file:literal) => {
        include_str!(concat!("../../../limiter-core/src/store/redis/script/lua/", $file))
    };
}

/// Those files put together, as the product does.
macro_rules! product {
    ($($decides:literal),+) => {
        concat!(
            shipped!("clock.lua"),
            "local function make(name)\n",
            shipped!("sliding_window.lua"),
            "if name == 'sliding_window' then return sliding_window() end\n",
            "local algorithms = {}\n",
            shipped!("arithmetic.lua"),
            shipped!("fixed_window.lua"),
            shipped!("sliding_counter.lua"),
            shipped!("bucket.lua"),
            shipped!("token_bucket.lua"),
            shipped!("leaky_bucket.lua"),
            shipped!("zset.lua"),
            "return algorithms[name]()\n",
            "end\n",
            $(shipped!($decides),)+
        )
    };
}

/// A small script: how values are read and written, and what the reply is.
macro_rules! small {
    ($($part:literal),+) => {
        concat!(
            shipped!("clock.lua"),
            shipped!("sliding_at_once.lua"),
            $(include_str!(concat!("lua/", $part, ".lua")),)+
            include_str!("lua/small.lua")
        )
    };
}

const DECIDE: &str = product!("decide.lua");
const GROUP: &str = product!("sliding_at_once.lua", "group.lua");
const RANGES: &str = concat!(
    shipped!("clock.lua"),
    include_str!("lua/lifetime_text.lua"),
    include_str!("lua/reply_packed.lua"),
    include_str!("lua/ranges.lua")
);

/// What ships for groups, which lone calls go with too.
pub const SHIPPED: &str = "group.lua";
/// The small script that does as the product does.
pub const SMALL: &str = "small";
/// The log read by parts.
pub const BY_RANGES: &str = "header and ranges";
/// The floor.
pub const FLOOR: &str = "`return 1`";
/// What the calls take.
pub const CALLS: &str = "TIME, GET and SET alone";
/// The yardstick: a sorted set of stamps.
pub const ZSET: &str = "ZSET log";

/// Values read one after the other.
pub const GET_EACH: &str = "small, GET for each key";
/// The expiry in a command of its own.
pub const SET_AND_PEXPIRE: &str = "small, SET and PEXPIRE";
/// The expiry with the first value alone.
pub const EXPIRY_KEPT: &str = "small, SET with KEEPTTL";
/// The expiry as a number in place of text.
pub const EXPIRY_AS_NUMBER: &str = "small, expiry as a number";
/// A reply of integers in place of one string.
pub const INTEGERS: &str = "small, reply of integers";
/// A string packed entry by entry.
pub const PACKED_EACH: &str = "small, reply packed piecemeal";
/// A string in a format that the server has itself.
pub const MESSAGE_PACK: &str = "small, reply in MessagePack";
/// The log read by parts, with more of them.
pub const BY_RANGES_512: &str = "header and ranges, 512 runs";

/// Runs that are kept apart, and the names of the variants that keep so many. What ships is not among them.
pub const CAPACITIES: [(u32, &str); 4] = [
    (32, "group.lua, 32 runs"),
    (64, "group.lua, 64 runs"),
    (256, "group.lua, 256 runs"),
    (512, "group.lua, 512 runs"),
];

/// One script.
#[derive(Debug, Clone)]
pub struct Variant {
    /// In the tables.
    pub name: &'static str,
    /// Which variant shows what this one changes.
    pub against: Option<&'static str>,
    /// All of it.
    pub source: String,
    /// What it is told.
    arguments: Arguments,
    shows: Shows,
}

/// Where it has something to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shows {
    Everywhere,
    LongLogs,
    ShortLogs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arguments {
    Decide,
    Group,
    Zset,
}

/// In the order of the report.
///
/// # Errors
///
/// What ships has changed such that no variants can be made of it.
pub fn all() -> Result<Vec<Variant>, Failure> {
    let group = |name, against, source: &str| Variant {
        name,
        against: Some(against),
        source: source.to_owned(),
        arguments: Arguments::Group,
        shows: Shows::Everywhere,
    };
    let zset = include_str!("../contestants/designs/zset.lua");
    let floor = include_str!("../contestants/designs/bare.lua");
    let small = |name, source| group(name, SMALL, source);
    let mut variants = vec![
        Variant { against: None, ..group(SHIPPED, SHIPPED, GROUP) },
        Variant { arguments: Arguments::Decide, ..group("decide.lua", SHIPPED, DECIDE) },
        group(FLOOR, SHIPPED, floor),
        Variant { shows: Shows::ShortLogs, ..group(CALLS, SHIPPED, include_str!("lua/calls_alone.lua")) },
        Variant { arguments: Arguments::Zset, ..group(ZSET, SHIPPED, zset) },
    ];
    for (capacity, name) in CAPACITIES {
        let source = with_capacity(GROUP, capacity)?;
        variants.push(Variant { shows: Shows::LongLogs, ..group(name, SHIPPED, &source) });
    }
    variants.extend([
        Variant { against: None, ..small(SMALL, small!("read_together", "lifetime_text", "write_px", "reply_packed")) },
        small(GET_EACH, small!("read_each", "lifetime_text", "write_px", "reply_packed")),
        small(SET_AND_PEXPIRE, small!("read_together", "lifetime_text", "write_then_expire", "reply_packed")),
        small(EXPIRY_KEPT, small!("read_together", "lifetime_text", "write_keepttl", "reply_packed")),
        small(EXPIRY_AS_NUMBER, small!("read_together", "lifetime_number", "write_px", "reply_packed")),
        small(INTEGERS, small!("read_together", "lifetime_text", "write_px", "reply_integers")),
        small(PACKED_EACH, small!("read_together", "lifetime_text", "write_px", "reply_packed_each")),
        small(
            MESSAGE_PACK,
            small!("read_together", "lifetime_text", "write_px", "reply_integers", "reply_message_pack"),
        ),
        small(BY_RANGES, RANGES),
    ]);
    let source = with_capacity(RANGES, 512)?;
    variants.push(Variant { shows: Shows::LongLogs, ..group(BY_RANGES_512, "group.lua, 512 runs", &source) });
    Ok(variants)
}

/// The script with another number of runs that are kept apart.
fn with_capacity(source: &str, capacity: u32) -> Result<String, Failure> {
    const CONSTANTS: &str = "HEADER, RUN, VERSION, CAPACITY, WRAP";
    const SHIPPED: &str = "= 11, 8, 1, 128, 4294967296";
    let (places, known) = (source.matches(CONSTANTS).count(), source.matches(SHIPPED).count());
    if places == 0 || places != known {
        return Err(format!("the scripts no longer say `{CONSTANTS} {SHIPPED}` where they set their constants"));
    }
    Ok(source.replace(SHIPPED, &SHIPPED.replace("128", &capacity.to_string())))
}

impl Variant {
    /// Whether it has something to show there.
    #[must_use]
    pub fn takes_part(&self, case: &Case) -> bool {
        let shows = match self.shows {
            Shows::Everywhere => true,
            Shows::LongLogs => case.long,
            Shows::ShortLogs => !case.long && !case.denied,
        };
        shows && (self.arguments != Arguments::Decide || case.group == 1)
    }

    /// Keys of a call: a sorted set's script takes one at a time, in groups too.
    #[must_use]
    pub fn keys_a_call(&self, case: &Case) -> usize {
        if self.arguments == Arguments::Zset { 1 } else { case.group }
    }

    /// What follows the keys. `call` is a number that no other call has.
    #[must_use]
    pub fn arguments(&self, rate: Rate, call: usize) -> Vec<String> {
        let (millis, max) = (rate.window().as_millis().to_string(), rate.max.to_string());
        match self.arguments {
            Arguments::Zset => vec![rate.window().as_micros().to_string(), max, call.to_string()],
            Arguments::Decide => ["take", "0", "sliding_window", &millis, &max, &max, "1"].map(str::to_owned).into(),
            Arguments::Group => ["1", "sliding_window", &millis, &max, &max, "1", "1"].map(str::to_owned).into(),
        }
    }

    /// Whether it decides anything.
    #[must_use]
    pub fn is_limiter(&self) -> bool {
        ![FLOOR, CALLS].contains(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use limiter_testkit::RedisServer;
    use rate_limited::{Key, Limit, Limiter};
    use redis::Script;

    use super::*;

    #[tokio::test]
    async fn what_is_measured_is_what_ships() {
        let server = RedisServer::builder().tcp().start();
        let limiter = Limiter::connect(&server.url()).await.expect("connected");
        let (key, limit) = (Key::new("key"), "5/10s".parse::<Limit>().expect("a limit"));
        let _ = limiter.check(&key, &limit).await.expect("a decision");
        let _ = limiter.peek(&key, &limit).await.expect("a look");
        for source in [GROUP, DECIDE] {
            let known = server.client().expect("a client").call(&["SCRIPT", "EXISTS", Script::new(source).get_hash()]);
            let known = known.expect("an answer").array();
            assert_eq!(known[0].clone().integer(), 1, "store/redis/script.rs puts its files together in another way");
        }
    }

    #[test]
    fn names_are_unique_and_those_compared_with_exist() {
        let variants = all().expect("variants");
        for variant in &variants {
            assert_eq!(variants.iter().filter(|other| other.name == variant.name).count(), 1, "{}", variant.name);
            let against = variant.against.unwrap_or(variant.name);
            assert!(variants.iter().any(|other| other.name == against), "{against}");
        }
    }

    #[test]
    fn another_capacity_is_one_in_every_file_or_nowhere() {
        let changed = with_capacity(GROUP, 64).expect("a script");
        assert_eq!(changed.matches("= 11, 8, 1, 64, 4294967296").count(), 2);
        let moved = GROUP.replacen("CAPACITY, WRAP = 11, 8, 1, 128", "CAPACITY, WRAP = 11, 8, 1, 127", 1);
        assert!(with_capacity(&moved, 64).is_err());
    }
}
