//! A hash with more counts than it should have.

use super::*;

/// Counts of real keys, of which some are dead at the end, and those that the test writes itself.
const KEYS: usize = 200;
const COUNTS: usize = 10_000;

/// The times of script calls since the last reset of the log, in microseconds of the server's clock: the median, the 99th
/// percentile and the longest.
fn times_of_script_calls(server: &RedisServer) -> [i64; 3] {
    let of_script = |entry: Reply| {
        let mut parts = entry.array().into_iter().skip(2);
        let (micros, words) = (parts.next()?.integer(), parts.next()?.array());
        words.into_iter().next()?.text().eq_ignore_ascii_case("evalsha").then_some(micros)
    };
    let log = server.command(&["SLOWLOG", "GET", "-1"]).array();
    let mut times: Vec<_> = log.into_iter().filter_map(of_script).collect();
    times.sort_unstable();
    let last = times.len() - 1;
    [times[last / 2], times[last * 99 / 100], times[last]]
}

/// Adds so many counts to a hash, each with a permit of this instant.
pub(super) fn fill(server: &RedisServer, hash: &str, counts: usize, millis: u64) {
    let base = [&[7][..], &millis.to_be_bytes()[2..]].concat();
    // Both forms of a log with one run.
    let values = [[&base[..], &[1]].concat(), [&base[..], &[0, 0, 0, 1]].concat()];
    let mut client = server.client().expect("connects");
    let fields: Vec<_> = (0..counts).map(|number| format!("{number:016}")).collect();
    for some in fields.chunks(500) {
        let pairs = some.iter().zip(values.iter().cycle()).flat_map(|(field, value)| [field.as_bytes(), value]);
        let words: Vec<_> = [&b"HSET"[..], hash.as_bytes()].into_iter().chain(pairs).collect();
        client.call(&words).expect("set");
    }
}

#[tokio::test]
async fn a_hash_with_ten_thousand_counts_decides_alike_and_is_swept() {
    let server = RedisServer::builder().setting("slowlog-max-len", "100000").start();
    let (limiter, clock) = with_rule(&server, packed(&["5/1h"])).await;
    let keys: Vec<_> = keys_of_one_hash().take(KEYS).collect();
    assert_eq!(take(&limiter, &keys[0], 1).await, Some(4));
    let hash = hash(&server);
    let counts = || usize::try_from(server.command(&["HLEN", &hash]).integer()).expect("a length");
    fill(&server, &hash, COUNTS - KEYS, u64::try_from(clock.now().as_millis()).expect("a time of this age"));
    server.command(&["CONFIG", "SET", "slowlog-log-slower-than", "0"]);
    // Writes of other counts, of which some sweep. They find none that is dead.
    for key in &keys[1..] {
        assert_eq!(take(&limiter, key, 1).await, Some(4));
    }
    for left in (0..4).rev() {
        for key in &keys {
            assert_eq!(take(&limiter, key, 1).await, Some(left));
        }
        clock.advance(Duration::from_millis(100));
    }
    assert_eq!((take(&limiter, &keys[0], 1).await, counts()), (None, COUNTS));
    assert_eq!(server.command(&["OBJECT", "ENCODING", &hash]).text(), "hashtable");
    let alone = times_of_script_calls(&server);
    // Batches.
    server.command(&["SLOWLOG", "RESET"]);
    for _ in 0..20 {
        let (named, any) = (limiter.named(RULE), limit("1/1s"));
        let denied = futures_util::future::join_all(keys.iter().map(|key| named.check(key, &any))).await;
        assert!(denied.into_iter().all(|decision| decision.expect("a decision").is_denied()));
    }
    let batches = times_of_script_calls(&server);
    // Nothing of this is a count.
    let foreign = [("foreign", "field"), ("sixteen bytes, a", "long text that is no value of a count")];
    foreign.iter().for_each(|(field, value)| assert_eq!(server.command(&["HSET", &hash, field, value]).integer(), 1));
    // All that others wrote is dead half an hour later, and the counts of half of the keys live.
    clock.advance(Duration::from_secs(1_800));
    let (living, writing) = keys.split_at(KEYS / 2);
    for key in living {
        limiter.named(RULE).reset(key, &limit("1/1s")).await.expect("reset");
        assert_eq!(take(&limiter, key, 4).await, Some(1));
    }
    clock.advance(Duration::from_secs(1_810));
    server.command(&["SLOWLOG", "RESET"]);
    let mut writes = 0;
    while counts() > 2 * KEYS {
        assert!(writes < 40_000, "sweeps delete what is dead");
        let key = &writing[writes % writing.len()];
        limiter.named(RULE).reset(key, &limit("1/1s")).await.expect("reset");
        assert_eq!(take(&limiter, key, 1).await, Some(4));
        clock.advance(Duration::from_micros(37_337));
        writes += 1;
    }
    let sweeping = times_of_script_calls(&server);
    println!(
        "script calls, in µs: {alone:?} alone, {batches:?} of a batch, {sweeping:?} of {writes} resets and writes"
    );
    for (field, value) in foreign {
        assert_eq!(server.command(&["HGET", &hash, field]).text(), value, "a sweep keeps it");
    }
    for key in living {
        assert_eq!(take(&limiter, key, 0).await, Some(1), "a count that lives stays");
    }
}
