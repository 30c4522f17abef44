use tokio::net::UnixStream;
use tokio::task::LocalSet;
use tokio::time::sleep;

use super::*;
use crate::store::redis::connection::managed::Attempt;
use crate::store::redis::pipelined::{PipelinedConnection, Stream};

const DEADLINE: Duration = Duration::from_millis(100);
const TIME_REPLY: &str = "*2\r\n$10\r\n1000000000\r\n$1\r\n0\r\n";

/// A reply, and the time that the server takes to send it.
type Delayed = (Duration, &'static str);

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Replies to one command after another, with `call_reply` to calls.
async fn serve(stream: UnixStream, call_reply: Delayed, time_reply: Delayed) {
    let mut buffer = [0; 4096];
    while stream.readable().await.is_ok() {
        let len = match stream.try_read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Ok(0) | Err(_) => return,
            Ok(len) => len,
        };
        for command in String::from_utf8_lossy(&buffer[..len]).split('*').skip(1) {
            let (delay, reply) = match command {
                command if command.contains("EVALSHA") => call_reply,
                command if command.contains("TIME") => time_reply,
                _ => (Duration::ZERO, "+OK\r\n"),
            };
            sleep(delay).await;
            // The client may be gone.
            let _ = stream.try_write(reply.as_bytes());
        }
    }
}

/// Makes one call that times out. Returns the time until the connection is closed, with the reason; `None` if it stays
/// open.
async fn time_until_closed(call_reply: Delayed, time_reply: Delayed) -> Option<(Duration, Error)> {
    let calls = async {
        let (client_end, server_end) = UnixStream::pair().expect("two sockets");
        tokio::spawn(serve(server_end, call_reply, time_reply));
        let lost = Arc::default();
        let client = PipelinedConnection::new(Stream::Unix(client_end), Arc::clone(&lost));
        let connection = ServerConnection::new(DataConnection::Own(client), lost, DEADLINE, None);
        let attempt = Attempt::default();
        let started = Instant::now();
        attempt.sent_on(&connection, started);
        assert!(timeout(DEADLINE, connection.send(&redis::cmd("EVALSHA"))).await.is_err(), "the reply is late");
        attempt.report_timeout();
        let cause = timeout(millis(1_000), connection.lost()).await.ok()?;
        Some((started.elapsed(), cause.expect("this process closed it")))
    };
    LocalSet::new().run_until(calls).await
}

/// The future of the call is gone when its reply arrives, as after a stop of the process.
#[tokio::test(start_paused = true)]
async fn late_reply_and_a_probe_in_time_keep_the_connection() {
    for delay in [101, 110, 120] {
        assert!(time_until_closed((millis(delay), "+OK\r\n"), (millis(1), TIME_REPLY)).await.is_none(), "{delay} ms");
    }
}

/// The timer and the socket are due at once, as after a stop of the process.
#[tokio::test(start_paused = true)]
async fn reply_that_is_ready_at_the_end_of_the_probe_counts() {
    assert!(time_until_closed((DEADLINE, "+OK\r\n"), (READ_TIME, TIME_REPLY)).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn silent_server_loses_its_connection_soon_after_the_deadline() {
    let (after, cause) = time_until_closed((millis(10_000), ""), (Duration::ZERO, TIME_REPLY)).await.expect("closed");
    assert!(after <= DEADLINE + READ_TIME + millis(2), "{after:?}");
    assert_eq!(cause.to_string(), "Redis has stopped answering");
}

/// Replies that are no longer in the order of the commands would reach other calls.
#[tokio::test(start_paused = true)]
async fn reply_of_another_command_to_the_probe_closes_the_connection() {
    let (after, cause) = time_until_closed((millis(101), ""), (millis(1), "+OK\r\n+OK\r\n")).await.expect("closed");
    assert!(after <= DEADLINE + READ_TIME, "{after:?}");
    assert_eq!(cause.kind(), ErrorKind::Protocol);
}
