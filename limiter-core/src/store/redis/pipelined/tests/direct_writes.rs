use std::thread;

use super::*;
use crate::block_on::block_on;

async fn lent() -> (PipelinedConnection, Arc<DirectWriter>, Peer) {
    let (connection, peer) = PeerKind::Plain.connect().await;
    let writer = Arc::default();
    lend(&connection, &writer);
    (connection, writer, peer)
}

fn lend(connection: &PipelinedConnection, writer: &Arc<DirectWriter>) {
    connection.lend(writer, "sha".into());
}

/// Writes a command on a thread of its own, without a runtime.
fn write(writer: &Arc<DirectWriter>, command: &str) -> Option<DirectReply> {
    let (writer, command) = (Arc::clone(writer), cmd(command));
    thread::spawn(move || writer.write(|_| Some(command))).join().expect("no panic")
}

async fn reply_to(call: Option<DirectReply>) -> RedisResult<Value> {
    call.expect("an idle connection").received().await
}

#[tokio::test]
async fn reply_reaches_the_caller_while_the_worker_knows_nothing_of_the_call() {
    run(async {
        let (connection, writer, mut peer) = lent().await;
        for index in 0..3 {
            let call = writer.write(|digest| Some(cmd("EVALSHA").arg(digest).clone()));
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
        connection.take_back();
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
        connection.take_back();
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
            while let Some(command) = peer.command(1 << 16).await {
                peer.write(format!("${}\r\n{command}\r\n", command.len()).as_bytes()).await;
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
                    assert_eq!(block_on(reply.received()), Ok(Value::BulkString(text.into_bytes())));
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
