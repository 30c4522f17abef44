//! A client that shows what users of the service see.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The fields of an answer that are printed.
const SHOWN_FIELDS: [&str; 3] = ["ratelimit", "retry-after", "content-type"];

/// Sends requests to the service at this address, and prints the answers.
///
/// # Errors
/// The service cannot be reached, or closes the connection early.
pub(crate) async fn run(address: SocketAddr) -> io::Result<()> {
    show(address, "a user's quote, with the quota of the address", "/quote", "7").await?;
    repeat(address, 2, "/quote", "7").await?;
    show(address, "the fourth quote in a minute: the fallback", "/quote", "7").await?;
    show(address, "another user's quote", "/quote", "8").await?;
    repeat(address, 5, "/users/7/report", "7").await?;
    show(address, "the sixth report in an hour", "/users/7/report", "7").await?;
    show(address, "another user's report", "/users/8/report", "8").await
}

async fn show(address: SocketAddr, title: &str, path: &str, user: &str) -> io::Result<()> {
    let answer = get(address, path, user).await?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let mut lines = head.lines();
    println!("\n# {title}: GET {path}");
    println!("{}", lines.next().unwrap_or_default());
    for line in lines {
        let name = line.split(':').next().unwrap_or_default();
        if SHOWN_FIELDS.iter().any(|shown| name.eq_ignore_ascii_case(shown)) {
            println!("{line}");
        }
    }
    println!("{}", body.trim_end());
    Ok(())
}

async fn repeat(address: SocketAddr, times: u32, path: &str, user: &str) -> io::Result<()> {
    for _ in 0..times {
        get(address, path, user).await?;
    }
    Ok(())
}

/// Returns the answer to a request on a connection of its own.
async fn get(address: SocketAddr, path: &str, user: &str) -> io::Result<String> {
    let request = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nx-user: {user}\r\nconnection: close\r\n\r\n");
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
