//! What a failure tells nobody: the contents of a key, and a password.

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

use crate::child;
use crate::deadlines::eventually;
use crate::fake::{Fake, Then};
use crate::support::{limit, on};

const PASSWORD: &str = "pass-s3cret";
const PART: &str = "part-s3cret";
const SECRET: &str = "s3cret";

/// Each way to print an error.
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

/// Servers that repeat what they were asked, or want something else.
fn strange() -> [(&'static str, RedisServerBuilder); 5] {
    let with_password = || RedisServer::builder().password(PASSWORD);
    [
        ("no EVALSHA", with_password().setting("rename-command", "EVALSHA \"\"")),
        ("no HELLO", with_password().setting("rename-command", "HELLO \"\"")),
        ("no SCRIPT", with_password().setting("rename-command", "SCRIPT \"\"")),
        ("another user's", RedisServer::builder().user_with_rules("app", PASSWORD, "~other:* +@all")),
        ("not its own", RedisServer::builder().user_with_rules("app", PASSWORD, "~* +@all -set")),
    ]
}

#[tokio::test]
async fn errors_tell_neither_key_nor_password() {
    for (what, server) in strange() {
        let server = server.start();
        let error = match on(&server).on_error(OnError::Raise).connect().await {
            Ok(limiter) => limiter.check(&secret_key(), &limit("5/10s")).await.expect_err(what),
            Err(error) => error,
        };
        assert!(!texts(&error).contains(SECRET), "{what}: {}", texts(&error));
    }
}

#[tokio::test]
async fn debug_forms_tell_neither_key_nor_password() {
    let server = RedisServer::builder().password(PASSWORD).start();
    assert!(server.url().contains(PASSWORD));
    let builder = on(&server);
    assert!(!format!("{builder:?}").contains(SECRET), "{builder:?}");
    let limiter = builder.connect().await.expect("the server is there");
    let decision = limiter.check(&secret_key(), &limit("5/10s")).await;
    let shown = format!("{limiter:?} {:?} {decision:?}", secret_key());
    assert!(!shown.contains(SECRET), "{shown}");
}

/// A server, or something in front of it, that repeats the command: to one call, or to one entry of a group.
#[tokio::test]
async fn what_a_server_repeats_goes_no_further() {
    for said in [
        "-ERR unknown command 'EVALSHA', with args beginning with: 'sha' '1' 'rl:{user:@part-s3cret}:sw:10000'\r\n",
        "-ERR cannot serve rl:{user:@part-s3cret}:sw:10000\r\n",
        "-rl:{user:@part-s3cret}:sw:10000 is not served here\r\n",
        "*2\r\n:1000000000000000\r\n-ERR cannot store 'part-s3cret'\r\n",
    ] {
        let fake = Fake::answering(Then::Say(said));
        let builder = Limiter::builder().url(&fake.url()).on_error(OnError::Raise);
        let limiter = builder.connect().await.expect("it greets");
        let error = limiter.check(&secret_key(), &limit("5/10s")).await.expect_err(said);
        assert!(!texts(&error).contains(SECRET), "{}", texts(&error));
    }
}

/// Whatever is given to a builder, used or not, right or wrong.
#[tokio::test]
async fn builders_and_what_is_wrong_with_them_tell_no_secret() {
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
        let mut shown = format!("{:?} {:#?}", builder(), builder());
        match builder().build() {
            Ok(limiter) => write!(shown, " {limiter:?}").expect("writing to a string"),
            Err(error) => shown.push_str(&texts(&error)),
        }
        if let Err(error) = builder().on_error(OnError::Raise).connect().await {
            shown.push_str(&texts(&error));
        }
        assert!(!shown.contains(SECRET), "{shown}");
    }
    let short = Limiter::builder().hash_keys(SECRET).build().expect_err("too short");
    assert!(!texts(&short).contains(SECRET), "{short:?}");
}

/// What a decision tells of itself is its rule's name; what is in the key, it does not.
#[tokio::test]
async fn decisions_tell_nothing_of_the_key() {
    #[rate_limited(key = "user:{value}", limit = "1/h", fallback = |denied| shown(&denied))]
    async fn annotated(value: &str) -> String {
        String::new()
    }

    fn shown(denied: &Denied) -> String {
        format!("{denied} {denied:?} {denied:#?} {}", denied.name())
    }

    let server = RedisServer::builder().password(PASSWORD).start();
    let builder = || on(&server).rule("user:{value}", Rule::new().deadline(Duration::from_secs(5)));
    let connected = [builder().connect().await, builder().hash_keys([7; 16]).connect().await];
    let limiters = connected.into_iter().map(|limiter| limiter.expect("the server is there"));
    for limiter in limiters.chain([Limiter::memory()]) {
        let (key, once) = (secret_key(), limit("1/1h"));
        let mut told = String::new();
        for _ in 0..2 {
            let decisions = [
                limiter.check(&key, &once).await,
                limiter.check_all(&[(&key, &once, 1), (&key, &once, 7)]).await,
                limiter.wait(&key, &once, Duration::from_millis(1)).await,
                limiter.peek(&key, &once).await,
            ];
            for decision in decisions.map(|decision| decision.expect("answers")) {
                write!(told, "{decision:?} {decision:#?}").expect("writing to a string");
                match decision.into_result() {
                    Ok(allowed) => write!(told, "{allowed:?} {}", allowed.name()).expect("writing to a string"),
                    Err(denied) => told.push_str(&shown(&denied)),
                }
            }
            told.push_str(&limiter.scope(annotated(PART)).await);
        }
        assert!(told.contains("user:{value}"), "{told}");
        assert!(!told.contains(SECRET), "{told}");
    }
}

/// One bad key among many that are asked about together: its error names no key, its own or another's.
#[tokio::test]
async fn errors_of_one_among_many_tell_no_key() {
    let server = RedisServer::start();
    let limiter = on(&server).prefix("rl").on_error(OnError::Raise).connect().await.expect("connects");
    let (once, keys): (_, Vec<_>) = (limit("5/1h"), (0..64).map(|number| secret_key().part(number)).collect());
    for name in ["%0", "7"] {
        // A count that is none, where one of them would be.
        assert_eq!(server.command(&["SET", &format!("rl:{{user:@{PART}@@{name}}}:sw:3600000"), SECRET]).text(), "OK");
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
fn logs_tell_neither_key_nor_password() {
    let printed = child::run("failures::secrets::logs_of_an_outage", &[("", ""); 0]);
    assert!(printed.contains("the rate limiter's store is away"), "{printed}");
    assert!(printed.contains("the rate limiter's store is back"), "{printed}");
    assert!(!printed.contains(SECRET), "{printed}");
}

#[tokio::test]
#[ignore = "needs a process of its own, since a process has one subscriber for all threads"]
async fn logs_of_an_outage() {
    if !child::is_one() {
        return;
    }
    tracing::subscriber::set_global_default(Printed).expect("the first");
    let mut kept = Vec::new();
    for (_, server) in strange() {
        let mut server = server.start();
        let limiter = Limiter::builder().url(&server.url()).prefix(&unique("logs")).build().expect("a URL");
        let (key, limit) = (secret_key(), limit("5/10s"));
        assert!(limiter.check(&key, &limit).await.expect("the stand-in at least").is_allowed());
        server.restart();
        let told = || async { LINES.lock().expect("no panic").contains("away") };
        eventually("told of", told).await;
        assert!(limiter.check(&key, &limit).await.expect("the stand-in at least").is_allowed());
        kept.push((server, limiter));
    }
    let told = || async { LINES.lock().expect("no panic").contains("back") };
    eventually("told of", told).await;
    println!("{}", LINES.lock().expect("no panic"));
}

static LINES: Mutex<String> = Mutex::new(String::new());

/// Keeps every event of every level, of the client and its runtime too.
struct Printed;

impl Subscriber for Printed {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Line);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line;

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        writeln!(LINES.lock().expect("no panic"), "{field} = {value:?}").expect("writing to a string");
    }
}
