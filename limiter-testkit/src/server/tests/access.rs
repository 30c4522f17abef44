//! Endpoints and credentials of a server.

use std::net::TcpListener;

use super::*;
use crate::tls_client::TlsClient;

#[test]
fn a_tcp_server_listens_on_its_port() {
    let server = RedisServer::builder().tcp().start();
    let Address::Tcp(address) = server.address() else { panic!("{:?}", server.address()) };
    assert_eq!(server.url(), format!("redis://{address}"));
    let mut client = Client::connect(&server.address(), REPLY_TIMEOUT).expect("it listens");
    assert_eq!(client.call(&["PING"]).expect("a reply").text(), "PONG");
}

#[test]
fn a_taken_port_is_replaced_by_another() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken_port = taken.local_addr().expect("bound").port();
    let mut ports = vec![port::free_port(), taken_port, taken_port];
    let free = ports[0];
    let server = RedisServer::builder().tcp().start_with_ports(|| ports.pop().expect("no fourth attempt"));
    assert_eq!(server.url(), format!("redis://127.0.0.1:{free}"));
    assert_eq!(server.command(&["PING"]).text(), "PONG");
}

#[test]
fn a_password_is_required() {
    let password = "p \"@s'\\s#";
    let server = RedisServer::builder().password(password).start();
    assert_eq!(server.command(&["PING"]).text(), "PONG");
    let mut client = Client::connect(&server.address(), REPLY_TIMEOUT).expect("it listens");
    assert!(client.call(&["PING"]).expect("a reply").error().starts_with("NOAUTH"));
    assert!(client.call(&["AUTH", "wrong"]).expect("a reply").error().starts_with("WRONGPASS"));
    assert_eq!(client.call(&["AUTH", password]).expect("a reply").text(), "OK");
}

#[test]
fn a_user_has_the_permissions_of_its_rules() {
    let server = RedisServer::builder().user_with_rules("alice", "p w", "~a* +get +ping").start();
    server.command(&["SET", "abc", "1"]); // the testkit's own user has all permissions
    let mut client = Client::connect(&server.address(), REPLY_TIMEOUT).expect("it listens");
    assert!(client.call(&["PING"]).expect("a reply").error().starts_with("NOAUTH"));
    assert_eq!(client.call(&["AUTH", "alice", "p w"]).expect("a reply").text(), "OK");
    assert_eq!(client.call(&["GET", "abc"]).expect("a reply").text(), "1");
    for rejected in [&["GET", "b"][..], &["SET", "abc", "2"]] {
        assert!(client.call(rejected).expect("a reply").error().starts_with("NOPERM"), "{rejected:?}");
    }
    let full = RedisServer::builder().user("bob", "pw").start();
    let mut client = Client::connect(&full.address(), REPLY_TIMEOUT).expect("it listens");
    assert_eq!(client.call(&["AUTH", "bob", "pw"]).expect("a reply").text(), "OK");
    assert_eq!(client.call(&["SET", "any", "1"]).expect("a reply").text(), "OK");
}

#[test]
fn a_tls_server_has_a_certificate_of_its_authority() {
    let server = RedisServer::builder().tls().start();
    let Address::Tcp(address) = server.address() else { panic!("{:?}", server.address()) };
    assert_eq!(server.url(), format!("rediss://{address}"));
    let authority = server.ca_certificate().expect("a TLS server has one");
    for name in ["127.0.0.1", "localhost"] {
        let mut client = TlsClient::connect(address, name, &authority).expect("a trusted server");
        assert_eq!(client.call("PING"), "+PONG");
    }
    assert_eq!(RedisServer::shared().ca_certificate(), None);
}
