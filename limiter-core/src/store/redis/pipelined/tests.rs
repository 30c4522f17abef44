use std::future::poll_fn;
use std::io::Read;
use std::iter::repeat_n;
use std::net::Shutdown;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use redis::cmd;
use tokio::net::UnixStream;
use tokio::task::{LocalSet, yield_now};
use tokio::time::timeout;

use super::*;
use crate::ErrorKind;
use crate::run::join_all;

mod direct_writes;
mod peer;
#[cfg(feature = "tls")]
mod tls;

use peer::{Peer, PeerKind};

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(60);

/// Runs a test, which fails if it hangs.
async fn run(test: impl Future<Output = ()>) {
    LocalSet::new().run_until(timeout(LONG, test)).await.expect("no hang");
}

/// Runs a test on a connection without TLS, and on one with it.
async fn run_on_each(test: impl AsyncFn(PipelinedConnection, Peer)) {
    for kind in PeerKind::ALL {
        run(async {
            let (connection, peer) = kind.connect().await;
            test(connection, peer).await;
        })
        .await;
    }
}

/// Starts a command. It is sent at once.
fn start(connection: &PipelinedConnection, command: &str) -> tokio::task::JoinHandle<RedisResult<Value>> {
    let (connection, command) = (connection.clone(), cmd(command));
    spawn_local(async move { connection.send(&command, ReplyBound::Script).await })
}

/// Lets the tasks run that are ready.
async fn settle() {
    for _ in 0..20 {
        yield_now().await;
    }
}

/// Polls a future once, and returns its output if it is ready.
async fn poll_once<T>(mut future: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    poll_fn(|context| {
        Poll::Ready(match future.as_mut().poll(context) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}

async fn lost(connection: &PipelinedConnection) -> Option<Error> {
    connection.0.shared.lost.notified().await;
    connection.take_cause()
}

fn error_of(reply: RedisResult<Value>) -> Error {
    CommandError::from(reply.expect_err("an error")).into()
}

const REPLIES: &str = "+OK\r\n*2\r\n:1\r\n$4\r\na\r\nb\r\n>2\r\n+message\r\n+a\r\n-MOVED 1 a:1\r\n";

async fn expect_replies(connection: &PipelinedConnection, written: impl Future<Output = ()>) {
    let replies = ["A", "B", "C"].map(|command| start(connection, command));
    settle().await;
    written.await;
    let [first, second, third] = replies;
    assert_eq!(first.await.expect("no panic"), Ok(Value::Okay));
    let array = Value::Array(vec![Value::Int(1), Value::BulkString(b"a\r\nb".to_vec())]);
    assert_eq!(second.await.expect("no panic"), Ok(array));
    let reply = third.await.expect("no panic").and_then(Value::extract_error);
    assert_eq!(reply.expect_err("an error").redirect_node(), Some(("a:1", 1)));
}

#[tokio::test]
async fn replies_arrive_in_any_pieces() {
    run_on_each(async |connection, mut peer| {
        expect_replies(&connection, async {
            for byte in REPLIES.as_bytes() {
                peer.write(&[*byte]).await;
                settle().await;
            }
        })
        .await;
        for split in 0..=REPLIES.len() {
            expect_replies(&connection, async {
                peer.write(&REPLIES.as_bytes()[..split]).await;
                settle().await;
                peer.write(&REPLIES.as_bytes()[split..]).await;
            })
            .await;
        }
    })
    .await;
}

#[tokio::test]
async fn unusable_reply_closes_the_connection() {
    let cases = [
        ("HTTP/1.1 400", "that its client cannot parse"),
        ("$1073741824\r\n", "longer reply"),
        ("*1073741824\r\n", "longer reply"),
        (":x\r\n", "cannot parse"),
        (">1\r\n:1\r\n", "cannot parse"),
        (
            "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n",
            "parse",
        ),
    ];
    for (bytes, expected) in cases {
        run_on_each(async |connection, mut peer| {
            let (first, second) = (start(&connection, "A"), start(&connection, "B"));
            settle().await;
            peer.write(bytes.as_bytes()).await;
            let error = error_of(first.await.expect("no panic"));
            assert!(error.kind() == ErrorKind::Protocol && error.to_string().contains(expected), "{bytes:?}: {error}");
            let second = second.await.expect("no panic").expect_err("an error");
            assert!(CommandError::from(second).is_connection_lost(), "{bytes:?}");
            assert_eq!(lost(&connection).await.expect("a reason").to_string(), error.to_string());
            assert!(start(&connection, "C").await.expect("no panic").expect_err("closed").is_connection_dropped());
            peer.expect_closed().await;
        })
        .await;
    }
}

#[tokio::test]
async fn bound_of_a_reply_is_that_of_its_command() {
    run_on_each(async |connection, mut peer| {
        let long = vec![b'a'; 2 * ReplyBound::Script.max_bytes()];
        let reply = [format!("${}\r\n", long.len()).as_bytes(), &long, b"\r\n"].concat();
        let second = connection.clone();
        let sent = spawn_local(async move { second.send(&cmd("A"), ReplyBound::Long).await });
        settle().await;
        peer.write(&reply).await;
        assert_eq!(sent.await.expect("no panic"), Ok(Value::BulkString(long)));
        let sent = start(&connection, "A");
        settle().await;
        peer.write(&reply[..20]).await;
        assert_eq!(error_of(sent.await.expect("no panic")).kind(), ErrorKind::Protocol);
    })
    .await;
}

#[tokio::test]
async fn reply_that_no_command_waits_for_closes_the_connection() {
    run_on_each(async |connection, mut peer| {
        peer.write(b">2\r\n+message\r\n+a\r\n").await;
        let sent = start(&connection, "A");
        settle().await;
        peer.write(b"+OK\r\n").await;
        assert_eq!(sent.await.expect("no panic"), Ok(Value::Okay), "a push is no reply");
        peer.write(b"+").await;
        let cause = lost(&connection).await.expect("a reason");
        assert!(cause.kind() == ErrorKind::Protocol && cause.to_string().contains("no command waits"), "{cause}");
        peer.expect_closed().await;
    })
    .await;
}

/// The replies to 1 000 commands, more bytes than the sockets take, come in the order of the commands.
#[tokio::test]
async fn many_commands_through_a_full_socket_keep_their_order() {
    run_on_each(async |connection, mut peer| {
        let payload = |index: usize| format!("{index} {}", "x".repeat(index % 1_500));
        let served = spawn_local(async move {
            let mut commands = Vec::new();
            while commands.len() < 1_000 {
                let command = peer.command(commands.len() % 700 + 1).await.expect("a command");
                peer.write(format!("${}\r\n{command}\r\n", command.len()).as_bytes()).await;
                commands.push(command);
            }
            commands
        });
        let replies = (0..1_000).map(|index| {
            let connection = connection.clone();
            async move {
                let mut command = cmd("A");
                command.arg(payload(index));
                connection.send(&command, ReplyBound::Script).await
            }
        });
        for (index, reply) in join_all(replies).await.into_iter().enumerate() {
            assert_eq!(reply, Ok(Value::BulkString(payload(index).into_bytes())));
        }
        let commands = served.await.expect("no panic");
        assert!((0..1_000).map(payload).eq(commands), "first come, first served");
    })
    .await;
}

/// Memory is bounded, and a command whose caller has given up takes no permits later.
#[tokio::test]
async fn commands_wait_for_the_socket_and_are_not_sent_after_their_callers() {
    run_on_each(async |connection, mut peer| {
        let send = |text: String| {
            let connection = connection.clone();
            spawn_local(async move { connection.send(cmd("A").arg(text), ReplyBound::Script).await })
        };
        let mut sent = Vec::new();
        while !connection.0.shared.is_full() {
            sent.push(send(format!("{} {}", sent.len(), "x".repeat(4_000))));
            settle().await;
        }
        let waiting = ["a", "b", "c"].map(|text| send(text.to_owned()));
        settle().await;
        assert!(connection.0.shared.output.borrow().unwritten() < MAX_BUFFERED_BYTES + 5_000);
        assert_eq!(connection.0.shared.waiting_senders.get(), 3);
        let [a, b, c] = waiting;
        b.abort();
        assert!(b.await.is_err());
        for index in 0..sent.len() {
            let command = peer.command(1 << 16).await.expect("a command");
            assert!(command.starts_with(&format!("{index} ")), "{command}");
        }
        for text in ["a", "c"] {
            assert_eq!(peer.command(1 << 16).await.as_deref(), Some(text));
        }
        peer.write("+OK\r\n".repeat(sent.len() + 2).as_bytes()).await;
        for reply in sent.into_iter().chain([a, c]) {
            assert_eq!(reply.await.expect("no panic"), Ok(Value::Okay));
        }
    })
    .await;
}

/// A sender that has its turn, and has not run yet, is not overtaken.
#[tokio::test]
async fn new_sender_is_behind_those_that_wait() {
    run_on_each(async |connection, mut peer| {
        let shared = &connection.0.shared;
        shared.output.borrow_mut().buffer().extend(repeat_n(0, MAX_BUFFERED_BYTES));
        let (a, b) = (cmd("A"), cmd("B"));
        let mut first = pin!(connection.send(&a, ReplyBound::Script));
        assert!(poll_once(first.as_mut()).await.is_none());
        shared.output.take();
        shared.has_room.notify_one();
        let mut second = pin!(connection.send(&b, ReplyBound::Script));
        for _ in 0..2 {
            assert!(poll_once(second.as_mut()).await.is_none());
            assert!(poll_once(first.as_mut()).await.is_none());
        }
        for command in ["A", "B"] {
            assert_eq!(peer.command(100).await.as_deref(), Some(command));
        }
    })
    .await;
}

/// Nothing notifies its sender after the end.
#[tokio::test]
async fn new_command_fails_at_once_while_senders_wait_on_an_ended_connection() {
    run_on_each(async |connection, _peer| {
        connection.0.shared.output.borrow_mut().buffer().extend(repeat_n(0, MAX_BUFFERED_BYTES));
        let (a, b) = (cmd("A"), cmd("B"));
        let mut first = pin!(connection.send(&a, ReplyBound::Script));
        assert!(poll_once(first.as_mut()).await.is_none());
        connection.close();
        let mut second = pin!(connection.send(&b, ReplyBound::Script));
        assert!(matches!(poll_once(second.as_mut()).await, Some(Err(_))));
        assert!(matches!(poll_once(first.as_mut()).await, Some(Err(_))));
    })
    .await;
}

/// The socket is never quick enough to take all commands.
#[tokio::test]
async fn written_commands_need_no_memory() {
    const CHUNK: usize = 64 << 10;
    const UNWRITTEN: usize = 16 * CHUNK;
    run(async {
        let (stream, peer) = UnixStream::pair().expect("two sockets");
        let mut peer = peer.into_std().expect("a socket");
        let (_reader, writer) = Transport::from(Stream::Unix(stream)).into_split();
        let mut output = Output::default();
        let mut buffer = vec![0; CHUNK];
        for _ in 0..40 {
            while peer.read(&mut buffer).is_ok() {}
            poll_fn(|context| writer.poll_ready(context)).await.expect("a socket");
            output.write_to(&writer).expect("a socket");
            while output.unwritten() < UNWRITTEN {
                output.buffer().extend(repeat_n(0, CHUNK));
            }
            assert!(output.len() <= 2 * (UNWRITTEN + CHUNK), "{}", output.len());
        }
    })
    .await;
}

#[tokio::test]
async fn reply_to_a_dropped_caller_reaches_no_other() {
    run_on_each(async |connection, mut peer| {
        let (first, second) = (start(&connection, "A"), start(&connection, "B"));
        settle().await;
        first.abort();
        assert!(first.await.is_err());
        peer.write(b":1\r\n:2\r\n").await;
        assert_eq!(second.await.expect("no panic"), Ok(Value::Int(2)));
    })
    .await;
}

#[tokio::test]
async fn several_commands_are_sent_together() {
    run_on_each(async |connection, mut peer| {
        peer.write(b">1\r\n+a\r\n").await;
        let second = connection.clone();
        let behind = spawn_local(async move { second.send_behind(&cmd("A"), &cmd("B"), ReplyBound::Script).await });
        let second = connection.clone();
        let all = spawn_local(async move { second.send_all(&[cmd("C"), cmd("D")]).await });
        settle().await;
        peer.write(b"-ERR a\r\n:2\r\n:3\r\n:4\r\n").await;
        assert_eq!(behind.await.expect("no panic"), Ok(Value::Int(2)));
        assert_eq!(all.await.expect("no panic"), Ok(vec![Value::Int(3), Value::Int(4)]));
    })
    .await;
}

#[tokio::test]
async fn connection_that_breaks_fails_all_commands_in_flight() {
    for (bytes, expected) in [("", "cannot be reached"), ("$4\r\nab", "in the middle of a reply")] {
        run_on_each(async |connection, mut peer| {
            let (first, second) = (start(&connection, "A"), start(&connection, "B"));
            for command in ["A", "B"] {
                assert_eq!(peer.command(100).await.as_deref(), Some(command));
            }
            peer.write(bytes.as_bytes()).await;
            drop(peer);
            let error = error_of(first.await.expect("no panic"));
            assert!(error.kind() == ErrorKind::Unavailable && error.to_string().contains(expected), "{error}");
            assert_eq!(error_of(second.await.expect("no panic")).kind(), ErrorKind::Unavailable);
            assert!(lost(&connection).await.is_none(), "the server has closed it");
            assert_eq!(error_of(start(&connection, "C").await.expect("no panic")).kind(), ErrorKind::Unavailable);
        })
        .await;
    }
}

/// The server reads no more, and has not closed its own direction.
#[tokio::test]
async fn failed_write_ends_the_connection() {
    run(async {
        let (stream, peer) = std::os::unix::net::UnixStream::pair().expect("two sockets");
        peer.shutdown(Shutdown::Read).expect("a socket");
        stream.set_nonblocking(true).expect("a socket");
        let stream = UnixStream::from_std(stream).expect("a socket");
        let connection = PipelinedConnection::new(Stream::Unix(stream), Arc::default());
        let error = error_of(connection.send(&cmd("A"), ReplyBound::Script).await);
        assert!(error.kind() == ErrorKind::Unavailable && error.to_string().contains("Broken pipe"), "{error}");
        assert!(lost(&connection).await.is_none());
    })
    .await;
}

/// A server with too many clients sends an error and closes the connection, before it has read a command.
#[tokio::test]
async fn error_before_the_end_is_the_reply() {
    run(async {
        let (stream, peer) = UnixStream::pair().expect("two sockets");
        let mut peer = Peer::plain(peer);
        peer.write(b"-ERR max number of clients reached\r\n").await;
        drop(peer);
        let connection = PipelinedConnection::new(Stream::Unix(stream), Arc::default());
        let reply = connection.send(&cmd("A"), ReplyBound::Script).await.and_then(Value::extract_error);
        let error = error_of(reply);
        assert!(error.to_string().contains("max number of clients"), "{error}");
        assert!(lost(&connection).await.is_none());
    })
    .await;
}

#[tokio::test]
async fn closing_ends_commands_in_flight_and_the_socket() {
    run_on_each(async |connection, mut peer| {
        let sent = start(&connection, "A");
        settle().await;
        connection.close();
        let error = error_of(sent.await.expect("no panic"));
        assert!(error.kind() == ErrorKind::Unavailable && error.to_string().contains("aborted"), "{error}");
        assert_eq!(peer.command(100).await.as_deref(), Some("A"));
        peer.expect_closed().await;
        assert!(connection.send(&cmd("A"), ReplyBound::Script).await.is_err());
    })
    .await;
}

#[tokio::test]
async fn senders_that_wait_for_the_socket_end_with_the_connection() {
    run_on_each(async |connection, peer| {
        let text = "x".repeat(1 << 20);
        let sent = [(); 3].map(|()| {
            let (connection, text) = (connection.clone(), text.clone());
            spawn_local(async move { connection.send(cmd("A").arg(text), ReplyBound::Script).await })
        });
        settle().await;
        assert_eq!(connection.0.shared.waiting_senders.get(), 2);
        drop(peer);
        for reply in sent {
            assert_eq!(error_of(reply.await.expect("no panic")).kind(), ErrorKind::Unavailable);
        }
    })
    .await;
}

#[tokio::test]
async fn socket_is_closed_with_the_last_clone() {
    run_on_each(async |connection, mut peer| {
        let clone = connection.clone();
        drop(connection);
        let sent = start(&clone, "A");
        settle().await;
        peer.write(b"+OK\r\n").await;
        assert_eq!(sent.await.expect("no panic"), Ok(Value::Okay));
        drop(clone);
        peer.expect_closed().await;
    })
    .await;
}
