//! The check `clock`.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rate_limited::redis::{Value, cmd};

use super::finding::Finding;
use super::node::{Node, Refusal, text};
use super::servers::Servers;

/// Readings of each clock. The shortest round trip bounds the difference best.
const READINGS: usize = 8;

/// The difference between two servers of one store from which on a failover moves limits noticeably.
const MAX_BETWEEN_SERVERS: Duration = Duration::from_millis(100);

/// The difference to this host from which on one of the two clocks is wrong.
const MAX_TO_HOST: Duration = Duration::from_secs(1);

const SYNCHRONIZE: &str = "synchronise the clocks of the hosts by NTP, for example with chrony";

/// The bounds of the time by which a server's clock is ahead of this host's clock, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ahead {
    least: i64,
    most: i64,
}

/// Compares the clock of each server with this host's clock, and with those of the other servers.
pub(super) async fn check(servers: &Servers) -> Finding {
    let mut clocks = Vec::new();
    for node in servers.all() {
        match read(node).await {
            Ok(ahead) => clocks.push((node.name.clone(), ahead)),
            Err(refusal) => {
                let finding = format!("{}: {}", node.name, refusal.of("TIME"));
                return Finding::unknown(finding, "permit `+time` to the user: the limiter needs it too");
            }
        }
    }
    judge(&clocks)
}

async fn read(node: &Node) -> Result<Ahead, Refusal> {
    let (mut bounds, host) = (Ahead { least: i64::MIN, most: i64::MAX }, HostClock::start());
    for _ in 0..READINGS {
        let before = host.micros();
        let reply = node.send(&cmd("TIME")).await?;
        let after = host.micros();
        let server = parse(&reply).ok_or_else(|| Refusal::Server("no time".to_owned()))?;
        bounds = bounds.narrowed(Ahead { least: server - after, most: server - before });
    }
    Ok(bounds)
}

/// Parses the reply to TIME: seconds and microseconds since 1970.
fn parse(reply: &Value) -> Option<i64> {
    let Value::Array(parts) = reply else { return None };
    let [seconds, micros] = &parts[..] else { return None };
    let (seconds, micros): (i64, i64) = (text(seconds)?.parse().ok()?, text(micros)?.parse().ok()?);
    seconds.checked_mul(1_000_000)?.checked_add(micros)
}

/// The wall clock of this host, which does not step during the check.
struct HostClock {
    started: Instant,
    micros_at_start: i64,
}

impl HostClock {
    fn start() -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { started: Instant::now(), micros_at_start: i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX) }
    }

    fn micros(&self) -> i64 {
        self.micros_at_start.saturating_add(i64::try_from(self.started.elapsed().as_micros()).unwrap_or(i64::MAX))
    }
}

impl Ahead {
    /// Returns the bounds that both state. A clock that stepped between has none in common: then the later ones hold.
    fn narrowed(self, other: Self) -> Self {
        let common = Self { least: self.least.max(other.least), most: self.most.min(other.most) };
        if common.least <= common.most { common } else { other }
    }

    /// Returns the bounds of the difference to another clock.
    fn minus(self, other: Self) -> Self {
        Self { least: self.least.saturating_sub(other.most), most: self.most.saturating_sub(other.least) }
    }

    /// Returns the least difference that these bounds prove, in either direction.
    fn proven(self) -> Duration {
        Duration::from_micros(self.least.max(self.most.saturating_neg()).max(0).unsigned_abs())
    }

    fn middle(self) -> i64 {
        self.least.midpoint(self.most)
    }

    fn error(self) -> u64 {
        self.most.abs_diff(self.least) / 2
    }

    /// Writes the difference with its bounds, such as `3.1 ms ahead of` or `behind`.
    fn describe(self, other: &str) -> String {
        let direction = if self.middle() < 0 { "behind" } else { "ahead of" };
        format!("{} {direction} {other}, ± {}", shown(self.middle().unsigned_abs()), shown(self.error()))
    }
}

/// Writes microseconds in a unit that leaves few digits.
fn shown(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..10_000_000 => format!("{}.{} ms", micros / 1_000, micros % 1_000 / 100),
        _ => format!("{}.{} s", micros / 1_000_000, micros % 1_000_000 / 100_000),
    }
}

fn judge(clocks: &[(String, Ahead)]) -> Finding {
    let Some((first, reference)) = clocks.first() else { return Finding::no_connection() };
    let pairs =
        clocks.iter().enumerate().flat_map(|(index, one)| clocks[..index].iter().map(move |other| (one, other)));
    let apart = pairs.max_by_key(|(one, other)| one.1.minus(other.1).proven());
    if let Some((one, other)) = apart
        && one.1.minus(other.1).proven() > MAX_BETWEEN_SERVERS
    {
        let difference = one.1.minus(other.1).describe(&other.0);
        return Finding::warn(
            format!("{} is {difference}: after a failover permits come back too early or too late", one.0),
            SYNCHRONIZE,
        );
    }
    let wrong = clocks.iter().find(|(_, ahead)| ahead.proven() > MAX_TO_HOST);
    if let Some((name, ahead)) = wrong {
        let difference = ahead.describe("this host");
        return Finding::warn(format!("{name} is {difference}; limits are counted by the server's clock"), SYNCHRONIZE);
    }
    let difference = reference.describe("this host");
    Finding::ok(match clocks.len() {
        1 => difference,
        count => format!("{count} servers agree; {first} is {difference}"),
    })
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;

    fn clock(name: &str, least: i64, most: i64) -> (String, Ahead) {
        (name.to_owned(), Ahead { least, most })
    }

    #[test]
    fn only_a_proven_difference_is_a_warning() {
        let slow_network = judge(&[clock("a", -3_000_000, 3_000_000)]);
        assert_eq!(slow_network.status, Status::Ok, "{slow_network:?}");
        assert_eq!(slow_network.finding, "0 µs ahead of this host, ± 3000.0 ms");
        let off = judge(&[clock("a", 29_000_000, 31_000_000)]);
        assert_eq!(off.status, Status::Warn);
        assert!(off.finding.starts_with("a is 30.0 s ahead of this host, ± 1000.0 ms"), "{off:?}");
        let agreeing = judge(&[clock("a", -100, 300), clock("b", -400, 200)]);
        assert_eq!(agreeing, Finding::ok("2 servers agree; a is 100 µs ahead of this host, ± 200 µs"));
        let apart = judge(&[clock("a", 0, 0), clock("b", 0, 10), clock("c", -150_500, -150_100)]);
        assert_eq!(apart.status, Status::Warn);
        assert!(apart.finding.starts_with("c is 150.3 ms behind b, ± 205 µs"), "{apart:?}");
        assert_eq!(judge(&[]), Finding::no_connection());
    }

    #[test]
    fn readings_narrow_the_bounds() {
        let first = Ahead { least: -50, most: 100 };
        assert_eq!(first.narrowed(Ahead { least: 20, most: 300 }), Ahead { least: 20, most: 100 });
        assert_eq!(first.narrowed(Ahead { least: 200, most: 300 }), Ahead { least: 200, most: 300 });
        let bulk = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        assert_eq!(parse(&Value::Array(vec![bulk("12"), bulk("34")])), Some(12_000_034));
        assert_eq!(parse(&Value::Nil), None);
    }
}
