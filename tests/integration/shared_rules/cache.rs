//! The file that keeps the last good shared rules for the next process.

use std::fs;
use std::path::Path;
use std::time::Duration;

use limiter_testkit::{RedisServer, Reply, unique};
use rate_limited::{Builder, Denied, ErrorKind, Limiter, OnError, SharedRules, rate_limited};

use super::{builder, change, eventually_in_force, eventually_version, in_force, stored_version, text};
use crate::child_process;
use crate::deadlines::eventually;
use crate::health::log::{RecordsLines, lines};

#[rate_limited(key = "cached", limit = configured)]
fn cached() -> Result<(), Denied> {
    Ok(())
}

fn with_cache(url: &str, prefix: &str, cache: &Path) -> Builder {
    builder(url, prefix).shared_rules().shared_rules_cache(cache)
}

/// Publishes a text, and returns when the file has it.
async fn publish_and_cache(server: &RedisServer, prefix: &str, cache: &Path, toml: &str) {
    let limiter = with_cache(&server.url(), prefix, cache).connect().await.expect("connects");
    let rules = SharedRules::new(&limiter);
    let present = rules.read().await.expect("read").version;
    rules.publish(toml, change(present)).await.expect("published");
    let is_cached = || fs::read_to_string(cache).is_ok_and(|file| file.ends_with(toml));
    eventually("cached", async || is_cached()).await;
}

#[tokio::test]
async fn the_rules_of_the_file_are_in_force_until_the_store_answers() {
    let mut server = RedisServer::start();
    let (prefix, directory) = (unique("cache"), tempfile::tempdir().expect("a directory"));
    let cache = directory.path().join("rules.cache");
    let toml = format!("{}[rules.cached]\nlimit = \"2/h\"\n", text(5));
    publish_and_cache(&server, &prefix, &cache, &toml).await;
    server.kill();
    let short = Duration::from_millis(50);
    let limiter = with_cache(&server.url(), &prefix, &cache).deadline(short).on_error(OnError::Standby);
    let limiter = limiter.build().expect("valid");
    assert_eq!((in_force(&limiter).map(|(max, _)| max), limiter.shared_rules_version()), (Some(5), 1));
    // Without the file the rule would have no limit, and its calls would be denied.
    let allowed = limiter.scope_sync(|| (0..5).filter(|_| cached().is_ok()).count());
    assert_eq!(allowed, 2);
    server.restart();
    // The store has lost the text, which was confirmed a moment ago.
    eventually("put back", async || {
        let version = server.command(&["EXISTS", &format!("{prefix}-rules:{{rules}}:version")]);
        version == Reply::Integer(1)
    })
    .await;
    assert!(stored_version(&server, &prefix).ends_with(":restored"));
    let rules = SharedRules::new(&limiter);
    rules.publish(&text(7), change(1)).await.expect("published");
    eventually_in_force(&limiter, 7).await;
    eventually_version(&limiter, 2).await;
    eventually("cached", async || fs::read_to_string(&cache).is_ok_and(|file| file.ends_with(&text(7)))).await;
}

/// It can be read, so the process starts, and the text is put back once it can be written.
#[tokio::test]
async fn a_process_starts_by_the_file_while_the_store_takes_no_writes() {
    let server = RedisServer::start();
    let (prefix, directory) = (unique("cache"), tempfile::tempdir().expect("a directory"));
    let cache = directory.path().join("rules.cache");
    publish_and_cache(&server, &prefix, &cache, &text(5)).await;
    server.command(&["FLUSHALL"]);
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    let limiter = with_cache(&server.url(), &prefix, &cache).connect().await.expect("the text of the file");
    assert_eq!(in_force(&limiter).map(|(max, _)| max), Some(5));
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    eventually("put back", async || {
        server.command(&["EXISTS", &format!("{prefix}-rules:{{rules}}:version")]) == Reply::Integer(1)
    })
    .await;
    eventually("readable", async || limiter.shared_rules_error().is_none()).await;
}

#[tokio::test]
async fn a_published_text_replaces_that_of_the_file() {
    let server = RedisServer::start();
    let (prefix, directory) = (unique("cache"), tempfile::tempdir().expect("a directory"));
    let cache = directory.path().join("rules.cache");
    publish_and_cache(&server, &prefix, &cache, &text(5)).await;
    server.command(&["FLUSHALL"]);
    let rules = SharedRules::new(&builder(&server.url(), &prefix).connect().await.expect("connects"));
    assert_eq!(rules.publish(&text(6), change(0)).await.expect("published"), 1);
    let published = stored_version(&server, &prefix);
    let limiter = with_cache(&server.url(), &prefix, &cache).connect().await.expect("connects");
    assert_eq!(in_force(&limiter).map(|(max, _)| max), Some(6));
    assert_eq!(stored_version(&server, &prefix), published);
}

#[tokio::test]
async fn the_file_of_another_place_is_neither_used_nor_put_back() {
    let server = RedisServer::builder().tcp().start();
    let (prefix, directory) = (unique("cache"), tempfile::tempdir().expect("a directory"));
    let cache = directory.path().join("rules.cache");
    publish_and_cache(&server, &prefix, &cache, &text(5)).await;
    let saved = fs::read(&cache).expect("a file");
    let other = RedisServer::start();
    let cases = [
        (server.url(), unique("cache")),
        (format!("{}/1", server.url()), prefix.clone()),
        (other.url(), prefix.clone()),
    ];
    for (url, prefix) in cases {
        fs::write(&cache, &saved).expect("writes");
        let limiter = with_cache(&url, &prefix, &cache).connect().await.expect("connects");
        assert_eq!((in_force(&limiter), limiter.shared_rules_version()), (None, 0), "{url} {prefix}");
        let rules = SharedRules::new(&limiter);
        assert_eq!(rules.publish(&text(6), change(0)).await.expect("nothing was put back"), 1);
    }
}

#[tokio::test]
async fn a_path_that_is_no_cache_is_an_error_of_the_start() {
    let (server, directory) = (RedisServer::start(), tempfile::tempdir().expect("a directory"));
    let rules = directory.path().join("rules.toml");
    fs::write(&rules, "[rules.a]\nlimit = \"5/s\"\n").expect("writes");
    for (path, found) in [(&*rules, "a file of another kind"), (directory.path(), "a directory or a device")] {
        for error in [
            with_cache(&server.url(), "c", path).build().expect_err(found),
            with_cache(&server.url(), "c", path).connect().await.expect_err(found),
        ] {
            let start = format!("`shared_rules_cache` must be a file that only limiters write, got {found}");
            assert!(error.kind() == ErrorKind::Config && error.to_string().starts_with(&start), "{error}");
        }
    }
    assert_eq!(fs::read_to_string(&rules).expect("readable"), "[rules.a]\nlimit = \"5/s\"\n");
    let error = Limiter::builder().url(server.url()).shared_rules_cache(&rules).build().expect_err("no shared rules");
    assert_eq!(
        error.to_string(),
        "`shared_rules_cache` must be used with shared rules, got a limiter that does not follow them: call \
         `Builder::shared_rules`, or leave it out"
    );
}

#[test]
fn a_file_that_cannot_be_used_or_written_is_a_warning() {
    child_process::run("shared_rules::cache::log_of_unusable_files", &[("X", "")]);
}

#[tokio::test]
#[ignore = "needs a process of its own, with a subscriber"]
async fn log_of_unusable_files() {
    if !child_process::is_child() {
        return;
    }
    tracing::subscriber::set_global_default(RecordsLines).expect("the first");
    let with = |part: &str| lines().into_iter().filter(|line| line.contains(part)).count();
    let (server, prefix) = (RedisServer::start(), unique("cache"));
    let directory = tempfile::tempdir().expect("a directory");
    let cache = directory.path().join("rules.cache");
    publish_and_cache(&server, &prefix, &cache, &text(5)).await;
    let saved = fs::read(&cache).expect("a file");
    for length in [0, saved.len() / 2, saved.len() - 1] {
        fs::write(&cache, &saved[..length]).expect("writes");
        let before = with("the cache of the shared rules is not used");
        let limiter = with_cache(&server.url(), &prefix, &cache).build().expect("valid");
        eventually("logged", async || with("the cache of the shared rules is not used") == before + 1).await;
        eventually_in_force(&limiter, 5).await;
        // It is replaced.
        eventually("cached", async || fs::read(&cache).is_ok_and(|file| file.ends_with(text(5).as_bytes()))).await;
    }
    assert_eq!(with("it is damaged, or of another version of the limiter"), 3);
    let nowhere = directory.path().join("no directory").join("rules.cache");
    let limiter = with_cache(&server.url(), &prefix, &nowhere).build().expect("valid");
    eventually_in_force(&limiter, 5).await;
    let unwritable = "the cache of the shared rules cannot be written";
    eventually("logged", async || with(unwritable) == 1).await;
    SharedRules::new(&limiter).publish(&text(6), change(1)).await.expect("published");
    eventually_in_force(&limiter, 6).await;
    fs::create_dir(nowhere.parent().expect("a directory")).expect("creates");
    SharedRules::new(&limiter).publish(&text(7), change(2)).await.expect("published");
    eventually("cached", async || nowhere.exists()).await;
    assert_eq!(with(unwritable), 1);
}
