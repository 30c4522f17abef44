//! Packed rules on servers that lose keys, have keys of other types, or are full.

use futures_util::future::join_all;
use rate_limited::Limit;

use super::*;
use crate::support::LONG_DEADLINE;

/// More permits than fit into a field, each with an instant of its own.
const MANY: u32 = 18;

/// Takes so many permits one after the other, so that the log moves out. Returns the names of the hash and of the log.
async fn grow(server: &RedisServer, limiter: &Limiter, clock: &ManualClock, key: &Key) -> (String, String) {
    for _ in 0..MANY {
        assert!(take(limiter, key, 1).await.is_some());
        clock.advance(Duration::from_millis(10));
    }
    let (mut hashes, mut others) = hashes_and_others(server);
    assert_eq!((hashes.len(), others.len()), (1, 1));
    (hashes.remove(0), others.remove(0))
}

/// Two keys whose counts share a hash.
fn two_keys() -> [Key; 2] {
    let mut others = keys_of_one_hash();
    [(); 2].map(|()| others.next().expect("some"))
}

/// Makes calls until the process sends the next one as if no count had moved out.
async fn forget_what_moved_out(server: &RedisServer, limiter: &Limiter, key: &Key, left: u32) {
    let peek = async || {
        let before = server.script_calls();
        let peeked = limiter.named(RULE).peek(key, &limit("1/1s")).await.expect("a decision");
        assert_eq!(peeked.remaining(), left);
        server.script_calls() - before
    };
    // One that is refused, because its key is not declared, is sent once more. A thousand declare it then.
    while peek().await == 1 {}
    for _ in 0..1_000 {
        assert_eq!(peek().await, 1);
    }
}

#[tokio::test]
async fn a_count_whose_log_is_lost_begins_anew_in_the_hash() {
    let server = RedisServer::start();
    let (limiter, clock) = with_rule(&server, packed(&["30/1h"])).await;
    let [key, other] = two_keys();
    assert_eq!(take(&limiter, &other, 3).await, Some(27));
    for is_known in [true, false] {
        let (_, own) = grow(&server, &limiter, &clock, &key).await;
        if !is_known {
            forget_what_moved_out(&server, &limiter, &key, 30 - MANY).await;
        }
        assert_eq!(server.command(&["UNLINK", &own]).integer(), 1);
        let before = server.script_calls();
        assert_eq!(take(&limiter, &key, 2).await, Some(28), "known: {is_known}");
        assert_eq!(server.script_calls() - before, if is_known { 1 } else { 2 });
        assert_eq!(hashes_and_others(&server).1, Vec::<String>::new());
        let peeked = limiter.named(RULE).peek(&other, &limit("1/1s")).await.expect("a decision");
        assert_eq!(peeked.remaining(), 27, "the other counts of the hash stay");
        limiter.named(RULE).reset(&key, &limit("1/1s")).await.expect("reset");
    }
}

#[tokio::test]
async fn all_counts_of_a_hash_that_is_lost_begin_anew() {
    let server = RedisServer::start();
    let (limiter, clock) = with_rule(&server, packed(&["30/1h"])).await;
    let [key, other] = two_keys();
    let (hash, own) = grow(&server, &limiter, &clock, &key).await;
    assert_eq!(take(&limiter, &other, 30).await, Some(0));
    assert_eq!(server.command(&["UNLINK", &hash]).integer(), 1);
    for key in [&key, &other] {
        assert_eq!(take(&limiter, key, 1).await, Some(29), "a full quota, and not the log that had moved out");
    }
    assert!(server.pttl(&own) > 0, "it is not read any more, and expires");
    assert!(server.pttl(&hash) >= 3_600_000);
    // It moves out over the old log.
    let (_, again) = grow(&server, &limiter, &clock, &key).await;
    assert_eq!((again, take(&limiter, &key, 30 - 1 - MANY).await), (own, Some(0)));
    assert_eq!(take(&limiter, &key, 1).await, None);
}

#[tokio::test]
async fn a_key_of_another_type_fails_its_own_counts_of_a_batch_alone() {
    let server = RedisServer::start();
    let (limiter, _) = with_rule(&server, Rule::new()).await;
    let any = key("a");
    let limits = ["5/1h", "5/2h", "5/3h"].map(|text| text.parse::<Limit>().expect("a limit").packed_into(BUCKETS));
    for limit in &limits {
        assert!(limiter.check(&any, limit).await.expect("a decision").is_allowed());
    }
    let damaged = server.all_keys().into_iter().find(|name| name.contains("#2h")).expect("the hash of the second");
    server.command(&["DEL", &damaged]);
    server.command(&["RPUSH", &damaged, "a list"]);
    for left in (1..4).rev() {
        // Two rounds in one batch: a count is decided again with what the batch has written.
        let calls = join_all(limits.iter().map(|limit| limiter.check(&any, limit))).await;
        for (number, result) in calls.into_iter().enumerate() {
            match (number, result) {
                (1, Err(error)) => assert!(matches!(error.kind(), ErrorKind::Protocol | ErrorKind::Refused), "{error}"),
                (0 | 2, Ok(decision)) => assert_eq!(decision.remaining(), left),
                (_, result) => panic!("call {number}: {result:?}"),
            }
        }
    }
    assert_eq!(server.command(&["LRANGE", &damaged, "0", "-1"]).array().len(), 1, "it stays");
}

#[tokio::test]
async fn an_own_key_of_another_type_fails_its_calls_and_stays() {
    let server = RedisServer::start();
    let (limiter, clock) = with_rule(&server, packed(&["30/1h"])).await;
    let [key, other] = two_keys();
    let (_, own) = grow(&server, &limiter, &clock, &key).await;
    forget_what_moved_out(&server, &limiter, &key, 30 - MANY).await;
    server.command(&["DEL", &own]);
    server.command(&["RPUSH", &own, "a list"]);
    let (named, any) = (limiter.named(RULE), limit("1/1s"));
    for _ in 0..3 {
        // The first batch with both counts has them in one script call. From then on the process knows where they are.
        let calls = join_all([&other, &key, &other, &key, &other].map(|key| named.check(key, &any))).await;
        let successes: Vec<_> = calls.iter().map(Result::is_ok).collect();
        assert_eq!(successes, [true, false, true, false, true]);
        let error = named.check(&key, &any).await.expect_err("no decision");
        assert!(matches!(error.kind(), ErrorKind::Protocol | ErrorKind::Refused), "{error}");
    }
    assert_eq!(server.command(&["LRANGE", &own, "0", "-1"]).array().len(), 1, "it stays");
    let reset = limiter.named(RULE).reset(&key, &limit("1/1s")).await.expect_err("it cannot be read");
    assert_eq!(reset.kind(), ErrorKind::Protocol);
}

/// A count returns to its hash before its own key is deleted. Without the permission for that it stays where it was.
#[tokio::test]
async fn a_count_that_cannot_return_stays_as_it_was() {
    let server = RedisServer::builder().tcp().user_with_rules("app", "pw", "+@all ~* &*").start();
    let clock = ManualClock::new();
    let builder = Limiter::builder().url(server.url()).on_error(OnError::Raise).deadline(LONG_DEADLINE);
    let builder = builder.remember_denials(Duration::ZERO).presence(false).clock(clock.clone());
    let builder = builder.rule(RULE, packed(&["30/1h"]));
    let (limiter, [key, other]) = (builder.connect().await.expect("a server"), two_keys());
    let (_, own) = grow(&server, &limiter, &clock, &key).await;
    // Three permits count, so the log fits into its field.
    clock.advance(Duration::from_secs(3_600) - Duration::from_millis(40));
    forget_what_moved_out(&server, &limiter, &key, 27).await;
    let stored = || server.command(&["GET", &own]).bytes();
    let before = stored();
    assert_eq!(server.command(&["ACL", "SETUSER", "app", "-del"]).text(), "OK");
    let (named, any) = (limiter.named(RULE), limit("1/1s"));
    // The process does not know that a count has moved out, so its batch has counts in the hash too.
    let calls = join_all([&other, &key, &other].map(|key| named.check(key, &any))).await;
    assert_eq!(calls[1].as_ref().expect_err("no decision").kind(), ErrorKind::Refused);
    let allowed = calls.iter().filter(|call| call.is_ok()).count();
    let error = once_connected(async || named.check(&key, &any).await).await.expect_err("no decision");
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert_eq!((stored(), server.pttl(&own) > 0), (before, true));
    assert_eq!(server.command(&["ACL", "SETUSER", "app", "+del"]).text(), "OK");
    let left = async |key| once_connected(async || named.peek(key, &any).await).await.expect("a decision").remaining();
    assert_eq!((left(&key).await, left(&other).await), (27, 30 - u32::try_from(allowed).expect("few")));
    assert_eq!(take(&limiter, &key, 1).await, Some(26));
    assert!(!server.all_keys().contains(&own), "it has returned");
}

/// The server becomes full and has room again while batches are under way. Whatever a call replies is what was counted.
#[tokio::test]
async fn a_server_that_is_full_for_a_while_counts_what_it_allows() {
    const KEYS: usize = 12;
    const ROUNDS: usize = 60;
    let server = RedisServer::start();
    let (limiter, clock) = with_rule(&server, packed(&["100000/1h"])).await;
    let keys: Vec<_> = keys_of_one_hash().take(KEYS).collect();
    let (named, any) = (limiter.named(RULE), limit("1/1s"));
    let (mut allowed, mut failed) = ([0_u32; KEYS], 0);
    let calls = async {
        let mut rounds = 0;
        while rounds < ROUNDS || failed < ROUNDS || allowed.iter().any(|allowed| *allowed < MANY) {
            rounds += 1;
            assert!(rounds < 50 * ROUNDS, "{failed} calls failed, others were allowed so often: {allowed:?}");
            clock.advance(Duration::from_millis(10));
            // Each key is twice in a batch.
            let calls = keys.iter().chain(&keys).map(|key| named.check(key, &any));
            for (number, result) in join_all(calls).await.into_iter().enumerate() {
                match result {
                    Ok(Decision::Allowed(_)) => allowed[number % KEYS] += 1,
                    Ok(Decision::Denied(denied)) => panic!("a denial in place of an error: {denied:?}"),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
                        failed += 1;
                    }
                }
            }
        }
    };
    let filling = async {
        loop {
            for maxmemory in ["1", "0"] {
                server.command(&["CONFIG", "SET", "maxmemory", maxmemory]);
                tokio::task::yield_now().await;
            }
        }
    };
    tokio::select! {
        () = calls => {}
        () = filling => {}
    }
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    let (hashes, others) = hashes_and_others(&server);
    assert!(!others.is_empty(), "some logs moved out meanwhile");
    for name in hashes.iter().chain(&others) {
        assert!(server.pttl(name) > 0, "{name} expires");
    }
    for (key, allowed) in keys.iter().zip(allowed) {
        let peeked = named.peek(key, &any).await.expect("a decision");
        assert_eq!(peeked.remaining(), 100_000 - allowed, "no permit was taken by a call that failed");
    }
    println!("{failed} calls failed, {} were allowed", allowed.iter().sum::<u32>());
}

/// A call that was decided before the first write of its count keeps its reply, as beside a key of its own.
#[tokio::test]
async fn a_denial_of_a_batch_that_cannot_be_written_stays_a_denial() {
    let server = RedisServer::start();
    let (limiter, _) = with_rule(&server, Rule::new()).await;
    let limits = ["5/1h", "6/1h"].map(|text| unpacked_limit(text).packed_into(BUCKETS));
    let [key, other] = two_keys();
    let [five, six] = &limits;
    assert!(limiter.check_n(&key, five, 5).await.expect("a decision").is_allowed());
    let calls = [(&key, five, 1), (&other, five, 0), (&key, five, 1), (&key, six, 1), (&other, six, 6)];
    let all = async || join_all(calls.map(|(key, limit, cost)| limiter.check_n(key, limit, cost))).await;
    for _ in 0..10 {
        server.command(&["CONFIG", "SET", "maxmemory", "1"]);
        let kinds = all().await.into_iter().map(|result| match result {
            Ok(decision) => Ok(decision.is_allowed()),
            Err(error) => Err(error.kind()),
        });
        let full = Err(ErrorKind::OutOfMemory);
        assert_eq!(kinds.collect::<Vec<_>>(), [Ok(false), Ok(true), Ok(false), full, full]);
    }
    server.command(&["CONFIG", "SET", "maxmemory", "0"]);
    assert_eq!(limiter.peek(&key, six).await.expect("a decision").remaining(), 1);
}
