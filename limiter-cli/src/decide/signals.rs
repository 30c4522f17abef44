//! Signals that the command passes on to the program that it waits for.

use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::task::Poll;

use rustix::process::{Pid, Signal, getpgrp, kill_process};
use rustix::termios::tcgetpgrp;
use tokio::process::Child;
use tokio::signal::unix::{self, SignalKind, signal};

/// The signals that would end the command, and with it the renewals of its slots.
const PASSED_ON: [Signal; 4] = [Signal::TERM, Signal::HUP, Signal::INT, Signal::QUIT];

/// The signals that the command has received, and has not passed on.
#[derive(Default)]
pub(super) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// Receives signals from now on, in place of ending by them. Those that are ignored, as under `nohup`, stay so: the
    /// program ignores them too.
    pub(super) fn receive() -> io::Result<Self> {
        let ignored = ignored_signals();
        let receive = |passed_on: Signal| Ok((passed_on, signal(SignalKind::from_raw(passed_on.as_raw()))?));
        let is_received = |passed_on: &Signal| ignored >> (passed_on.as_raw() - 1) & 1 == 0;
        PASSED_ON.into_iter().filter(is_received).map(receive).collect::<io::Result<_>>().map(Self)
    }

    /// Returns the next signal that the program has not received itself.
    pub(super) async fn next(&mut self) -> Signal {
        loop {
            let received = poll_fn(|context| {
                let mut received = self.0.iter_mut().filter_map(|(passed_on, signal)| {
                    matches!(signal.poll_recv(context), Poll::Ready(Some(()))).then_some(*passed_on)
                });
                received.next().map_or(Poll::Pending, Poll::Ready)
            });
            let received = received.await;
            if !(is_of_keyboard(received) && is_in_foreground()) {
                return received;
            }
        }
    }
}

/// Sends a signal to a program that has not ended.
pub(super) fn send(signal: Signal, program: &mut Child) {
    let id = program.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(id) = id {
        // It may have ended just now.
        let _ = kill_process(id, signal);
    }
}

/// Lets a program end that has not ended.
pub(super) fn terminate(program: &mut Child) {
    send(Signal::TERM, program);
}

/// Returns whether a terminal sends this signal, for a key, to all processes in its foreground.
fn is_of_keyboard(signal: Signal) -> bool {
    [Signal::INT, Signal::QUIT].contains(&signal)
}

/// Returns whether this process is in the foreground of a terminal. So is the program, which is in the same group.
fn is_in_foreground() -> bool {
    File::open("/dev/tty").is_ok_and(|terminal| tcgetpgrp(terminal).is_ok_and(|foreground| foreground == getpgrp()))
}

/// Returns the signals that this process ignores, the first in the lowest bit. None are known without `/proc`.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}
