//! The commands by name, with the numbers of their arguments.

use std::fmt;

use super::calls::{CallError, CallKind};
use super::parser::Arguments;

/// A command and its rules.
#[derive(Debug)]
pub(super) struct CommandSpec {
    /// The name in upper case. A client may write it in any.
    pub(super) name: &'static str,
    /// The fewest and the most arguments, without the name.
    arguments: (usize, usize),
    pub(super) command: Command,
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    /// The service decides.
    Call(CallKind),
    Auth,
    Client,
    Describe,
    Echo,
    Hello,
    Info,
    Ping,
    Quit,
    Reset,
    Select,
}

const ANY: usize = usize::MAX;

/// The most frequent commands are first.
const COMMANDS: [CommandSpec; 15] = [
    spec("RL.CHECK", (1, ANY), Command::Call(CallKind::Check)),
    spec("CL.THROTTLE", (4, 5), Command::Call(CallKind::Throttle)),
    spec("RL.CHARGE", (1, ANY), Command::Call(CallKind::Charge)),
    spec("RL.PEEK", (1, ANY), Command::Call(CallKind::Peek)),
    spec("RL.RESET", (1, ANY), Command::Call(CallKind::Reset)),
    spec("PING", (0, 1), Command::Ping),
    spec("AUTH", (1, 2), Command::Auth),
    spec("CLIENT", (1, ANY), Command::Client),
    spec("COMMAND", (0, ANY), Command::Describe),
    spec("ECHO", (1, 1), Command::Echo),
    spec("HELLO", (0, ANY), Command::Hello),
    spec("INFO", (0, ANY), Command::Info),
    spec("QUIT", (0, ANY), Command::Quit),
    spec("RESET", (0, 0), Command::Reset),
    spec("SELECT", (1, 1), Command::Select),
];

/// The number of commands.
pub(super) const COMMAND_COUNT: usize = COMMANDS.len();

const fn spec(name: &'static str, arguments: (usize, usize), command: Command) -> CommandSpec {
    CommandSpec { name, arguments, command }
}

/// The commands around a pipeline that clients of Redis make a transaction by default.
const TRANSACTIONS: [&str; 4] = ["MULTI", "EXEC", "DISCARD", "WATCH"];

/// The reason why a command is not run, as Redis words it.
#[derive(Debug)]
pub(super) enum Refusal {
    UnknownCommand {
        name: String,
    },
    /// The name is that of a command, or of a subcommand as in `CLIENT|SETNAME`.
    WrongNumberOfArguments {
        name: &'static str,
    },
    NoPassword,
    /// The command needs the token of a server that has none.
    NoToken {
        name: &'static str,
    },
    Call(CallError),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownCommand { name } if TRANSACTIONS.iter().any(|known| name.eq_ignore_ascii_case(known)) => {
                write!(f, "ERR unknown command '{name}': there are no transactions here, use a pipeline without one")
            }
            Self::UnknownCommand { name } => write!(f, "ERR unknown command '{name}'"),
            Self::WrongNumberOfArguments { name } => {
                write!(f, "ERR wrong number of arguments for '{}' command", name.to_ascii_lowercase())
            }
            Self::NoPassword => f.write_str("NOAUTH Authentication required."),
            Self::NoToken { name } => write!(
                f,
                "NOPERM {name} is for callers with the token of the server, which has none: start the server with \
                 `--token-file`"
            ),
            Self::Call(error) => write!(f, "ERR {error}"),
        }
    }
}

impl From<CallError> for Refusal {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

/// Returns the command of these arguments.
///
/// # Errors
/// There is none of the name, or it has another number of arguments.
pub(super) fn find(arguments: Arguments<'_, '_>) -> Result<&'static CommandSpec, Refusal> {
    let name = arguments.get(0).unwrap_or_default();
    let spec = COMMANDS.iter().find(|spec| name.eq_ignore_ascii_case(spec.name.as_bytes()));
    let spec = spec.ok_or_else(|| Refusal::UnknownCommand { name: shown(name) })?;
    let (fewest, most) = spec.arguments;
    if (fewest..=most).contains(&(arguments.len() - 1)) {
        Ok(spec)
    } else {
        Err(Refusal::WrongNumberOfArguments { name: spec.name })
    }
}

/// Returns the start of a text of a client, for an error.
pub(super) fn shown(text: &[u8]) -> String {
    const MAX_BYTES: usize = 64;
    String::from_utf8_lossy(&text[..text.len().min(MAX_BYTES)]).into_owned()
}
