//! Sweeps of hashes, beside callers who choose their keys.

use super::*;

/// Dead counts of a hash.
const DEAD: usize = 2_000;
/// The number of new counts of which one sweeps its hash.
const ADDS: u8 = 64;

/// Keys with the same low six bits in the first byte of their digests. Anyone can compute them.
async fn chosen_keys(server: &RedisServer, limiter: &Limiter) -> Vec<Key> {
    let mut client = server.client().expect("connects");
    let mut chosen = Vec::new();
    for key in keys_of_one_hash() {
        assert!(take(limiter, &key, 1).await.is_some());
        let hash = hash(server);
        let field = client.call(&[b"HKEYS", hash.as_bytes()]).expect("replies").array().remove(0).bytes();
        client.call(&[b"DEL", hash.as_bytes()]).expect("replies");
        if field[0] % ADDS == 1 {
            chosen.push(key);
        }
        if chosen.len() == 3 {
            break;
        }
    }
    chosen
}

#[tokio::test]
async fn chosen_keys_do_not_keep_dead_counts() {
    let server = RedisServer::start();
    let (limiter, clock) = with_rule(&server, packed(&["5/1h"])).await;
    let chosen = chosen_keys(&server, &limiter).await;
    assert!(take(&limiter, &chosen[0], 1).await.is_some());
    let hash = hash(&server);
    large::fill(&server, &hash, DEAD, 0);
    let counts = || usize::try_from(server.command(&["HLEN", &hash]).integer()).expect("a length");
    let mut writes = 0;
    while counts() > DEAD / 2 {
        assert!(writes < 200 * usize::from(ADDS), "no write sweeps");
        let key = &chosen[writes % chosen.len()];
        limiter.named(RULE).reset(key, &limit("1/1s")).await.expect("reset");
        assert_eq!(take(&limiter, key, 1).await, Some(4));
        clock.advance(Duration::from_micros(37_337));
        writes += 1;
    }
}
