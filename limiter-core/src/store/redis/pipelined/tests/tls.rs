//! Tests of what only a connection with TLS has: records, a session, and a way to end them.

use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::*;
use crate::store::redis::pipelined::TlsStream;

/// Performs the handshake of two sockets.
pub(super) async fn shake_hands(stream: UnixStream, peer: UnixStream) -> (TlsStream, Peer) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let certificate: CertificateDer<'static> = made.cert.into();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).expect("a certificate");
    let client = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let client = client.expect("versions").with_root_certificates(roots).with_no_client_auth();
    let server = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let server = server.expect("versions").with_no_client_auth().with_single_cert(vec![certificate], key);
    let acceptor = TlsAcceptor::from(Arc::new(server.expect("a certificate")));
    let name = ServerName::try_from("localhost").expect("a name");
    let connector = TlsConnector::from(Arc::new(client));
    let (connected, accepted) = tokio::join!(connector.connect(name, stream), acceptor.accept(peer));
    let (stream, session) = connected.expect("a handshake").into_inner();
    let (peer, server) = accepted.expect("a handshake").into_inner();
    (TlsStream::new(Stream::Unix(stream), session), Peer::with_session(peer, server))
}

#[tokio::test]
async fn records_arrive_in_any_pieces() {
    run(async {
        let (connection, mut peer) = PeerKind::Tls.connect().await;
        let records = peer.encrypt(REPLIES.as_bytes());
        expect_replies(&connection, async {
            for byte in records {
                peer.write_to_socket(&[byte]).await;
                settle().await;
            }
        })
        .await;
        let records =
            [peer.encrypt(b"+OK\r\n*2\r\n:1\r\n$4\r\na\r"), peer.encrypt(b"\nb\r\n-MOVED 1 a:1\r\n")].concat();
        expect_replies(&connection, peer.write_to_socket(&records)).await;
    })
    .await;
}

/// The session holds a record that the socket had no room for. No later command takes it along.
#[tokio::test]
async fn record_in_the_session_is_sent_when_the_socket_has_room() {
    run(async {
        let (connection, mut peer) = PeerKind::Tls.connect().await;
        let shared = &connection.0.shared;
        let mut sent = Vec::new();
        // The output is empty as long as the session takes the next command.
        while !shared.reader_writes.get() {
            let (connection, text) = (connection.clone(), format!("{} {}", sent.len(), "x".repeat(4_000)));
            sent.push(spawn_local(async move { connection.send(cmd("A").arg(text), ReplyBound::Script).await }));
            settle().await;
        }
        assert_eq!(shared.output.borrow().unwritten(), 0, "the session has it");
        for index in 0..sent.len() {
            let command = peer.command(1 << 16).await.expect("a command");
            assert!(command.starts_with(&format!("{index} ")), "{command}");
        }
        assert!(!shared.reader_writes.get());
    })
    .await;
}

/// A long command is encrypted as the socket takes it, not at once.
#[tokio::test]
async fn session_holds_one_record() {
    run(async {
        let (stream, peer) = UnixStream::pair().expect("two sockets");
        stream.writable().await.expect("a socket");
        let (stream, _peer) = shake_hands(stream, peer).await;
        let (_reader, writer) = Transport::from(stream).into_split();
        let mut output = Output::default();
        output.buffer().extend(repeat_n(0, 4 << 20));
        assert!(!output.write_to(&writer).expect("a socket"), "the socket is full");
        let before = output.unwritten();
        for _ in 0..10 {
            assert!(!output.write_to(&writer).expect("a socket"));
        }
        assert_eq!(output.unwritten(), before);
    })
    .await;
}

#[tokio::test]
async fn keys_may_be_updated() {
    run(async {
        let (connection, mut peer) = PeerKind::Tls.connect().await;
        for _ in 0..3 {
            let sent = start(&connection, "A");
            assert_eq!(peer.command(100).await.as_deref(), Some("A"));
            peer.session().refresh_traffic_keys().expect("TLS 1.3");
            peer.write(b"+OK\r\n").await;
            assert_eq!(sent.await.expect("no panic"), Ok(Value::Okay));
        }
    })
    .await;
}

/// The ends of a connection, each by the bytes that the server sends before it closes the socket.
#[tokio::test]
async fn end_of_the_session_ends_the_connection() {
    type Bytes = fn(&mut Peer) -> Vec<u8>;
    let record_and_a_half = |peer: &mut Peer| {
        let mut records = peer.encrypt(b":1\r\n");
        let second = peer.encrypt(b":2\r\n");
        records.extend(&second[..second.len() / 2]);
        records
    };
    let cases: [(Bytes, bool, &str); 4] = [
        (record_and_a_half, true, "cannot be reached"),
        (
            |peer| {
                peer.session().send_close_notify();
                peer.encrypt(b"")
            },
            false,
            "cannot be reached",
        ),
        (|_| b"-ERR no TLS here\r\n".to_vec(), false, "corrupt message"),
        (|peer| peer.encrypt(b"+").into_iter().map(|byte| byte ^ 1).collect(), false, "corrupt message"),
    ];
    for (bytes, closes_socket, expected) in cases {
        run(async {
            let (connection, mut peer) = PeerKind::Tls.connect().await;
            let replies = ["A", "B", "C"].map(|command| start(&connection, command));
            for command in ["A", "B", "C"] {
                assert_eq!(peer.command(100).await.as_deref(), Some(command));
            }
            let bytes = bytes(&mut peer);
            peer.write_to_socket(&bytes).await;
            let open = (!closes_socket).then_some(peer);
            let mut errors = Vec::new();
            for reply in replies {
                match reply.await.expect("no panic") {
                    Ok(value) => assert_eq!(value, Value::Int(1)),
                    Err(error) => errors.push(Error::from(CommandError::from(error))),
                }
            }
            assert!(
                errors.len() >= 2 && errors.iter().all(|error| error.kind() == ErrorKind::Unavailable),
                "{errors:?}"
            );
            assert!(errors[0].to_string().contains(expected), "{errors:?}");
            assert!(lost(&connection).await.is_none(), "the server has ended it");
            drop(open);
        })
        .await;
    }
}

/// A server with too many clients sends an error and closes the connection.
#[tokio::test]
async fn error_in_front_of_an_alert_is_the_reply() {
    run(async {
        let (connection, mut peer) = PeerKind::Tls.connect().await;
        let (first, second) = (start(&connection, "A"), start(&connection, "B"));
        for command in ["A", "B"] {
            assert_eq!(peer.command(100).await.as_deref(), Some(command));
        }
        let mut records = peer.encrypt(b"-ERR max number of clients reached\r\n");
        records.extend(b"no record");
        peer.write_to_socket(&records).await;
        let reply = first.await.expect("no panic").and_then(Value::extract_error);
        assert!(error_of(reply).to_string().contains("max number of clients"));
        assert_eq!(error_of(second.await.expect("no panic")).kind(), ErrorKind::Unavailable);
    })
    .await;
}
