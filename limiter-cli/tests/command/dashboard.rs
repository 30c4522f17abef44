//! `limiter dashboard`: its address, its token and its options.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use crate::support::{command, limiter, server};

fn get(address: &str, token: &str) -> String {
    let host = address.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(host).expect("the page is served");
    let head =
        format!("GET /api/text HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    answer
}

#[test]
fn the_page_is_served_at_the_address_that_is_printed() {
    let server = server();
    let directory = tempfile::tempdir().expect("a directory");
    let token = directory.path().join("token");
    std::fs::write(&token, "0123456789abcdef\n").expect("written");
    let token = token.to_str().expect("a path");
    let arguments = ["dashboard", "--listen", "127.0.0.1:0", "--token-file", token, "--operator-url", &server.url()];
    let mut dashboard = command(&server.url(), &arguments).spawn().expect("the program starts");
    let mut lines = BufReader::new(dashboard.stdout.take().expect("a pipe")).lines();
    let address = lines.next().expect("a line").expect("text");
    let answer = get(&address, "0123456789abcdef");
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"version\":0"), "{answer}");
    assert!(get(&address, "0123456789abcdeg").starts_with("HTTP/1.1 401"));
    dashboard.kill().expect("it runs");
    dashboard.wait().expect("it has ended");
}

#[test]
fn the_command_refuses_what_is_not_safe() {
    let server = server();
    let url = server.url();
    limiter("memory:", &["dashboard"]).failed(2, "`dashboard`");
    limiter(&url, &["dashboard", "--listen", "0.0.0.0:0"]).failed(2, "must be a loopback address");
    limiter(&url, &["dashboard", "--host", "http://a"]).failed(2, "without a port");
    limiter(&url, &["dashboard", "--operator-url", &url]).failed(2, "`token` must be set");
    let directory = tempfile::tempdir().expect("a directory");
    let token = directory.path().join("token");
    std::fs::write(&token, "short").expect("written");
    limiter(&url, &["dashboard", "--token-file", token.to_str().expect("a path")])
        .failed(2, "at least 16 bytes, got 5");
}
