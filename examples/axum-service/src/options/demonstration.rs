//! A client that shows what users of the service see.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The fields of an answer that are printed.
const SHOWN_FIELDS: [&str; 5] = ["content-type", "ratelimit", "ratelimit-policy", "retry-after", "cache-control"];

/// Sends requests to the service at this address, and prints the answers.
///
/// # Errors
/// The service cannot be reached, or closes the connection early.
pub(crate) async fn run(address: SocketAddr) -> io::Result<()> {
    show(address, "a user's request, with the quotas left", "GET /quote", &["authorization: Bearer 7"]).await?;
    for _ in 0..3 {
        send(address, "GET /report", &["authorization: Bearer 7"]).await?;
    }
    show(address, "the fourth report in a minute", "GET /report", &["authorization: Bearer 7"]).await?;
    show(address, "another user's report", "GET /report", &["authorization: Bearer 8"]).await?;
    show(
        address,
        "another address, by the proxy's last entry",
        "GET /quote",
        &["authorization: Bearer 7", "x-forwarded-for: 198.51.100.1, 192.0.2.1"],
    )
    .await?;
    show(address, "no user: only the address counts", "GET /quote", &[]).await?;
    show(address, "an entry that is no address", "GET /quote", &["x-forwarded-for: unknown"]).await?;
    show(address, "readiness", "GET /readyz", &[]).await?;
    let scrape = send(address, "GET /metrics", &[]).await?;
    println!("\n# some of GET /metrics");
    for line in scrape.lines().filter(|line| line.starts_with("rate_limited_decisions_total")) {
        println!("{line}");
    }
    Ok(())
}

async fn show(address: SocketAddr, title: &str, request: &str, fields: &[&str]) -> io::Result<()> {
    let answer = send(address, request, fields).await?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let mut lines = head.lines();
    println!("\n# {title}: {request} {fields:?}");
    println!("{}", lines.next().unwrap_or_default());
    for line in lines {
        if SHOWN_FIELDS.iter().any(|name| line.split(':').next() == Some(name)) {
            println!("{line}");
        }
    }
    if !body.is_empty() {
        println!("\n{}", body.trim_end());
    }
    Ok(())
}

/// Returns the answer to a request. A request without an `x-forwarded-for` gets one, as from a proxy.
async fn send(address: SocketAddr, request: &str, fields: &[&str]) -> io::Result<String> {
    let mut text = format!("{request} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
    if !fields.iter().any(|field| field.starts_with("x-forwarded-for")) {
        text.push_str("x-forwarded-for: 203.0.113.7\r\n");
    }
    for field in fields {
        text.push_str(field);
        text.push_str("\r\n");
    }
    text.push_str("\r\n");
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(text.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
