//! The sockets of a server: TCP and Unix, with bounds for connections, and an end in order.

use std::fmt;
use std::io;
use std::net::SocketAddr;
#[cfg(unix)]
use std::path::Path;
use std::path::PathBuf;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
#[cfg(unix)]
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};

use crate::error::Error;

mod first_bytes;
mod timed_stream;
mod timed_writes;

pub(crate) use first_bytes::FirstBytes;
pub(crate) use timed_stream::{StreamTimes, TimedStream, TurnCount};
pub(crate) use timed_writes::TimedWrites;

/// The pause after a failure to accept, as without free file descriptors.
const PAUSE: Duration = Duration::from_millis(50);

/// The most connections that are served although the server closes: a system keeps fewer in its queue.
const MAX_LEFT_OVER: usize = 4_096;

/// The addresses of a protocol: a port, or the path of a Unix socket.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// An address with a port. Port 0 is one that the system chooses.
    Tcp(SocketAddr),
    /// The path of a socket. A socket that an ended process has left there is removed.
    Unix(PathBuf),
}

impl ListenAddress {
    /// Returns whether only programs of this machine reach it.
    #[must_use]
    pub fn is_local(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => true,
        }
    }

    /// Returns the mistakes of addresses that a server would bind together, each with its option: those that are in use, and
    /// two that are one. A socket that an ended process has left is none, as a server replaces it.
    #[must_use]
    pub fn mistakes<'a>(addresses: impl IntoIterator<Item = (&'a str, &'a Self)>) -> Vec<Error> {
        // A port stays bound until all are, so that none is there twice.
        let (mut ports, mut paths, mut mistakes) = (Vec::new(), Vec::new(), Vec::new());
        for (option, address) in addresses {
            let bound = match address {
                Self::Tcp(address) => std::net::TcpListener::bind(address).map(|port| ports.push(port)),
                Self::Unix(path) if paths.contains(&path) => Err(io::ErrorKind::AddrInUse.into()),
                Self::Unix(path) => {
                    paths.push(path);
                    check_path(path)
                }
            };
            mistakes.extend(bound.err().map(|error| not_free(option, address, &error)));
        }
        mistakes
    }
}

/// Reads `127.0.0.1:8080`, `[::1]:8080` or `unix:/run/limiter.sock`.
impl FromStr for ListenAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err(Error::new(
                    "the path of a socket must follow `unix:`, got none: write `unix:/run/limiter.sock`",
                )),
                path => Ok(Self::Unix(path.into())),
            };
        }
        text.parse().map(Self::Tcp).map_err(|_| {
            Error::new(format!(
                "an address must be an IP address with a port, or `unix:` and a path, got `{text}`: write one such as \
                 `127.0.0.1:8080`"
            ))
        })
    }
}

/// Writes the text that is read.
impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A socket that accepts connections.
#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    #[cfg(unix)]
    /// The file goes first: one behind its listener could be that of the next server.
    Unix(SocketFile, UnixListener),
}

/// The file of a Unix socket, which is removed with it.
#[derive(Debug)]
pub(crate) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Listener {
    /// Binds an address. `option` is its name in errors.
    ///
    /// # Errors
    /// The address cannot be used: it is in use, for one.
    pub(crate) async fn bind(option: &str, address: &ListenAddress) -> Result<Self, Error> {
        let failed = |error: &io::Error| not_free(option, address, error);
        match address {
            ListenAddress::Tcp(address) => {
                TcpListener::bind(address).await.map(Self::Tcp).map_err(|error| failed(&error))
            }
            #[cfg(unix)]
            ListenAddress::Unix(path) => {
                remove_left_over(path).map_err(|error| failed(&error))?;
                let listener = UnixListener::bind(path).map_err(|error| failed(&error))?;
                // As a port of this machine, for every user who may enter its directory: a gateway has a user of its own.
                let for_all = std::os::unix::fs::PermissionsExt::from_mode(0o666);
                std::fs::set_permissions(path, for_all).map_err(|error| failed(&error))?;
                Ok(Self::Unix(SocketFile(path.clone()), listener))
            }
            #[cfg(not(unix))]
            ListenAddress::Unix(_) => Err(failed(&io::ErrorKind::Unsupported.into())),
        }
    }

    /// The address, with the port that the system has chosen.
    pub(crate) fn address(&self) -> Option<ListenAddress> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok().map(ListenAddress::Tcp),
            #[cfg(unix)]
            Self::Unix(file, _) => Some(ListenAddress::Unix(file.0.clone())),
        }
    }

    async fn accept(&self) -> io::Result<Socket> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // Answers are written whole: nothing is gained by waiting for more.
                let _ = stream.set_nodelay(true);
                Ok(Socket::Tcp(stream))
            }
            #[cfg(unix)]
            Self::Unix(_, listener) => listener.accept().await.map(|(stream, _)| Socket::Unix(stream)),
        }
    }
}

fn not_free(option: &str, address: &ListenAddress, error: &io::Error) -> Error {
    Error::new(format!(
        "`{option}` must be a free address, got {address}: {error}: use another one, or end its program"
    ))
}

/// Checks that a socket can be made at a path, in the place of one whose process has ended.
#[cfg(unix)]
fn check_path(path: &Path) -> io::Result<()> {
    match left_over(path)? {
        Some(_) => Ok(()),
        None => {
            let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
            std::fs::metadata(directory.unwrap_or(Path::new("."))).map(drop)
        }
    }
}

#[cfg(not(unix))]
fn check_path(_path: &std::path::Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Removes the socket of a process that has ended. One that accepts connections is in use.
#[cfg(unix)]
fn remove_left_over(path: &Path) -> io::Result<()> {
    match left_over(path)? {
        Some(path) => std::fs::remove_file(path),
        None => Ok(()),
    }
}

/// Returns the path if there is a socket that no process serves. `None` if there is nothing.
///
/// # Errors
/// The socket is in use, or there is another file.
#[cfg(unix)]
fn left_over(path: &Path) -> io::Result<Option<&Path>> {
    use std::os::unix::fs::FileTypeExt;

    let Ok(found) = std::fs::symlink_metadata(path) else { return Ok(None) };
    if !found.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "there is a file that is no socket"));
    }
    // A socket of this machine accepts or refuses at once.
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(Some(path)),
        Err(error) => Err(error),
    }
}

/// A connection of either kind.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

macro_rules! with_stream {
    ($socket:expr, $stream:ident => $result:expr) => {
        match $socket {
            Socket::Tcp($stream) => $result,
            #[cfg(unix)]
            Socket::Unix($stream) => $result,
        }
    };
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        with_stream!(self.get_mut(), stream => Pin::new(stream).poll_read(context, buffer))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        with_stream!(self.get_mut(), stream => Pin::new(stream).poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        with_stream!(self.get_mut(), stream => Pin::new(stream).poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        with_stream!(self.get_mut(), stream => Pin::new(stream).poll_shutdown(context))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        with_stream!(self.get_mut(), stream => Pin::new(stream).poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        with_stream!(self, stream => stream.is_write_vectored())
    }
}

/// The phases of a server. Each connection watches them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Serving,
    /// No connection is accepted any more. Each ends after the answer that it writes.
    Closing,
}

/// The connections of one protocol.
#[derive(Debug)]
pub(crate) struct Connections {
    places: Arc<Semaphore>,
    max: u32,
    phase: watch::Receiver<Phase>,
}

impl Connections {
    /// Creates the places of at most `max` connections.
    pub(crate) fn new(max: u32, phase: watch::Receiver<Phase>) -> Self {
        Self { places: Arc::new(Semaphore::new(max as usize)), max, phase }
    }

    /// Accepts connections until the server closes, and serves each in a task of its own. One beyond the most gets `refuse`.
    pub(crate) async fn serve<F: Future<Output = ()> + Send + 'static>(
        &self,
        listener: Listener,
        serve: impl Fn(Socket, watch::Receiver<Phase>) -> F,
        refuse: &'static [u8],
    ) {
        let (mut phase, mut left_over) = (self.phase.clone(), 0);
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = phase.wait_for(|phase| *phase == Phase::Closing) => match listener.accept().now_or_never() {
                    // The system has accepted it already.
                    Some(accepted) if left_over < MAX_LEFT_OVER => {
                        left_over += 1;
                        accepted
                    }
                    _ => return,
                },
            };
            let Ok(socket) = accepted else {
                sleep(PAUSE).await;
                continue;
            };
            match Arc::clone(&self.places).try_acquire_owned() {
                Ok(place) => {
                    let serving = serve(socket, self.phase.clone());
                    tokio::spawn(async move {
                        serving.await;
                        drop(place);
                    });
                }
                // Its buffer takes this at once. A client that has not read it yet has a broken connection.
                Err(_) => with_stream!(&socket, stream => {
                    let _ = stream.try_write(refuse);
                }),
            }
        }
    }

    /// Waits until all connections have ended, or for so long. Returns whether they have.
    pub(crate) async fn ended(&self, longest: Duration) -> bool {
        timeout(longest, self.places.acquire_many(self.max)).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_an_ip_address_or_a_path() {
        for text in ["127.0.0.1:8080", "[::1]:0", "unix:/run/a.sock", "0.0.0.0:80"] {
            assert_eq!(text.parse::<ListenAddress>().expect(text).to_string(), text);
        }
        for text in ["", "127.0.0.1", "localhost:8080", ":8080", "unix:", "/run/a.sock", "127.0.0.1:65536"] {
            assert!(text.parse::<ListenAddress>().is_err(), "{text}");
        }
        let is_local = |text: &str| text.parse::<ListenAddress>().expect(text).is_local();
        assert!(
            is_local("127.1.2.3:1") && is_local("[::1]:1") && is_local("[::ffff:127.0.0.1]:1") && is_local("unix:a")
        );
        assert!(!is_local("0.0.0.0:1") && !is_local("192.0.2.1:1") && !is_local("[::]:1"));
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_left_over_socket_is_replaced_and_one_in_use_is_not() {
        use std::os::unix::fs::PermissionsExt;

        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("limiter.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).expect("a free path"));
        assert!(path.exists(), "a dropped listener leaves its file");
        let address = ListenAddress::Unix(path.clone());
        let listener = Listener::bind("http", &address).await.expect("the process has ended");
        let mode = std::fs::metadata(&path).expect("a socket").permissions().mode();
        assert_eq!(mode & 0o777, 0o666, "a gateway has a user of its own");
        let error = Listener::bind("http", &address).await.expect_err("in use").to_string();
        assert!(error.starts_with("`http` must be a free address, got unix:"), "{error}");
        drop(listener);
        assert!(!path.exists());
        std::fs::write(&path, "").expect("a file");
        let error = Listener::bind("http", &address).await.expect_err("no socket").to_string();
        assert!(error.contains("no socket") && path.exists(), "{error}");
    }

    #[test]
    fn addresses_in_use_are_mistakes_and_stay_as_they_are() {
        let mistakes = |addresses: &[&str]| {
            let addresses: Vec<ListenAddress> = addresses.iter().map(|text| text.parse().expect(text)).collect();
            let found = ListenAddress::mistakes(["http", "resp", "grpc"].into_iter().zip(&addresses));
            found.iter().map(|mistake| mistake.to_string().split('`').nth(1).unwrap_or_default().to_owned()).collect()
        };
        let mistakes = |addresses: &[&str]| -> Vec<String> { mistakes(addresses) };
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let taken = (taken.local_addr().expect("bound").to_string(), taken);
        assert_eq!(mistakes(&["127.0.0.1:0", &taken.0, "127.0.0.1:0"]), ["resp"]);
        drop(taken.1);
        assert_eq!(mistakes(&[&taken.0, "127.0.0.1:0", &taken.0]), ["grpc"], "one port for two");
        #[cfg(unix)]
        {
            let directory = tempfile::tempdir().expect("a directory");
            let path = |name: &str| format!("unix:{}", directory.path().join(name).display());
            let used = std::os::unix::net::UnixListener::bind(directory.path().join("used")).expect("a free path");
            drop(std::os::unix::net::UnixListener::bind(directory.path().join("left")).expect("a free path"));
            std::fs::write(directory.path().join("file"), "").expect("a file");
            assert_eq!(mistakes(&[&path("used"), &path("left"), &path("file")]), ["http", "grpc"]);
            assert_eq!(mistakes(&[&path("new"), &path("none/new"), &path("new")]), ["resp", "grpc"]);
            assert!(directory.path().join("left").exists() && !directory.path().join("new").exists());
            drop(used);
        }
    }

    #[tokio::test]
    async fn a_port_in_use_is_an_error_that_names_it() {
        let any = "127.0.0.1:0".parse().expect("an address");
        let address = Listener::bind("http", &any).await.expect("a free port");
        let taken = address.address().expect("bound");
        let error = Listener::bind("http", &taken).await.expect_err("in use").to_string();
        assert!(error.starts_with(&format!("`http` must be a free address, got {taken}: ")), "{error}");
    }
}
