use std::io::Write;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::thread;

use super::*;
use crate::run::block_on;
use crate::store::redis::pipelined::direct_writer::MAX_READ_BYTES;

async fn lent() -> (PipelinedConnection, Arc<DirectWriter>, Peer) {
    let (connection, peer) = PeerKind::Plain.connect().await;
    let writer = Arc::default();
    lend(&connection, &writer);
    (connection, writer, peer)
}

fn lend(connection: &PipelinedConnection, writer: &Arc<DirectWriter>) {
    connection.write_loan(Arc::clone(writer)).lend(Arc::from(["sha".into()]));
}

fn take_back(connection: &PipelinedConnection) {
    connection.write_loan(Arc::default()).take_back();
}

/// Writes a command on a thread of its own, without a runtime.
fn write(writer: &Arc<DirectWriter>, command: &str) -> Option<DirectReply> {
    let (writer, command) = (Arc::clone(writer), cmd(command));
    thread::spawn(move || writer.write(|_| Some(command))).join().expect("no panic")
}

async fn reply_to(call: Option<DirectReply>) -> RedisResult<Value> {
    call.expect("an idle connection").received().await
}

/// A lent connection whose other end sends at once, without a turn of the runtime. So the reader's task, on the test's
/// own thread, has not read before the caller does.
async fn lent_with_sender() -> (PipelinedConnection, Arc<DirectWriter>, StdUnixStream) {
    let (stream, peer) = UnixStream::pair().expect("two sockets");
    stream.writable().await.expect("a socket");
    let connection = PipelinedConnection::new(Stream::Unix(stream), Arc::default());
    settle().await;
    let writer = Arc::default();
    lend(&connection, &writer);
    (connection, writer, peer.into_std().expect("a socket"))
}

/// Polls for a reply as its caller does.
fn poll(writer: &DirectWriter, reply: &DirectReply) -> DirectPoll<Value> {
    writer.poll(reply, Some)
}

const LEFT_TO_WORKER: DirectPoll<Value> = DirectPoll::LeftToWorker;

#[tokio::test]
async fn caller_reads_its_reply_and_the_connection_stays_lent() {
    run(async {
        let (connection, writer, mut peer) = lent_with_sender().await;
        for index in 0..100 {
            let reply = write(&writer, "A").expect("an idle connection");
            assert!(reply.is_polled() && poll(&writer, &reply) == DirectPoll::Pending);
            assert!(write(&writer, "B").is_none(), "one call at a time");
            peer.write_all(format!(":{index}\r\n").as_bytes()).expect("a socket");
            assert_eq!(poll(&writer, &reply), DirectPoll::Ready(Value::Int(index)));
            assert_eq!(poll(&writer, &reply), LEFT_TO_WORKER, "it is read once");
            // The worker's thread wakes up, and finds nothing to read.
            settle().await;
        }
        let sent = start(&connection, "C");
        settle().await;
        assert!(write(&writer, "D").is_none(), "the worker has taken it back");
        peer.write_all(b"+OK\r\n").expect("a socket");
        assert_eq!(sent.await.expect("no panic"), Ok(Value::Okay));
    })
    .await;
}

/// The caller reads some of the bytes, and the worker gets all of them in their order.
#[tokio::test]
async fn reply_in_pieces_is_left_to_the_worker() {
    const REPLY: &[u8] = b"*2\r\n:1\r\n$4\r\na\r\nb\r\n";
    let value = Value::Array(vec![Value::Int(1), Value::BulkString(b"a\r\nb".to_vec())]);
    for split in 1..REPLY.len() {
        for reader_is_first in [false, true] {
            run(async {
                let (connection, writer, mut peer) = lent_with_sender().await;
                let reply = write(&writer, "A").expect("an idle connection");
                peer.write_all(&REPLY[..split]).expect("a socket");
                if reader_is_first {
                    settle().await;
                }
                assert_eq!(poll(&writer, &reply), LEFT_TO_WORKER);
                peer.write_all(&REPLY[split..]).expect("a socket");
                assert_eq!(poll(&writer, &reply), LEFT_TO_WORKER);
                take_back(&connection);
                assert_eq!(reply.received().await, Ok(value.clone()));
                let sent = start(&connection, "B");
                settle().await;
                peer.write_all(b"+OK\r\n").expect("a socket");
                assert_eq!(sent.await.expect("no panic"), Ok(Value::Okay));
            })
            .await;
        }
    }
}

/// The worker takes the connection back for a command of its own, while the caller has read half of a reply.
#[tokio::test]
async fn piece_that_a_caller_has_read_comes_first() {
    run(async {
        let (connection, writer, mut peer) = lent_with_sender().await;
        let reply = write(&writer, "A").expect("an idle connection");
        peer.write_all(b"$3\r\nab").expect("a socket");
        assert_eq!(poll(&writer, &reply), LEFT_TO_WORKER);
        let sent = start(&connection, "B");
        settle().await;
        peer.write_all(b"c\r\n:2\r\n").expect("a socket");
        assert_eq!(reply.received().await, Ok(Value::BulkString(b"abc".to_vec())));
        assert_eq!(sent.await.expect("no panic"), Ok(Value::Int(2)));
    })
    .await;
}

#[tokio::test]
async fn bytes_behind_the_reply_of_a_caller_close_the_connection() {
    run(async {
        let (connection, writer, mut peer) = lent_with_sender().await;
        let reply = write(&writer, "A").expect("an idle connection");
        peer.write_all(b":1\r\n:2\r\n").expect("a socket");
        assert_eq!(poll(&writer, &reply), LEFT_TO_WORKER);
        take_back(&connection);
        assert_eq!(reply.received().await, Ok(Value::Int(1)));
        let cause = lost(&connection).await.expect("a reason");
        assert!(cause.to_string().contains("no command waits"), "{cause}");
    })
    .await;
}

#[tokio::test]
async fn garbled_reply_to_a_caller_closes_the_connection() {
    for bytes in ["HTTP/1.1 400", ":x\r\n", "$1073741824\r\n", ">1\r\n:1\r\n"] {
        run(async {
            let (connection, writer, mut peer) = lent_with_sender().await;
            let reply = write(&writer, "A").expect("an idle connection");
            peer.write_all(bytes.as_bytes()).expect("a socket");
            assert_eq!(poll(&writer, &reply), LEFT_TO_WORKER, "{bytes:?}");
            take_back(&connection);
            assert_eq!(error_of(reply.received().await).kind(), ErrorKind::Protocol, "{bytes:?}");
            assert_eq!(lost(&connection).await.expect("a reason").kind(), ErrorKind::Protocol, "{bytes:?}");
        })
        .await;
    }
}

#[tokio::test]
async fn push_before_the_reply_of_a_caller_is_skipped() {
    run(async {
        let (connection, writer, mut peer) = lent_with_sender().await;
        let reply = write(&writer, "A").expect("an idle connection");
        peer.write_all(b">2\r\n+message\r\n+a\r\n").expect("a socket");
        assert_eq!(poll(&writer, &reply), LEFT_TO_WORKER);
        peer.write_all(b":1\r\n").expect("a socket");
        take_back(&connection);
        assert_eq!(reply.received().await, Ok(Value::Int(1)));
    })
    .await;
}

/// The worker has to know of an error before another call is sent: the server may have lost its counters.
#[tokio::test]
async fn value_that_a_caller_cannot_use_is_left_to_the_worker() {
    for text in ["NOSCRIPT none".to_owned(), format!("MISCONF {}", "x".repeat(MAX_READ_BYTES))] {
        run(async {
            let (connection, writer, mut peer) = lent_with_sender().await;
            let reply = write(&writer, "A").expect("an idle connection");
            peer.write_all(format!("-{text}\r\n").as_bytes()).expect("a socket");
            assert_eq!(writer.poll(&reply, |_| None::<()>), DirectPoll::LeftToWorker);
            assert!(write(&writer, "B").is_none());
            take_back(&connection);
            let value = reply.received().await.expect("a reply");
            assert!(matches!(value, Value::ServerError(_)), "{value:?}");
        })
        .await;
    }
}

/// The connection ends before the worker has taken it back with the bytes that a caller has read.
#[tokio::test]
async fn end_behind_bytes_that_a_caller_has_read_keeps_their_fault() {
    for (bytes, expected) in [("HTTP/1.1 400", "that its client cannot parse"), (":1\r\n:2\r\n", "no command waits")] {
        run(async {
            let (connection, writer, mut peer) = lent_with_sender().await;
            let reply = write(&writer, "A").expect("an idle connection");
            peer.write_all(bytes.as_bytes()).expect("a socket");
            assert_eq!(poll(&writer, &reply), LEFT_TO_WORKER);
            drop(peer);
            let cause = lost(&connection).await.expect("a reason");
            assert!(cause.to_string().contains(expected), "{cause}");
            assert_eq!(reply.received().await.is_ok(), bytes.starts_with(':'));
        })
        .await;
    }
}

#[tokio::test]
async fn connection_with_a_part_of_a_push_is_not_lent() {
    run(async {
        let (connection, writer, mut peer) = lent_with_sender().await;
        take_back(&connection);
        peer.write_all(b">2\r\n+message").expect("a socket");
        settle().await;
        lend(&connection, &writer);
        assert!(write(&writer, "A").is_none());
        peer.write_all(b"\r\n+a\r\n").expect("a socket");
        settle().await;
        lend(&connection, &writer);
        assert!(write(&writer, "A").is_some());
    })
    .await;
}

#[tokio::test]
async fn caller_polls_no_longer_once_the_worker_has_the_connection() {
    run(async {
        let (connection, writer, mut peer) = lent_with_sender().await;
        let first = write(&writer, "A").expect("an idle connection");
        let sent = start(&connection, "B");
        settle().await;
        peer.write_all(b":1\r\n:2\r\n").expect("a socket");
        assert_eq!(poll(&writer, &first), LEFT_TO_WORKER);
        assert_eq!(sent.await.expect("no panic"), Ok(Value::Int(2)));
        // Another call has the connection now.
        lend(&connection, &writer);
        let third = write(&writer, "C").expect("an idle connection");
        peer.write_all(b":3\r\n").expect("a socket");
        assert_eq!(poll(&writer, &first), LEFT_TO_WORKER);
        assert_eq!(poll(&writer, &third), DirectPoll::Ready(Value::Int(3)));
        assert_eq!(first.received().await, Ok(Value::Int(1)));
    })
    .await;
}

#[tokio::test]
async fn end_of_the_stream_is_left_to_the_worker() {
    run(async {
        let (connection, writer, peer) = lent_with_sender().await;
        let reply = write(&writer, "A").expect("an idle connection");
        drop(peer);
        assert_eq!(poll(&writer, &reply), LEFT_TO_WORKER);
        assert_eq!(error_of(reply.received().await).kind(), ErrorKind::Unavailable);
        lost(&connection).await;
    })
    .await;
}

#[tokio::test]
async fn callers_poll_for_fewer_replies_after_misses() {
    run(async {
        let (connection, writer, mut peer) = lent_with_sender().await;
        let mut are_polled = Vec::new();
        for is_missed in [false, true, false, false, true, true, false, false, false, false] {
            lend(&connection, &writer);
            let reply = write(&writer, "A").expect("an idle connection");
            are_polled.push(reply.is_polled());
            if is_missed {
                writer.record_miss();
            }
            peer.write_all(b"+OK\r\n").expect("a socket");
            match reply.is_polled() && !is_missed {
                true => assert_eq!(poll(&writer, &reply), DirectPoll::Ready(Value::Okay)),
                false => assert_eq!(reply.received().await, Ok(Value::Okay)),
            }
        }
        // One call is not polled for after a miss, and three after a second one in a row. A hit ends that.
        assert_eq!(are_polled, [true, true, false, true, true, false, false, false, false, true]);
    })
    .await;
}

#[tokio::test]
async fn reply_reaches_the_caller_while_the_worker_knows_nothing_of_the_call() {
    run(async {
        let (connection, writer, mut peer) = lent().await;
        for index in 0..3 {
            let call = writer.write(|digests| Some(cmd("EVALSHA").arg(&*digests[0]).clone()));
            assert_eq!(peer.command(100).await.as_deref(), Some("sha"));
            peer.write(format!(":{index}\r\n").as_bytes()).await;
            assert_eq!(reply_to(call).await, Ok(Value::Int(index)));
            assert!(write(&writer, "B").is_none(), "it was taken back");
            lend(&connection, &writer);
        }
    })
    .await;
}

#[tokio::test]
async fn one_caller_writes_and_commands_of_the_worker_come_behind() {
    run(async {
        let (connection, writer, mut peer) = lent().await;
        let first = write(&writer, "A");
        assert!(write(&writer, "B").is_none());
        let second = start(&connection, "C");
        for command in ["A", "C"] {
            assert_eq!(peer.command(100).await.as_deref(), Some(command));
        }
        lend(&connection, &writer);
        assert!(write(&writer, "D").is_none(), "commands are in flight");
        peer.write(b":1\r\n:2\r\n").await;
        assert_eq!(reply_to(first).await, Ok(Value::Int(1)));
        assert_eq!(second.await.expect("no panic"), Ok(Value::Int(2)));
        lend(&connection, &writer);
        assert!(write(&writer, "E").is_some());
    })
    .await;
}

/// The socket takes a part of the command. The worker writes the rest before anything else.
#[tokio::test]
async fn rest_of_a_long_command_comes_before_all_others() {
    run(async {
        let (connection, writer, mut peer) = lent().await;
        let text = "x".repeat(4 << 20);
        let first = writer.write(|_| Some(cmd("A").arg(&text).clone()));
        take_back(&connection);
        assert!(connection.0.shared.output.borrow().unwritten() > 0, "the socket has no room for it");
        let second = start(&connection, "B");
        lend(&connection, &writer);
        assert!(write(&writer, "C").is_none());
        assert_eq!(peer.command(1 << 20).await, Some(text));
        assert_eq!(peer.command(1 << 20).await.as_deref(), Some("B"));
        peer.write(b":1\r\n:2\r\n").await;
        assert_eq!(reply_to(first).await, Ok(Value::Int(1)));
        assert_eq!(second.await.expect("no panic"), Ok(Value::Int(2)));
    })
    .await;
}

#[tokio::test]
async fn nothing_is_written_without_a_command() {
    run(async {
        let (connection, writer, mut peer) = lent().await;
        assert!(writer.write(|_| None).is_none());
        let call = write(&writer, "A");
        assert_eq!(peer.command(100).await.as_deref(), Some("A"));
        peer.write(b"+OK\r\n").await;
        assert_eq!(reply_to(call).await, Ok(Value::Okay));
        drop(connection);
    })
    .await;
}

#[tokio::test]
async fn reply_to_a_dropped_direct_call_reaches_no_other() {
    run(async {
        let (connection, writer, mut peer) = lent().await;
        drop(write(&writer, "A"));
        let second = start(&connection, "B");
        settle().await;
        peer.write(b":1\r\n:2\r\n").await;
        assert_eq!(second.await.expect("no panic"), Ok(Value::Int(2)));
    })
    .await;
}

#[tokio::test]
async fn connection_that_breaks_fails_the_call_of_a_caller() {
    for bytes in ["", "$4\r\nab"] {
        run(async {
            let (connection, writer, mut peer) = lent().await;
            let call = write(&writer, "A");
            peer.write(bytes.as_bytes()).await;
            drop(peer);
            assert_eq!(error_of(reply_to(call).await).kind(), ErrorKind::Unavailable);
            lost(&connection).await;
            lend(&connection, &writer);
            assert!(write(&writer, "B").is_none(), "it has ended");
        })
        .await;
    }
}

/// The server reads no more, and has not closed its own direction.
#[tokio::test]
async fn failed_write_of_a_caller_ends_the_connection() {
    run(async {
        let (stream, peer) = UnixStream::pair().expect("two sockets");
        stream.writable().await.expect("a socket");
        let peer = peer.into_std().expect("a socket");
        peer.shutdown(Shutdown::Read).expect("a socket");
        let (connection, writer) = (PipelinedConnection::new(Stream::Unix(stream), Arc::default()), Arc::default());
        lend(&connection, &writer);
        let call = write(&writer, "A");
        take_back(&connection);
        assert_eq!(error_of(reply_to(call).await).kind(), ErrorKind::Unavailable);
        assert!(lost(&connection).await.is_none());
    })
    .await;
}

/// A session of TLS stays on the worker's thread.
#[cfg(feature = "tls")]
#[tokio::test]
async fn connection_with_tls_is_not_lent() {
    run(async {
        let (connection, mut peer) = PeerKind::Tls.connect().await;
        let writer = Arc::default();
        lend(&connection, &writer);
        assert!(write(&writer, "A").is_none());
        let sent = start(&connection, "B");
        assert_eq!(peer.command(100).await.as_deref(), Some("B"));
        peer.write(b"+OK\r\n").await;
        assert_eq!(sent.await.expect("no panic"), Ok(Value::Okay));
    })
    .await;
}

#[tokio::test]
async fn connection_that_is_closed_or_dropped_takes_its_write_half_along() {
    for drops in [false, true] {
        run(async {
            let (connection, writer, peer) = lent().await;
            match drops {
                true => drop(connection),
                false => connection.close(),
            }
            assert!(write(&writer, "A").is_none());
            peer.expect_closed().await;
            let (connection, writer, peer) = lent().await;
            let call = write(&writer, "A").expect("an idle connection");
            match drops {
                true => drop(connection),
                false => connection.close(),
            }
            assert!(call.received().await.is_err());
            peer.expect_closed().await;
        })
        .await;
    }
}

#[tokio::test]
async fn reply_that_no_caller_waits_for_closes_an_idle_connection() {
    run(async {
        let (connection, writer, mut peer) = lent().await;
        peer.write(b"+OK\r\n").await;
        let cause = lost(&connection).await.expect("a reason");
        assert!(cause.kind() == ErrorKind::Protocol && cause.to_string().contains("no command waits"), "{cause}");
        assert!(write(&writer, "A").is_none());
    })
    .await;
}

/// Callers and the worker use one connection at once. Each command gets its own reply.
#[tokio::test]
async fn callers_and_worker_keep_the_order_of_replies() {
    const CALLS: usize = 200;
    run(async {
        let (connection, writer, mut peer) = lent().await;
        spawn_local(async move {
            for split in (0..5).cycle() {
                let Some(command) = peer.command(1 << 16).await else { break };
                let reply = format!("${}\r\n{command}\r\n", command.len());
                // Some replies come in pieces, at any time between two reads.
                peer.write(&reply.as_bytes()[..split]).await;
                for _ in 0..split {
                    thread::yield_now();
                }
                peer.write(&reply.as_bytes()[split..]).await;
            }
        });
        let caller = |caller: usize| {
            let writer = Arc::clone(&writer);
            thread::spawn(move || {
                for index in 0..CALLS {
                    let text = format!("{caller} {index}");
                    let reply = loop {
                        match writer.write(|_| Some(cmd("A").arg(&text).clone())) {
                            Some(reply) => break reply,
                            None => thread::yield_now(),
                        }
                    };
                    let expected = Value::BulkString(text.into_bytes());
                    // One of the callers polls for its replies.
                    let polled = || loop {
                        match poll(&writer, &reply) {
                            DirectPoll::Pending => thread::yield_now(),
                            end => break end,
                        }
                    };
                    if caller == 0
                        && let DirectPoll::Ready(value) = polled()
                    {
                        assert_eq!(value, expected);
                        continue;
                    }
                    assert_eq!(block_on(reply.received()), Ok(expected));
                }
            })
        };
        let callers = [0, 1].map(caller);
        for index in 0.. {
            lend(&connection, &writer);
            // A caller uses it, unless all have finished.
            while writer.is_free() && !callers.iter().all(thread::JoinHandle::is_finished) {
                yield_now().await;
            }
            if callers.iter().all(thread::JoinHandle::is_finished) {
                break;
            }
            let text = format!("worker {index}");
            let reply = connection.send(cmd("A").arg(&text), ReplyBound::Script).await;
            assert_eq!(reply, Ok(Value::BulkString(text.into_bytes())));
        }
        for caller in callers {
            caller.join().expect("no panic");
        }
    })
    .await;
}
