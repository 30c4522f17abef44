//! Systems without signals: the console passes its own on to the program.

use std::convert::Infallible;
use std::future::pending;
use std::io;

use tokio::process::Child;

/// No signals.
#[derive(Default)]
pub(super) struct Signals;

impl Signals {
    pub(super) fn receive() -> io::Result<Self> {
        Ok(Self)
    }

    pub(super) async fn next(&mut self) -> Infallible {
        pending().await
    }
}

pub(super) fn send(signal: Infallible, _: &mut Child) {
    match signal {}
}

/// Ends a program that has not ended.
pub(super) fn terminate(program: &mut Child) {
    // It may have ended just now.
    let _ = program.start_kill();
}
