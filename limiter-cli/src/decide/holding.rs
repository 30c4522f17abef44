//! The program that runs while the command holds slots.

use std::ffi::OsString;
use std::io;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use rate_limited::{Builder, Entered};
use tokio::process::{Child, Command};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::program::{self, NotStarted};
use super::signals::{self, Signals};
use super::target::Target;
use crate::connection::DEADLINE;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Output;

/// The time that a program has to end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(10);

/// The reason of a loss.
const LOSS: &str = "this process stood still, or did not reach the store, for most of 10 s";

/// The place where a limiter reports that slots of this process are lost.
#[derive(Clone, Default)]
pub(super) struct LossReports(Arc<Notify>);

/// The end of a program.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Exited(ExitStatus),
    /// The command has ended it, because its slots were lost.
    ForLoss,
}

impl LossReports {
    /// Lets a limiter report to this place.
    pub(super) fn add_to(&self, builder: Builder) -> Builder {
        let Self(reports) = self.clone();
        builder.on_lost(move |_| reports.notify_one())
    }
}

/// Runs a program that holds slots, and gives them back when it has ended.
pub(super) async fn run(
    program: &[OsString],
    entered: Entered,
    target: &Target,
    ends_on_loss: bool,
    output: &Output,
) -> Result<Exit, Failure> {
    let [name, arguments @ ..] = program else { return Ok(Exit::SUCCESS) };
    // First of all: a signal would end this process, and leave the program behind without its slots.
    let signals = Signals::receive().map_err(|error| Failure::System(format!("signals are not received: {error}")))?;
    let ended = match Command::new(name).args(arguments).spawn() {
        Ok(child) => Ok(watch(child, signals, &target.losses, ends_on_loss, output).await),
        Err(error) => Err(NotStarted::new(name, error)),
    };
    let allowed = entered.allowed().clone();
    entered.leave();
    if !target.limiter.return_slots(DEADLINE).await {
        output.warn("the store has not confirmed the return of the slots: they are free after 10 s at the latest");
    }
    let shown = name.to_string_lossy();
    match ended {
        Ok(Ok(End::Exited(status))) => Ok(program::exit_of(status)),
        Ok(Ok(End::ForLoss)) => Err(Failure::Program {
            exit: Exit::STORE,
            message: format!("`{shown}` was ended, because its slots are lost: {LOSS}"),
        }),
        Ok(Err(error)) => Err(Failure::System(format!("the end of `{shown}` is not known: {error}"))),
        Err(not_started) => {
            let has_refund = target.limiter.refund(&allowed).await.is_ok();
            Err(not_started.failure(if has_refund {
                "what it had taken was given back"
            } else {
                "its permits are taken"
            }))
        }
    }
}

/// Waits for the end of a program, and passes signals on to it. If its slots are lost, it is ended or goes on.
async fn watch(
    mut child: Child,
    mut signals: Signals,
    losses: &LossReports,
    ends_on_loss: bool,
    output: &Output,
) -> io::Result<End> {
    loop {
        tokio::select! {
            biased;
            status = child.wait() => return status.map(End::Exited),
            signal = signals.next() => signals::send(signal, &mut child),
            () = losses.0.notified() => {
                if ends_on_loss {
                    break;
                }
                output.warn(format_args!("the slots of the program are lost, and it goes on: {LOSS}"));
            }
        }
    }
    signals::terminate(&mut child);
    if timeout(PATIENCE, child.wait()).await.is_err() {
        child.kill().await?;
    }
    Ok(End::ForLoss)
}

#[cfg(all(test, unix))]
mod tests {
    use std::process::Stdio;

    use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
    use tokio::process::ChildStdout;
    use tokio::task::yield_now;

    use super::*;

    fn output() -> Output {
        Output::before_parsing(std::iter::empty())
    }

    /// Starts a program that writes a line when it is ready.
    async fn start(script: &str) -> (Child, BufReader<ChildStdout>) {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("`sh` starts");
        let mut written = BufReader::new(child.stdout.take().expect("a pipe"));
        written.read_line(&mut String::new()).await.expect("a line");
        (child, written)
    }

    #[tokio::test]
    async fn a_program_goes_on_without_its_slots() {
        let (mut child, _) = start("echo ready; read line; exit 5").await;
        let (input, losses, output) = (child.stdin.take(), LossReports::default(), output());
        let lose = async {
            losses.0.notify_one();
            yield_now().await;
            drop(input);
        };
        let (end, ()) = tokio::join!(watch(child, Signals::default(), &losses, false, &output), lose);
        assert!(matches!(end, Ok(End::Exited(status)) if status.code() == Some(5)), "{end:?}");
    }

    #[tokio::test]
    async fn a_program_without_its_slots_is_ended_and_may_clean_up() {
        let (child, mut written) =
            start("trap 'echo ended; exit' TERM; echo ready; while :; do sleep 0.01; done").await;
        let losses = LossReports::default();
        losses.0.notify_one();
        let end = watch(child, Signals::default(), &losses, true, &output()).await;
        assert!(matches!(end, Ok(End::ForLoss)), "{end:?}");
        let mut rest = String::new();
        written.read_to_string(&mut rest).await.expect("a pipe");
        assert_eq!(rest, "ended\n");
    }

    #[tokio::test]
    async fn a_program_that_does_not_end_without_its_slots_is_killed() {
        let (child, _) = start("trap '' TERM; echo ready; while :; do sleep 0.01; done").await;
        let losses = LossReports::default();
        losses.0.notify_one();
        // All wait, so the clock goes on to the end of the patience.
        tokio::time::pause();
        let end = watch(child, Signals::default(), &losses, true, &output()).await;
        assert!(matches!(end, Ok(End::ForLoss)), "{end:?}");
    }
}
