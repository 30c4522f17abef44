//! RESP beside HTTP: one server, one count, and one end.

use limiter_server::ListenAddress;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use crate::support::{Connection, RULES, server};

const CHECK: &[u8] = b"*3\r\n$8\r\nRL.CHECK\r\n$6\r\nsearch\r\n$2\r\n42\r\n";

#[tokio::test]
async fn both_protocols_count_together_and_end_together() {
    let any = "127.0.0.1:0".parse().expect("an address");
    let bound = server(RULES).bind(&any).await.expect("a free port").bind_resp(&any).await.expect("another one");
    let ListenAddress::Tcp(http) = bound.address().clone() else { panic!("a port") };
    let Some(ListenAddress::Tcp(resp)) = bound.resp_address() else { panic!("a port") };
    let (end, ended) = oneshot::channel::<()>();
    let serving = tokio::spawn(bound.run(async { drop(ended.await) }));
    let mut resp = TcpStream::connect(resp).await.expect("the server listens");
    for allowed in [b":1", b":0"] {
        resp.write_all(CHECK).await.expect("the server reads");
        let mut reply = [0; 6];
        resp.read_exact(&mut reply).await.expect("a reply");
        assert_eq!(&reply[4..], allowed);
        let mut rest = [0; 64];
        assert!(resp.read(&mut rest).await.expect("a reply") > 0);
        // The second of the two permits is taken over HTTP.
        let body = r#"{"rule":"search","values":{"user_id":"42"}}"#;
        let status = Connection::open(http).await.post("/v1/check", body).await.status;
        assert_eq!(status, if allowed == b":1" { 200 } else { 429 });
    }
    end.send(()).expect("the server runs");
    assert_eq!(resp.read(&mut [0; 64]).await.expect("an end in order"), 0);
    serving.await.expect("no panic");
}

#[cfg(unix)]
#[tokio::test]
async fn resp_is_served_on_a_unix_socket_too() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("resp.sock");
    let any = "127.0.0.1:0".parse().expect("an address");
    let bound = server(RULES).bind(&any).await.expect("a free port");
    let bound = bound.bind_resp(&ListenAddress::Unix(path.clone())).await.expect("a free path");
    let (end, ended) = oneshot::channel::<()>();
    let serving = tokio::spawn(bound.run(async { drop(ended.await) }));
    let mut stream = tokio::net::UnixStream::connect(&path).await.expect("the server listens");
    stream.write_all(b"PING\r\n").await.expect("the server reads");
    let mut reply = [0; 7];
    stream.read_exact(&mut reply).await.expect("a reply");
    assert_eq!(&reply, b"+PONG\r\n");
    end.send(()).expect("the server runs");
    serving.await.expect("no panic");
    assert!(!path.exists());
}
