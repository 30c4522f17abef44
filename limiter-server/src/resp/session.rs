//! The state of a connection, and the commands about it that clients send when they connect.

use std::time::Instant;

use super::calls::{CALL_NAMES, CallKind};
use super::commands::{COMMAND_COUNT, Command, CommandSpec, Refusal, shown};
use super::parser::{Arguments, number};
use super::reply::{Protocol, Replies};
use crate::access::Access;
use crate::reports::ProtocolReports;

/// The version of Redis whose protocol and replies the server has. Clients choose their commands by it.
const REDIS_VERSION: &str = "7.0.0";
/// The most wrong passwords of a connection.
const MAX_WRONG_PASSWORDS: u32 = 10;
/// The most bytes of the name of a connection.
const MAX_NAME_BYTES: usize = 1 << 10;

/// The facts about the server that commands need.
pub(super) struct ServerFacts {
    /// Its token is the password.
    access: Access,
    started: Instant,
    /// The series of the calls.
    pub(super) reports: ProtocolReports,
}

impl ServerFacts {
    pub(super) fn new(access: Access) -> Self {
        Self { access, started: Instant::now(), reports: ProtocolReports::new("resp", CALL_NAMES) }
    }
}

/// The state of a connection.
#[derive(Debug)]
pub(super) struct Session {
    id: u64,
    protocol: Protocol,
    is_trusted: bool,
    name: Vec<u8>,
    wrong_passwords: u32,
}

/// The next step after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Continue,
    /// The connection ends after its replies.
    Close,
}

impl Session {
    /// Creates the state of a connection with this number.
    pub(super) fn new(id: u64, facts: &ServerFacts) -> Self {
        let is_trusted = !facts.access.has_token();
        Self { id, protocol: Protocol::Resp2, is_trusted, name: Vec::new(), wrong_passwords: 0 }
    }

    /// The version in which it gets its replies.
    pub(super) fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Returns whether it has sent the password, or needs none.
    pub(super) fn is_trusted(&self) -> bool {
        self.is_trusted
    }

    /// Checks whether a command may run.
    ///
    /// # Errors
    /// The connection has not sent the password, or the server has none and the command needs it.
    pub(super) fn check(&self, spec: &CommandSpec, facts: &ServerFacts) -> Result<(), Refusal> {
        match spec.command {
            Command::Auth | Command::Hello | Command::Quit | Command::Reset => Ok(()),
            _ if !self.is_trusted => Err(Refusal::NoPassword),
            Command::Call(CallKind::Reset) if !facts.access.has_token() => Err(Refusal::NoToken { name: spec.name }),
            _ => Ok(()),
        }
    }

    /// Runs a command about the connection.
    pub(super) fn run(
        &mut self,
        command: Command,
        arguments: Arguments<'_, '_>,
        facts: &ServerFacts,
        replies: &mut Replies,
    ) -> Next {
        match command {
            // The service decides about these.
            Command::Call(_) => {}
            Command::Auth => self.authenticate(arguments, facts, replies),
            Command::Client => self.client(arguments, replies),
            Command::Describe => self.describe(arguments, replies),
            Command::Echo => replies.bulk(arguments.get(1).unwrap_or_default()),
            Command::Hello => self.hello(arguments, facts, replies),
            Command::Info => replies.verbatim(&info(facts), self.protocol),
            Command::Ping => match arguments.get(1) {
                None => replies.status("PONG"),
                Some(message) => replies.bulk(message),
            },
            Command::Quit => {
                replies.status("OK");
                return Next::Close;
            }
            Command::Reset => {
                *self = Self { wrong_passwords: self.wrong_passwords, ..Self::new(self.id, facts) };
                replies.status("RESET");
            }
            Command::Select => match arguments.get(1).and_then(number) {
                Some(0) => replies.status("OK"),
                Some(_) => replies.error(format_args!("ERR DB index is out of range")),
                None => replies.error(format_args!("ERR value is not an integer or out of range")),
            },
        }
        if self.wrong_passwords < MAX_WRONG_PASSWORDS { Next::Continue } else { Next::Close }
    }

    fn authenticate(&mut self, arguments: Arguments<'_, '_>, facts: &ServerFacts, replies: &mut Replies) {
        if arguments.len() == 2 && !facts.access.has_token() {
            return replies.error(format_args!(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
                 configuration is correct?"
            ));
        }
        let password = arguments.get(arguments.len() - 1).unwrap_or_default();
        if self.accept(password, facts, replies) {
            replies.status("OK");
        }
    }

    /// Compares a password. Any user has that of the server. A wrong one changes nothing but their count.
    fn accept(&mut self, password: &[u8], facts: &ServerFacts, replies: &mut Replies) -> bool {
        // Redis without a password takes every one of its default user.
        let is_right = !facts.access.has_token() || facts.access.is_token(password);
        if is_right {
            (self.is_trusted, self.wrong_passwords) = (true, 0);
        } else {
            self.wrong_passwords += 1;
            replies.error(format_args!("WRONGPASS invalid username-password pair or user is disabled."));
        }
        is_right
    }

    /// `HELLO [version [AUTH user password] [SETNAME name]]`
    fn hello(&mut self, arguments: Arguments<'_, '_>, facts: &ServerFacts, replies: &mut Replies) {
        let protocol = match arguments.get(1).map(number) {
            None => self.protocol,
            Some(Some(2)) => Protocol::Resp2,
            Some(Some(3)) => Protocol::Resp3,
            Some(Some(_)) => return replies.error(format_args!("NOPROTO unsupported protocol version")),
            Some(None) => {
                return replies.error(format_args!("ERR Protocol version is not an integer or out of range"));
            }
        };
        let (mut index, mut password, mut name) = (2, None, None);
        while let Some(option) = arguments.get(index) {
            if option.eq_ignore_ascii_case(b"AUTH") && arguments.len() > index + 2 {
                password = arguments.get(index + 2);
                index += 3;
            } else if option.eq_ignore_ascii_case(b"SETNAME") && arguments.len() > index + 1 {
                name = arguments.get(index + 1);
                index += 2;
            } else {
                return replies.error(format_args!("ERR Syntax error in HELLO option '{}'", shown(option)));
            }
        }
        if let Some(password) = password
            && !self.accept(password, facts, replies)
        {
            return;
        }
        if !self.is_trusted {
            return replies.error(format_args!(
                "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH \
                 <user> <pass> option can be used to authenticate the client and select the RESP protocol version at \
                 the same time"
            ));
        }
        if let Some(name) = name
            && !self.set_name(name, replies)
        {
            return;
        }
        self.protocol = protocol;
        replies.map(7, protocol);
        replies.bulk(b"server");
        replies.bulk(b"limiter-server");
        replies.bulk(b"version");
        replies.bulk(env!("CARGO_PKG_VERSION").as_bytes());
        replies.bulk(b"proto");
        replies.integer(if protocol == Protocol::Resp3 { 3 } else { 2 });
        replies.bulk(b"id");
        replies.unsigned(self.id);
        replies.bulk(b"mode");
        replies.bulk(b"standalone");
        replies.bulk(b"role");
        replies.bulk(b"master");
        replies.bulk(b"modules");
        replies.array(0);
    }

    /// Sets the name of the connection. Otherwise it writes the error that Redis has.
    fn set_name(&mut self, name: &[u8], replies: &mut Replies) -> bool {
        let is_valid = name.len() <= MAX_NAME_BYTES && name.iter().all(u8::is_ascii_graphic);
        if is_valid {
            self.name = name.to_vec();
        } else {
            replies.error(format_args!("ERR Client names cannot contain spaces, newlines or special characters."));
        }
        is_valid
    }

    fn client(&mut self, arguments: Arguments<'_, '_>, replies: &mut Replies) {
        let subcommand = arguments.get(1).unwrap_or_default();
        let is = |name: &str| subcommand.eq_ignore_ascii_case(name.as_bytes());
        let given = arguments.len() - 2;
        let mut has = |needed: usize, name: &'static str| {
            if given != needed {
                replies.error(format_args!("{}", Refusal::WrongNumberOfArguments { name }));
            }
            given == needed
        };
        let first = arguments.get(2).unwrap_or_default();
        if is("SETINFO") {
            // A name or a version of a library, which no reply needs.
            if has(2, "client|setinfo") {
                let is_known = [&b"LIB-NAME"[..], b"LIB-VER"].iter().any(|known| first.eq_ignore_ascii_case(known));
                match is_known {
                    true => replies.status("OK"),
                    false => replies.error(format_args!("ERR Unrecognized option '{}'", shown(first))),
                }
            }
        } else if is("SETNAME") {
            if has(1, "client|setname") && self.set_name(first, replies) {
                replies.status("OK");
            }
        } else if is("GETNAME") {
            if has(0, "client|getname") {
                match &*self.name {
                    [] => replies.null(self.protocol),
                    name => replies.bulk(name),
                }
            }
        } else if is("ID") {
            if has(0, "client|id") {
                replies.unsigned(self.id);
            }
        } else {
            // `MAINT_NOTIFICATIONS` too: clients go on without it.
            replies.error(format_args!("ERR unknown subcommand '{}'", shown(subcommand)));
        }
    }

    fn describe(&self, arguments: Arguments<'_, '_>, replies: &mut Replies) {
        match arguments.get(1) {
            Some(subcommand) if subcommand.eq_ignore_ascii_case(b"COUNT") => {
                replies.unsigned(u64::try_from(COMMAND_COUNT).unwrap_or(u64::MAX));
            }
            Some(subcommand) if subcommand.eq_ignore_ascii_case(b"DOCS") => replies.map(0, self.protocol),
            None => replies.array(0),
            Some(subcommand) if [&b"INFO"[..], b"LIST"].iter().any(|known| subcommand.eq_ignore_ascii_case(known)) => {
                replies.array(0);
            }
            Some(subcommand) => replies.error(format_args!("ERR unknown subcommand '{}'", shown(subcommand))),
        }
    }
}

/// The text of `INFO`, with the fields that clients read when they connect.
fn info(facts: &ServerFacts) -> String {
    format!(
        "# Server\r\nserver_name:limiter-server\r\nlimiter_server_version:{}\r\nredis_version:{REDIS_VERSION}\r\n\
         redis_mode:standalone\r\nprocess_id:{}\r\nuptime_in_seconds:{}\r\n\r\n\
         # Persistence\r\nloading:0\r\n\r\n# Replication\r\nrole:master\r\nconnected_slaves:0\r\n",
        env!("CARGO_PKG_VERSION"),
        std::process::id(),
        facts.started.elapsed().as_secs(),
    )
}
