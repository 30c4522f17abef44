//! The options of the command line, and the end of the service.

mod demonstration;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::exit;

use clap::Parser;

/// A web service with rate limits. Without `--listen` it sends requests to itself, prints the answers, and ends.
#[derive(Parser)]
#[command(name = "axum-service")]
pub(crate) struct Options {
    /// The address to listen on, until Ctrl-C or SIGTERM
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// The Redis that all instances share; without it the service counts by itself
    #[arg(long, value_name = "URL", default_value = "memory:", hide_default_value = true)]
    pub(crate) redis: String,
    /// The file of the limits
    #[arg(long, value_name = "FILE", default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/rules.toml"))]
    pub(crate) rules: PathBuf,
    /// A network of proxies whose `X-Forwarded-For` counts; may be repeated
    #[arg(long = "proxy", value_name = "NETWORK", default_values = ["127.0.0.0/8", "::1"])]
    pub(crate) proxies: Vec<String>,
}

/// Reads the options, or prints the help and exits.
pub(crate) fn parse() -> Options {
    Options::parse()
}

impl Options {
    /// Returns the address to listen on. The demonstration uses a free port of this machine.
    pub(crate) fn address(&self) -> SocketAddr {
        self.listen.unwrap_or((Ipv4Addr::LOCALHOST, 0).into())
    }

    /// Returns the end of the service that listens on `address`: a signal, or the end of the demonstration. A
    /// demonstration that fails ends the process.
    ///
    /// # Errors
    /// Signals cannot be received.
    pub(crate) fn stop(&self, address: SocketAddr) -> io::Result<impl Future<Output = ()> + use<>> {
        let signal = self.listen.map(|_| stop_signal()).transpose()?;
        println!("listening on http://{address}");
        Ok(async move {
            if let Some(signal) = signal {
                signal.await;
            } else if let Err(error) = demonstration::run(address).await {
                eprintln!("the demonstration failed: {error}");
                exit(1);
            }
        })
    }
}

/// Returns the arrival of Ctrl-C or SIGTERM. From this call on these signals do not end the process by themselves.
#[cfg(unix)]
fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};

    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Returns the arrival of Ctrl-C. From this call on it does not end the process by itself.
#[cfg(windows)]
fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    let mut ctrl_c = tokio::signal::windows::ctrl_c()?;
    Ok(async move {
        ctrl_c.recv().await;
    })
}
