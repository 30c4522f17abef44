//! The connection to a server that decides: this crate's own, or the client's.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    Cmd, ErrorKind as RedisKind, Pipeline, RedisConnectionInfo, RedisError, RedisResult, ServerErrorKind, Value, cmd,
};
use tokio::sync::Notify;

use super::connect::{connect, notify_on_disconnect};
use super::connection_settings::ConnectionSettings;
use super::socket;
#[cfg(feature = "tls")]
use super::tls_socket;
use crate::Error;
use crate::store::redis::command_error::CommandError;
use crate::store::redis::pipelined::{
    DirectWriter, MessageHandler, PipelinedConnection, ReplyBound, Transport, WriteLoan,
};

/// A connection. Clones are the same one.
#[derive(Clone)]
pub(crate) enum DataConnection {
    Own(PipelinedConnection),
    /// With settings that cannot be read from those of a `redis::Client`, such as its certificates.
    OfClient(MultiplexedConnection),
}

impl DataConnection {
    /// Opens a connection, and notifies `lost` when it breaks. Only the lookup of the host name is limited in time, to
    /// nine tenths of `time_limit`.
    pub(super) async fn open(
        settings: ConnectionSettings,
        time_limit: Duration,
        lost: Arc<Notify>,
    ) -> Result<Self, Error> {
        if !settings.can_be_read() {
            let listener = notify_on_disconnect(lost);
            return Ok(Self::OfClient(connect(settings.into_info(), time_limit, Some(listener)).await?));
        }
        let opened = async {
            let transport = open_transport(&settings, time_limit * 9 / 10).await?;
            let connection = PipelinedConnection::new(transport, lost);
            run_handshake(&connection, settings.info().redis_settings()).await?;
            Ok(Self::Own(connection))
        };
        opened.await.map_err(|error: RedisError| CommandError::from(error).into())
    }

    /// Sends a command and waits for its reply.
    pub(crate) async fn send(&self, command: &Cmd, bound: ReplyBound) -> RedisResult<Value> {
        match self {
            Self::Own(connection) => connection.send(command, bound).await,
            Self::OfClient(connection) => connection.clone().send_packed_command(command).await,
        }
    }

    /// Sets what gets the messages of channels. Returns whether it gets them: not from a connection of the client's.
    pub(crate) fn on_message(&self, handler: MessageHandler) -> bool {
        let Self::Own(connection) = self else { return false };
        connection.on_message(handler);
        true
    }

    /// Sends two commands and waits for the reply to the second.
    pub(crate) async fn send_behind(&self, first: &Cmd, command: &Cmd, bound: ReplyBound) -> RedisResult<Value> {
        match self {
            Self::Own(connection) => connection.send_behind(first, command, bound).await,
            Self::OfClient(connection) => {
                let mut pipeline = Pipeline::with_capacity(2);
                pipeline.add_command(first.clone()).add_command(command.clone());
                let mut values = connection.clone().send_packed_commands(&pipeline, 1, 1).await?;
                Ok(values.pop().unwrap_or(Value::Nil))
            }
        }
    }

    /// Sends commands together and waits for the replies to all of them.
    pub(crate) async fn send_all(&self, commands: &[Cmd]) -> RedisResult<Vec<Value>> {
        match self {
            Self::Own(connection) => connection.send_all(commands).await,
            Self::OfClient(connection) => {
                let mut pipeline = Pipeline::with_capacity(commands.len());
                for command in commands {
                    pipeline.add_command(command.clone());
                }
                connection.clone().send_packed_commands(&pipeline, 0, commands.len()).await
            }
        }
    }

    /// The handle by which the write half is lent to callers, if the connection is this crate's own.
    pub(crate) fn write_loan(&self, at: Arc<DirectWriter>) -> Option<WriteLoan> {
        match self {
            Self::Own(connection) => Some(connection.write_loan(at)),
            Self::OfClient(_) => None,
        }
    }

    /// Closes the connection. The client's closes with its last clone.
    pub(crate) fn close(&self) {
        if let Self::Own(connection) = self {
            connection.close();
        }
    }

    /// Returns the reason why the connection was closed, if it is an unusable reply.
    pub(crate) fn take_cause(&self) -> Option<Error> {
        match self {
            Self::Own(connection) => connection.take_cause(),
            Self::OfClient(_) => None,
        }
    }
}

/// Opens a socket for a connection of this crate's own. The lookup of the host name is limited to `max_lookup`.
async fn open_transport(settings: &ConnectionSettings, max_lookup: Duration) -> RedisResult<Transport> {
    #[cfg(feature = "tls")]
    if let Some(tls) = settings.readable_tls() {
        return Ok(tls_socket::open(settings.info(), tls, max_lookup).await?.into());
    }
    Ok(socket::open(settings.info(), max_lookup).await?.into())
}

// The first commands of a connection: protocol, user, database, and the library's name.

/// The library's name and version in CLIENT LIST, unless the settings have others.
const DEFAULT_LIB: (&str, &str) = ("rate-limited", env!("CARGO_PKG_VERSION"));

/// Sends the commands that the client sends on a new connection with RESP3, and checks the replies as the client does.
pub(super) async fn run_handshake(connection: &PipelinedConnection, settings: &RedisConnectionInfo) -> RedisResult<()> {
    let mut replies = connection.send_all(&commands(settings)).await?.into_iter();
    if let Some(Value::ServerError(error)) = replies.next() {
        return Err(hello_error(error.into()));
    }
    match replies.next() {
        Some(Value::ServerError(error)) if settings.db() != 0 => Err(select_error(error.details())),
        // The replies to CLIENT SETINFO do not matter: servers before Redis 7.2 do not have it.
        _ => Ok(()),
    }
}

fn commands(settings: &RedisConnectionInfo) -> Vec<Cmd> {
    let mut hello = cmd("HELLO");
    hello.arg(3);
    if let Some(password) = settings.password() {
        hello.arg("AUTH").arg(settings.username().unwrap_or("default")).arg(password);
    }
    let mut commands = vec![hello];
    if settings.db() != 0 {
        commands.push(cmd("SELECT").arg(settings.db()).clone());
    }
    if !settings.skip_set_lib_name() {
        let (name, version) = DEFAULT_LIB;
        let fields =
            [("LIB-NAME", settings.lib_name().unwrap_or(name)), ("LIB-VER", settings.lib_ver().unwrap_or(version))];
        commands.extend(fields.map(|(field, value)| cmd("CLIENT").arg("SETINFO").arg(field).arg(value).clone()));
    }
    commands
}

fn hello_error(error: RedisError) -> RedisError {
    if error.detail().is_some_and(|detail| detail.starts_with("unknown command `HELLO`")) {
        return (RedisKind::RESP3NotSupported, "the server does not have HELLO").into();
    }
    error
}

fn select_error(detail: Option<&str>) -> RedisError {
    let (kind, problem) = (ServerErrorKind::ResponseError.into(), "the server refused the database");
    match detail {
        Some(detail) => (kind, problem, detail.to_owned()).into(),
        None => (kind, problem).into(),
    }
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use std::fs;

    use limiter_testkit::RedisServer;
    use redis::{Client, TlsCertificates, cmd};
    use tokio::task::LocalSet;

    use super::*;
    use crate::Tls;

    /// Longer than any test takes.
    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn certificates_that_can_be_read_have_an_own_connection() {
        let server = RedisServer::builder().tls().password("p@ss").start();
        let certificate = fs::read(server.ca_certificate().expect("TLS")).expect("a certificate");
        let certificates = TlsCertificates { client_tls: None, root_cert: Some(certificate.clone()) };
        let client = Client::build_with_tls(server.url(), certificates).expect("a certificate");
        let of_client = ConnectionSettings::new(client.get_connection_info().clone());
        let own = of_client.clone().with_tls(&Tls::new().root_certificate(certificate)).expect("a certificate");
        for (settings, is_own) in [(of_client, false), (own, true)] {
            LocalSet::new()
                .run_until(async {
                    let opened = DataConnection::open(settings, LONG, Arc::default()).await;
                    let connection = opened.expect("a trusted server");
                    assert_eq!(matches!(connection, DataConnection::Own(_)), is_own);
                    let reply = connection.send(cmd("ECHO").arg("a"), ReplyBound::Script).await;
                    assert_eq!(reply, Ok(Value::BulkString(b"a".to_vec())));
                })
                .await;
        }
    }
}

#[cfg(test)]
mod handshake_tests {
    use super::*;

    fn packed(settings: &RedisConnectionInfo) -> String {
        let texts = commands(settings).into_iter().map(|command| {
            let arguments = command.args_iter().map(|argument| match argument {
                redis::Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                _ => String::new(),
            });
            arguments.collect::<Vec<_>>().join(" ")
        });
        texts.collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn sends_what_the_settings_have() {
        let settings = RedisConnectionInfo::default;
        let names = settings().set_lib_name("name", "1.2");
        assert_eq!(packed(&names), "HELLO 3; CLIENT SETINFO LIB-NAME name; CLIENT SETINFO LIB-VER 1.2");
        let short = settings().set_skip_set_lib_name();
        assert_eq!(packed(&short.clone().set_password("p")), "HELLO 3 AUTH default p");
        let all = short.set_username("u").set_password("p").set_db(2);
        assert_eq!(packed(&all), "HELLO 3 AUTH u p; SELECT 2");
    }
}
