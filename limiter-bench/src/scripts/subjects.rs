//! The scripts that are measured: the two that ship, the floor, and the sorted set as the yardstick.

use super::cases::ScriptCase;
use crate::contestant::Rate;

/// Includes a file of the scripts that ship.
macro_rules! shipped {
    ($file:literal) => {
        include_str!(concat!("../../../limiter-core/src/store/redis/script/lua/", $file))
    };
}

/// Joins those files in the order of the product.
macro_rules! product {
    ([$($first:literal)?], $($decides:literal),+) => {
        concat!(
            shipped!("clock.lua"),
            $(shipped!($first),)?
            "local function make(name)\n",
            shipped!("sliding_window.lua"),
            "if name == 'sliding_window' then return sliding_window() end\n",
            shipped!("leased_window.lua"),
            "if name == 'leased_window' then return leased_window(sliding_window()) end\n",
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

const DECIDE: &str = product!([], "decide.lua");
const BATCH: &str = product!(["sliding_simple.lua"], "sliding_at_once.lua", "batch.lua");

/// The script for batches, which lone calls use too. The other scripts are compared with it.
pub const SHIPPED: &str = "batch.lua";
/// The floor: a script that does nothing.
pub const FLOOR: &str = "`return 1`";
/// The yardstick: a sorted set of stamps.
pub const ZSET: &str = "ZSET log";

/// One script.
#[derive(Debug, Clone, Copy)]
pub struct ScriptSubject {
    /// Its name in the tables.
    pub name: &'static str,
    /// Its source.
    pub source: &'static str,
    arguments: Arguments,
}

/// The arguments that a script takes after its keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arguments {
    Decide,
    DecideCharge,
    Batch,
    BatchCharge,
    Zset,
}

/// Returns all scripts, in the order of the tables.
#[must_use]
pub fn all() -> [ScriptSubject; 6] {
    let floor = include_str!("../contestants/designs/bare.lua");
    let zset = include_str!("../contestants/designs/zset.lua");
    [
        ScriptSubject { name: SHIPPED, source: BATCH, arguments: Arguments::Batch },
        ScriptSubject { name: "batch.lua, charge", source: BATCH, arguments: Arguments::BatchCharge },
        ScriptSubject { name: "decide.lua", source: DECIDE, arguments: Arguments::Decide },
        ScriptSubject { name: "decide.lua, charge", source: DECIDE, arguments: Arguments::DecideCharge },
        ScriptSubject { name: FLOOR, source: floor, arguments: Arguments::Batch },
        ScriptSubject { name: ZSET, source: zset, arguments: Arguments::Zset },
    ]
}

impl ScriptSubject {
    /// Returns false for `decide.lua` where a call has several keys, as it makes one decision a call, and for a charge where
    /// all is denied, as nothing denies a charge.
    #[must_use]
    pub fn takes_part(&self, case: &ScriptCase) -> bool {
        match self.arguments {
            Arguments::Batch | Arguments::Zset => true,
            Arguments::BatchCharge => !case.denied,
            Arguments::Decide => case.keys_per_call == 1,
            Arguments::DecideCharge => case.keys_per_call == 1 && !case.denied,
        }
    }

    /// Returns the number of keys of a call. The sorted set's script takes one key, also where others take a batch.
    #[must_use]
    pub fn keys_per_call(&self, case: &ScriptCase) -> usize {
        if self.arguments == Arguments::Zset { 1 } else { case.keys_per_call }
    }

    /// Returns the arguments after the keys. `call` is a number that no other call has.
    #[must_use]
    pub fn arguments(&self, rate: Rate, call: usize) -> Vec<String> {
        let (millis, max) = (rate.window().as_millis().to_string(), rate.max.to_string());
        let decide = |operation| [operation, "0", "sliding_window", &millis, &max, &max, "1"].map(str::to_owned).into();
        let batch = |calls| ["1", "sliding_window", &millis, &max, &max, "1", calls].map(str::to_owned).into();
        match self.arguments {
            Arguments::Zset => vec![rate.window().as_micros().to_string(), max, call.to_string()],
            Arguments::Decide => decide("take"),
            Arguments::DecideCharge => decide("charge"),
            Arguments::Batch => batch("1"),
            Arguments::BatchCharge => batch("+"),
        }
    }

    /// Returns whether the script limits anything; the floor does not.
    #[must_use]
    pub fn is_limiter(&self) -> bool {
        self.name != FLOOR
    }
}

#[cfg(test)]
mod tests {
    use limiter_testkit::RedisServer;
    use rate_limited::{Key, Limit, Limiter};
    use redis::Script;

    use super::*;

    #[tokio::test]
    async fn measured_scripts_are_those_that_ship() {
        let server = RedisServer::builder().tcp().start();
        let limiter = Limiter::connect(&server.url()).await.expect("connected");
        let (key, limit) = (Key::new("key"), "5/10s".parse::<Limit>().expect("a limit"));
        let _ = limiter.check(&key, &limit).await.expect("a decision");
        let _ = limiter.peek(&key, &limit).await.expect("a peek");
        for source in [BATCH, DECIDE] {
            let known = server.client().expect("a client").call(&["SCRIPT", "EXISTS", Script::new(source).get_hash()]);
            let known = known.expect("a reply").array();
            assert_eq!(known[0].clone().integer(), 1, "store/redis/script.rs joins its files in another way");
        }
    }

    #[test]
    fn names_are_unique() {
        let subjects = all();
        for subject in &subjects {
            assert_eq!(subjects.iter().filter(|other| other.name == subject.name).count(), 1, "{}", subject.name);
        }
    }
}
