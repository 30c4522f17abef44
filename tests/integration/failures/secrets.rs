//! Tests that errors, debug forms and logs contain neither keys nor passwords.

use std::error::Error as StdError;
use std::fmt::{self, Write};
use std::sync::Mutex;
use std::time::Duration;

use futures_util::future::join_all;
use limiter_testkit::{RedisServer, RedisServerBuilder, unique};
use rate_limited::{Denied, Error, Key, Limiter, OnError, Rule, rate_limited};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::child_process;
use crate::deadlines::eventually;
use crate::fake_server::{FakeServer, ScriptReply};
use crate::support::{builder_for, unpacked_limit as limit};

const PASSWORD: &str = "pass-s3cret";
const PART: &str = "part-s3cret";
const SECRET: &str = "s3cret";

/// Returns every printed form of an error and its causes.
fn texts(error: &Error) -> String {
    let mut text = format!("{error} {error:?} {error:#?}");
    let mut source = error.source();
    while let Some(cause) = source {
        write!(text, " {cause} {cause:?}").expect("writing to a string");
        source = cause.source();
    }
    text
}

fn secret_key() -> Key {
    Key::new("user:").part(PART)
}

/// Returns servers that reject commands, some of them with the arguments in the error.
fn rejecting_servers() -> [(&'static str, RedisServerBuilder); 5] {
    let with_password = || RedisServer::builder().password(PASSWORD);
    [
        ("no EVALSHA", with_password().setting("rename-command", "EVALSHA \"\"")),
        ("no HELLO", with_password().setting("rename-command", "HELLO \"\"")),
        ("no SCRIPT", with_password().setting("rename-command", "SCRIPT \"\"")),
        ("keys of another user", RedisServer::builder().user_with_rules("app", PASSWORD, "~other:* +@all")),
        ("no SET", RedisServer::builder().user_with_rules("app", PASSWORD, "~* +@all -set")),
    ]
}

#[tokio::test]
async fn errors_contain_neither_key_nor_password() {
    for (case, server) in rejecting_servers() {
        let server = server.start();
        let error = match builder_for(&server).on_error(OnError::Raise).connect().await {
            Ok(limiter) => limiter.check(&secret_key(), &limit("5/10s")).await.expect_err(case),
            Err(error) => error,
        };
        assert!(!texts(&error).contains(SECRET), "{case}: {}", texts(&error));
    }
}

#[tokio::test]
async fn debug_forms_contain_neither_key_nor_password() {
    let server = RedisServer::builder().password(PASSWORD).start();
    assert!(server.url().contains(PASSWORD));
    let builder = builder_for(&server);
    assert!(!format!("{builder:?}").contains(SECRET), "{builder:?}");
    let limiter = builder.connect().await.expect("the server is there");
    let decision = limiter.check(&secret_key(), &limit("5/10s")).await;
    let debug_text = format!("{limiter:?} {:?} {decision:?}", secret_key());
    assert!(!debug_text.contains(SECRET), "{debug_text}");
}

/// A server or proxy repeats the command in its error, for a single call or for one entry of a batch.
#[tokio::test]
async fn keys_repeated_by_a_server_are_redacted() {
    for error_reply in [
        "-ERR unknown command 'EVALSHA', with args beginning with: 'sha' '1' 'rl:{user:@part-s3cret}10s'\r\n",
        "-ERR cannot serve rl:{user:@part-s3cret}10s\r\n",
        "-rl:{user:@part-s3cret}10s is not served here\r\n",
        "*2\r\n:1000000000000000\r\n-ERR cannot store 'part-s3cret'\r\n",
    ] {
        let fake = FakeServer::with_script_reply(ScriptReply::Bytes(error_reply));
        let builder = fake.limiter().on_error(OnError::Raise);
        let limiter = builder.connect().await.expect("HELLO succeeds");
        let error = limiter.check(&secret_key(), &limit("5/10s")).await.expect_err(error_reply);
        assert!(!texts(&error).contains(SECRET), "{}", texts(&error));
    }
}

/// Covers every option of a builder, used or not, valid or invalid.
#[tokio::test]
async fn builders_and_their_errors_contain_no_secret() {
    let hosts = "127.0.0.1:1,127.0.0.2:1";
    let urls = [
        format!("redis://{PASSWORD}:{PASSWORD}@127.0.0.1:1"),
        format!("redis://user:{PASSWORD}@127.0.0.1:no-port"),
        format!("redis://user:{PASSWORD}@127.0.0.1:1/no-database"),
        format!("redis://user:{PASSWORD}#x@127.0.0.1:1"),
        format!("redis://user:{PASSWORD}/x@127.0.0.1:1"),
        format!("rediss://user:{PASSWORD}@127.0.0.1:1"),
        format!("redis+unix:///nowhere/redis.sock?user=user&pass={PASSWORD}"),
        format!("redis-cluster://user:{PASSWORD}@{hosts}"),
        format!("redis-cluster://user:{PASSWORD}@{hosts},:"),
        format!("redis-cluster://user:{PASSWORD}@"),
        format!("redis-cluster://user:p@{PASSWORD}@{hosts}"),
        format!("rediss-cluster://user:{PASSWORD}@{hosts}"),
        format!("redis-sentinel://user:{PASSWORD}@{hosts}/mymaster/0"),
        format!("redis-sentinel://user:{PASSWORD}@{hosts}"),
        format!("redis-sentinel://user:{PASSWORD}@{hosts}/mymaster?sentinel_password={PASSWORD}"),
        format!("rediss-sentinel://user:{PASSWORD}@{hosts}/mymaster/0"),
        format!("memory:{PASSWORD}"),
        format!("{PASSWORD}://user:{PASSWORD}@127.0.0.1:1"),
        format!("user:{PASSWORD}@127.0.0.1:1"),
        format!("://{PASSWORD}"),
        PASSWORD.to_owned(),
    ];
    for url in urls {
        let builder = || Limiter::builder().url(&url).hash_keys(format!("{SECRET}{SECRET}{SECRET}")).prefix("rl");
        let mut debug_text = format!("{:?} {:#?}", builder(), builder());
        match builder().build() {
            Ok(limiter) => write!(debug_text, " {limiter:?}").expect("writing to a string"),
            Err(error) => debug_text.push_str(&texts(&error)),
        }
        if let Err(error) = builder().on_error(OnError::Raise).connect().await {
            debug_text.push_str(&texts(&error));
        }
        assert!(!debug_text.contains(SECRET), "{debug_text}");
    }
    let short = Limiter::builder().hash_keys(SECRET).build().expect_err("too short");
    assert!(!texts(&short).contains(SECRET), "{short:?}");
}

/// A decision shows its rule's name, and nothing of the key.
#[tokio::test]
async fn decisions_contain_no_part_of_the_key() {
    #[rate_limited(key = "user:{value}", limit = "1/h", fallback = |denied| debug_text(&denied))]
    async fn annotated(value: &str) -> String {
        String::new()
    }

    fn debug_text(denied: &Denied) -> String {
        format!("{denied} {denied:?} {denied:#?} {}", denied.name())
    }

    let server = RedisServer::builder().password(PASSWORD).start();
    let builder = || builder_for(&server).rule("user:{value}", Rule::new().deadline(Duration::from_secs(5)));
    let connected = [builder().connect().await, builder().hash_keys([7; 16]).connect().await];
    let limiters = connected.into_iter().map(|limiter| limiter.expect("the server is there"));
    for limiter in limiters.chain([Limiter::memory()]) {
        let (key, once) = (secret_key(), limit("1/1h"));
        let mut shown_text = String::new();
        for _ in 0..2 {
            let decisions = [
                limiter.check(&key, &once).await,
                limiter.check_all(&[(&key, &once, 1), (&key, &once, 7)]).await,
                limiter.wait(&key, &once, Duration::from_millis(1)).await,
                limiter.peek(&key, &once).await,
            ];
            for decision in decisions.map(|decision| decision.expect("answers")) {
                write!(shown_text, "{decision:?} {decision:#?}").expect("writing to a string");
                match decision.into_result() {
                    Ok(allowed) => write!(shown_text, "{allowed:?} {}", allowed.name()).expect("writing to a string"),
                    Err(denied) => shown_text.push_str(&debug_text(&denied)),
                }
            }
            shown_text.push_str(&limiter.scope(annotated(PART)).await);
        }
        assert!(shown_text.contains("user:{value}"), "{shown_text}");
        assert!(!shown_text.contains(SECRET), "{shown_text}");
    }
}

/// One bad key among many in a batch: its error contains no key.
#[tokio::test]
async fn errors_within_a_batch_contain_no_key() {
    let server = RedisServer::start();
    let limiter = builder_for(&server).prefix("rl").on_error(OnError::Raise).connect().await.expect("connects");
    let (once, keys): (_, Vec<_>) = (limit("5/1h"), (0..64).map(|number| secret_key().part(number)).collect());
    for name in ["%0", "7"] {
        // A foreign value under the name of one counter.
        assert_eq!(server.command(&["SET", &format!("rl:{{user:@{PART}@@{name}}}1h"), SECRET]).text(), "OK");
    }
    let decisions = join_all(keys.iter().map(|key| limiter.check(key, &once))).await;
    let errors: Vec<_> = decisions.into_iter().filter_map(Result::err).collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(!texts(&errors[0]).contains(SECRET), "{}", texts(&errors[0]));
    server.command(&["CONFIG", "SET", "maxmemory", "1"]);
    for decision in join_all(keys.iter().map(|key| limiter.check(key, &once))).await {
        let error = decision.expect_err("no memory");
        assert!(!texts(&error).contains(SECRET), "{}", texts(&error));
    }
}

#[test]
fn logs_contain_neither_key_nor_password() {
    let printed = child_process::run("failures::secrets::log_an_outage", &[("", ""); 0]);
    assert!(printed.contains("the rate limiter's store is away"), "{printed}");
    assert!(printed.contains("the rate limiter's store is back"), "{printed}");
    assert!(!printed.contains(SECRET), "{printed}");
}

#[tokio::test]
#[ignore = "needs a process of its own, since a process has one subscriber for all threads"]
async fn log_an_outage() {
    if !child_process::is_child() {
        return;
    }
    tracing::subscriber::set_global_default(RecordingSubscriber).expect("the first");
    let mut kept = Vec::new();
    let served = ("served", RedisServer::builder().password(PASSWORD));
    for (_, server) in rejecting_servers().into_iter().chain([served]) {
        let mut server = server.start();
        let limiter = Limiter::builder().url(server.url()).prefix(unique("logs")).build().expect("a URL");
        let (key, limit) = (secret_key(), limit("5/10s"));
        assert!(limiter.check(&key, &limit).await.expect("the standby limiter at least").is_allowed());
        server.restart();
        let logged = || async { LINES.lock().expect("no panic").contains("store is away") };
        eventually("logged", logged).await;
        assert!(limiter.check(&key, &limit).await.expect("the standby limiter at least").is_allowed());
        kept.push((server, limiter));
    }
    let logged = || async { LINES.lock().expect("no panic").contains("store is back") };
    eventually("logged", logged).await;
    println!("{}", LINES.lock().expect("no panic"));
}

static LINES: Mutex<String> = Mutex::new(String::new());

/// A subscriber that records every event of every level, also those of redis-rs and tokio.
struct RecordingSubscriber;

impl Subscriber for RecordingSubscriber {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut FieldRecorder);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct FieldRecorder;

impl Visit for FieldRecorder {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        writeln!(LINES.lock().expect("no panic"), "{field} = {value:?}").expect("writing to a string");
    }
}
