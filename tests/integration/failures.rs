//! Promise 6: whatever Redis says, or does not say, each call has its answer by its deadline.

use std::time::{Duration, Instant};

use rate_limited::ErrorKind::{
    self, Loading, NotServing, OutOfMemory, Protocol, ReadOnly, Refused, Timeout, Unavailable,
};
use rate_limited::{Limiter, OnError, Source};
use tokio::task::JoinSet;

use crate::deadlines::{DEADLINE, SLACK, eventually};
use crate::fake::{Fake, Then};
use crate::support::{AMPLE, key, limit};

mod foreign_text;
mod notices;
mod secrets;
mod servers;

/// What the server says to a script call, and what the caller gets.
const REPLIES: &[(Then, ErrorKind)] = &[
    (Then::Say("-LOADING Redis is loading the dataset in memory\r\n"), Loading),
    (Then::Say("-BUSY Redis is busy running a script.\r\n"), Loading),
    (Then::Say("-READONLY You can't write against a read only replica.\r\n"), ReadOnly),
    (Then::Say("-OOM command not allowed when used memory > 'maxmemory'.\r\n"), OutOfMemory),
    (Then::Say("-NOAUTH Authentication required.\r\n"), Refused),
    (Then::Say("-NOPERM this user has no permissions to run the 'evalsha' command\r\n"), Refused),
    (Then::Say("-WRONGPASS invalid username-password pair or user is disabled.\r\n"), Refused),
    (Then::Say("-MASTERDOWN Link with MASTER is down\r\n"), ReadOnly),
    (Then::Say("-CLUSTERDOWN The cluster is down\r\n"), NotServing),
    (Then::Say("-TRYAGAIN Multiple keys request during rehashing of slot\r\n"), NotServing),
    (Then::Say("-MISCONF Errors writing to the AOF file\r\n"), NotServing),
    (Then::Say("-NOREPLICAS Not enough good replicas to write.\r\n"), NotServing),
    (Then::Say("-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"), Protocol),
    (Then::Say("-ERR Error running script\r\n"), Protocol),
    (Then::Say("-SOMETHINGNEW\r\n"), Protocol),
    (Then::Say("-\r\n"), Protocol),
    (Then::Say("!9\r\nERR large\r\n"), Protocol),
    (Then::Say("+OK\r\n"), Protocol),
    (Then::Say("$-1\r\n"), Protocol),
    (Then::Say("_\r\n"), Protocol),
    (Then::Say(":1\r\n"), Protocol),
    (Then::Say("$5\r\nhello\r\n"), Protocol),
    (Then::Say("*0\r\n"), Protocol),
    (Then::Say("*1\r\n:1\r\n"), Protocol),
    (Then::Say("*2\r\n:1\r\n:0\r\n"), Protocol),
    (Then::Say("*2\r\n:1\r\n$0\r\n\r\n"), Protocol),
    (Then::Say("*2\r\n:1\r\n$23\r\n\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\r\n"), Protocol),
    (Then::Say("*2\r\n:1\r\n$25\r\n\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\r\n"), Protocol),
    (Then::Say("*2\r\n:-1\r\n$24\r\n\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\r\n"), Protocol),
    (Then::Say("*2\r\n+1\r\n$24\r\n\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\r\n"), Protocol),
    (Then::Say("*2\r\n,1.5\r\n$24\r\n\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\r\n"), Protocol),
    (Then::Say("*2\r\n:1\r\n+\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\r\n"), Protocol),
    (Then::Say("*3\r\n:1\r\n$24\r\n\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\r\n:0\r\n"), Protocol),
    (Then::Say("*4\r\n:1\r\n$24\r\n\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\r\n:1\r\n-ERR no\r\n"), Protocol),
    (Then::Say("*4\r\n:1\r\n$24\r\n\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\r\n:-1\r\n-ERR no\r\n"), Protocol),
    (Then::Say("*4\r\n:1\r\n$24\r\n\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\r\n:0\r\n:0\r\n"), Protocol),
    (Then::Say("HTTP/1.1 400 Bad Request\r\n\r\n"), Protocol),
    (Then::Say("*9223372036854775807\r\n:1\r\n"), Timeout),
    (Then::Say("*99999999999\r\n:1\r\n"), Timeout),
    (Then::Say("~9223372036854775807\r\n:1\r\n"), Timeout),
    (Then::Say("%4611686018427387904\r\n:1\r\n"), Timeout),
    (Then::Say("|1\r\n:1\r\n:1\r\n:1\r\n"), Protocol),
    (Then::Say("|-1\r\n:1\r\n"), Protocol),
    (Then::Say("|9223372036854775807\r\n:1\r\n"), Timeout),
    (Then::Say(">0\r\n"), Timeout),
    (Then::Say(">1\r\n:1\r\n"), Protocol),
    (Then::Say(">2\r\n+message\r\n:1\r\n"), Timeout),
    (Then::Say("=3\r\nabc\r\n"), Protocol),
    (Then::Say("$-5\r\n"), Protocol),
    (Then::Say("=-5\r\n"), Timeout),
    (Then::Say("\0\0\0\0"), Protocol),
    (Then::SayAndClose(""), Unavailable),
    (Then::SayAndClose("*5\r\n:1\r\n:4"), Unavailable),
    (Then::Say("*5\r\n:1\r\n:4"), Timeout),
    (Then::Say("%-1\r\n"), Timeout),
    (Then::Say("$9223372036854775807\r\nhello\r\n"), Timeout),
    (Then::Nothing, Timeout),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_kind_of_failure_has_its_name_and_is_over_by_the_deadline() {
    let mut rows = JoinSet::new();
    for (then, expected) in REPLIES {
        rows.spawn(async move {
            let server = Fake::answering(*then);
            // Only silence has to be waited out.
            let deadline = if *expected == Timeout { DEADLINE } else { AMPLE };
            let limiter = raising(&server.url(), deadline).await;
            let asked = Instant::now();
            let error = limiter.check(&key("a"), &limit("5/10s")).await.expect_err("a failure");
            let took = asked.elapsed();
            assert_eq!(error.kind(), *expected, "{then:?}: {error:?}");
            assert!(took < deadline + SLACK, "{then:?} took {took:?}");
            assert!(server.calls() <= 1, "{then:?} was asked again");
            server.recover();
            eventually("served again", || async {
                let decision = limiter.check(&key("a"), &limit("5/10s")).await;
                decision.is_ok_and(|decision| decision.is_allowed())
            })
            .await;
        });
    }
    let mut wrong = 0;
    while let Some(row) = rows.join_next().await {
        wrong += u32::from(row.is_err());
    }
    assert_eq!(wrong, 0, "rows of the table; each has said what is wrong");
}

/// What may have been applied is not sent a second time.
#[tokio::test]
async fn a_server_that_falls_silent_is_asked_once_a_call() {
    let server = Fake::answering(Then::Nothing);
    let limiter = raising(&server.url(), DEADLINE).await;
    let mut sent = 0;
    for _ in 0..3 {
        // While there is no connection a call is not sent at all.
        eventually("asked", async || {
            let before = server.calls();
            let error = limiter.check(&key("a"), &limit("5/10s")).await.expect_err("a failure");
            assert!(server.calls() <= before + 1, "asked again");
            error.kind() == Timeout
        })
        .await;
        eventually("heard of", async || server.calls() > sent).await;
        sent = server.calls();
    }
}

/// A policy turns each of these failures into a decision.
#[tokio::test]
async fn a_failure_is_a_decision_unless_it_is_asked_for() {
    for then in [Then::Say("-OOM no\r\n"), Then::Say("-WRONGTYPE no\r\n"), Then::SayAndClose(""), Then::Nothing] {
        let server = Fake::answering(then);
        let limiter = Limiter::connect(&server.url()).await.expect("it greets");
        let decision = limiter.check(&key("a"), &limit("5/10s")).await.expect("a decision");
        let allowed = decision.into_result().expect("the stand-in has five");
        assert_eq!((allowed.source(), allowed.remaining()), (Source::Standby, 4), "{then:?}");
    }
}

async fn raising(url: &str, deadline: Duration) -> Limiter {
    let builder = Limiter::builder().url(url).deadline(deadline).on_error(OnError::Raise);
    builder.connect().await.expect("the server is there")
}
