//! Tests of promise 6: for any reply of Redis, and for none, each call completes by its deadline.

use std::time::{Duration, Instant};

use rate_limited::ErrorKind::{
    self, Loading, NotServing, OutOfMemory, Protocol, ReadOnly, Refused, Timeout, Unavailable,
};
use rate_limited::{Limiter, OnError, Source};
use tokio::task::JoinSet;

use crate::deadlines::{DEADLINE, MAX_LATENESS, eventually};
use crate::fake_server::ScriptReply::{Bytes, BytesThenClose, Never};
use crate::fake_server::{FakeServer, ScriptReply};
use crate::support::{LONG_DEADLINE, key, limit};

mod server_text;
mod log_lines;
mod secrets;
mod real_servers;

/// Replies of the server to a script call, with the kind of error that the caller gets.
const REPLIES: &[(ScriptReply, ErrorKind)] = &[
    (Bytes("-LOADING Redis is loading the dataset in memory\r\n"), Loading),
    (Bytes("-BUSY Redis is busy running a script.\r\n"), Loading),
    (Bytes("-READONLY You can't write against a read only replica.\r\n"), ReadOnly),
    (Bytes("-OOM command not allowed when used memory > 'maxmemory'.\r\n"), OutOfMemory),
    (Bytes("-NOAUTH Authentication required.\r\n"), Refused),
    (Bytes("-NOPERM this user has no permissions to run the 'evalsha' command\r\n"), Refused),
    (Bytes("-WRONGPASS invalid username-password pair or user is disabled.\r\n"), Refused),
    (Bytes("-MASTERDOWN Link with MASTER is down\r\n"), ReadOnly),
    (Bytes("-CLUSTERDOWN The cluster is down\r\n"), NotServing),
    (Bytes("-TRYAGAIN Multiple keys request during rehashing of slot\r\n"), NotServing),
    (Bytes("-MISCONF Errors writing to the AOF file\r\n"), NotServing),
    (Bytes("-NOREPLICAS Not enough good replicas to write.\r\n"), NotServing),
    (Bytes("-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"), Protocol),
    (Bytes("-ERR Error running script\r\n"), Protocol),
    (Bytes("-SOMETHINGNEW\r\n"), Protocol),
    (Bytes("-\r\n"), Protocol),
    (Bytes("!9\r\nERR large\r\n"), Protocol),
    (Bytes("+OK\r\n"), Protocol),
    (Bytes("$-1\r\n"), Protocol),
    (Bytes("_\r\n"), Protocol),
    (Bytes(":1\r\n"), Protocol),
    (Bytes("$5\r\nhello\r\n"), Protocol),
    (Bytes("*0\r\n"), Protocol),
    (Bytes("*1\r\n:1\r\n"), Protocol),
    (Bytes("*2\r\n:1\r\n:0\r\n"), Protocol),
    (Bytes("*2\r\n:1\r\n$0\r\n\r\n"), Protocol),
    (Bytes("*2\r\n:1\r\n$23\r\n\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\r\n"), Protocol),
    (Bytes("*2\r\n:1\r\n$25\r\n\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\r\n"), Protocol),
    (Bytes("*2\r\n:1\r\n$24\r\n\0\0\0\x01\x7f\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\r\n"), Protocol),
    (Bytes("*2\r\n:1\r\n$24\r\n\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\x7f\0\0\0\0\0\0\r\n"), Protocol),
    (Bytes("*2\r\n:-1\r\n$24\r\n\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\r\n"), Protocol),
    (Bytes("*2\r\n+1\r\n$24\r\n\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\r\n"), Protocol),
    (Bytes("*2\r\n,1.5\r\n$24\r\n\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\r\n"), Protocol),
    (Bytes("*2\r\n:1\r\n+\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\r\n"), Protocol),
    (Bytes("*3\r\n:1\r\n$24\r\n\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\r\n:0\r\n"), Protocol),
    (Bytes("*4\r\n:1\r\n$24\r\n\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\r\n:1\r\n-ERR no\r\n"), Protocol),
    (Bytes("*4\r\n:1\r\n$24\r\n\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\r\n:-1\r\n-ERR no\r\n"), Protocol),
    (Bytes("*4\r\n:1\r\n$24\r\n\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\r\n:0\r\n:0\r\n"), Protocol),
    (Bytes("HTTP/1.1 400 Bad Request\r\n\r\n"), Protocol),
    (Bytes("*9223372036854775807\r\n:1\r\n"), Protocol),
    (Bytes("*99999999999\r\n:1\r\n"), Protocol),
    (Bytes("~9223372036854775807\r\n:1\r\n"), Protocol),
    (Bytes("%4611686018427387904\r\n:1\r\n"), Protocol),
    (Bytes("|1\r\n:1\r\n:1\r\n:1\r\n"), Protocol),
    (Bytes("|-1\r\n:1\r\n"), Protocol),
    (Bytes("|9223372036854775807\r\n:1\r\n"), Protocol),
    (Bytes(">0\r\n"), Timeout),
    (Bytes(">1\r\n:1\r\n"), Protocol),
    (Bytes(">2\r\n+message\r\n:1\r\n"), Timeout),
    (Bytes("=3\r\nabc\r\n"), Protocol),
    (Bytes("$-5\r\n"), Protocol),
    (Bytes("=-5\r\n"), Protocol),
    (Bytes("\0\0\0\0"), Protocol),
    (BytesThenClose(""), Unavailable),
    (BytesThenClose("*5\r\n:1\r\n:4"), Unavailable),
    (Bytes("*5\r\n:1\r\n:4"), Timeout),
    (Bytes("$1048576\r\nhello"), Protocol),
    (Bytes("$1000000\r\nhello"), Timeout),
    (Bytes("%-1\r\n"), Protocol),
    (Bytes("$9223372036854775807\r\nhello\r\n"), Protocol),
    (Never, Timeout),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_reply_maps_to_its_error_kind_by_the_deadline() {
    let mut rows = JoinSet::new();
    for (reply, expected) in REPLIES {
        rows.spawn(async move {
            let server = FakeServer::with_script_reply(*reply);
            // Only a missing reply takes until the deadline.
            let deadline = if *expected == Timeout { DEADLINE } else { LONG_DEADLINE };
            let limiter = connect_with_raise(&server.url(), deadline).await;
            let started = Instant::now();
            let error = limiter.check(&key("a"), &limit("5/10s")).await.expect_err("a failure");
            let took = started.elapsed();
            assert_eq!(error.kind(), *expected, "{reply:?}: {error:?}");
            assert!(took < deadline + MAX_LATENESS, "{reply:?} took {took:?}");
            assert!(server.calls() <= 1, "{reply:?} was sent again");
            server.recover();
            eventually("served again", || async {
                let decision = limiter.check(&key("a"), &limit("5/10s")).await;
                decision.is_ok_and(|decision| decision.is_allowed())
            })
            .await;
        });
    }
    let mut failed_rows = 0;
    while let Some(row) = rows.join_next().await {
        failed_rows += u32::from(row.is_err());
    }
    assert_eq!(failed_rows, 0, "rows of the table failed, as printed above");
}

#[tokio::test]
async fn error_of_a_timeout_states_whether_the_call_was_sent() {
    let (silent, unfinished) = (FakeServer::with_script_reply(Never), FakeServer::with_hello_reply(""));
    for (server, text) in [
        (silent, "no answer from Redis within 100ms"),
        (unfinished, "not sent to Redis in time for a reply within 100ms: "),
    ] {
        let builder = Limiter::builder().presence(false).url(server.url()).deadline(DEADLINE).on_error(OnError::Raise);
        let limiter = builder.build().expect("a valid URL");
        let error = limiter.check(&key("a"), &limit("5/10s")).await.expect_err("a failure");
        assert_eq!(error.kind(), Timeout);
        assert!(error.to_string().starts_with(text), "{error}");
    }
}

/// A call that the server may have applied is not sent again.
#[tokio::test]
async fn silent_server_gets_each_call_once() {
    let server = FakeServer::with_script_reply(Never);
    let limiter = connect_with_raise(&server.url(), DEADLINE).await;
    let mut sent = 0;
    for _ in 0..3 {
        // Without a connection a call is not sent at all.
        eventually("sent", async || {
            let before = server.calls();
            let error = limiter.check(&key("a"), &limit("5/10s")).await.expect_err("a failure");
            assert!(server.calls() <= before + 1, "sent twice");
            error.kind() == Timeout
        })
        .await;
        eventually("received", async || server.calls() > sent).await;
        sent = server.calls();
    }
}

/// Each of these failures becomes a decision with the default policy.
#[tokio::test]
async fn default_policy_turns_failures_into_standby_decisions() {
    for reply in [Bytes("-OOM no\r\n"), Bytes("-WRONGTYPE no\r\n"), BytesThenClose(""), Never] {
        let server = FakeServer::with_script_reply(reply);
        let limiter = server.limiter().connect().await.expect("HELLO succeeds");
        let decision = limiter.check(&key("a"), &limit("5/10s")).await.expect("a decision");
        let allowed = decision.into_result().expect("the standby limiter has five permits");
        assert_eq!((allowed.source(), allowed.remaining()), (Source::Standby, 4), "{reply:?}");
    }
}

async fn connect_with_raise(url: &str, deadline: Duration) -> Limiter {
    let builder = Limiter::builder().presence(false).url(url).deadline(deadline).on_error(OnError::Raise);
    builder.connect().await.expect("the server is there")
}
