//! The connection to a server that decides: this crate's own, or the client's.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{Cmd, ConnectionAddr, ConnectionInfo, Pipeline, RedisError, RedisResult, Value};
use tokio::sync::Notify;

use super::connect::{connect, notify_on_disconnect};
use super::{handshake, socket};
use crate::Error;
use crate::store::redis::command_error::CommandError;
use crate::store::redis::pipelined::{DirectWriter, PipelinedConnection, ReplyBound};

/// A connection. Clones are the same one.
#[derive(Clone)]
pub(crate) enum DataConnection {
    Own(PipelinedConnection),
    /// With TLS, and with settings that cannot be read from those of a `redis::Client`.
    OfClient(MultiplexedConnection),
}

impl DataConnection {
    /// Opens a connection, and notifies `lost` when it breaks. Only the lookup of the host name is limited in time, to
    /// nine tenths of `time_limit`.
    pub(super) async fn open(info: ConnectionInfo, time_limit: Duration, lost: Arc<Notify>) -> Result<Self, Error> {
        let is_tls = matches!(info.addr(), ConnectionAddr::TcpTls { .. });
        if is_tls || !can_be_read(info.tcp_settings()) {
            return Ok(Self::OfClient(connect(info, time_limit, Some(notify_on_disconnect(lost))).await?));
        }
        let opened = async {
            let stream = socket::open(&info, time_limit * 9 / 10).await?;
            let connection = PipelinedConnection::new(stream, lost);
            handshake::run(&connection, info.redis_settings()).await?;
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

    /// Lends the write half to callers, if the connection is idle and this crate's own.
    pub(crate) fn lend(&self, at: &Arc<DirectWriter>, digest: Arc<str>) {
        if let Self::Own(connection) = self {
            connection.lend(at, digest);
        }
    }

    /// Takes the write half back.
    pub(crate) fn take_back(&self) {
        if let Self::Own(connection) = self {
            connection.take_back();
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

/// Returns true if all settings have getters. `linger` has none, and later versions of the client may have more such
/// settings, so the texts of all settings are compared.
fn can_be_read(settings: &TcpSettings) -> bool {
    let mut readable = TcpSettings::default().set_nodelay(settings.nodelay());
    if let Some(keepalive) = settings.keepalive() {
        readable = readable.set_keepalive(keepalive.clone());
    }
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    if let Some(timeout) = settings.user_timeout() {
        readable = readable.set_user_timeout(timeout);
    }
    format!("{settings:?}") == format!("{readable:?}")
}

#[cfg(test)]
mod tests {
    use redis::io::tcp::socket2::TcpKeepalive;

    use super::*;

    #[test]
    fn settings_without_getter_are_left_to_the_client() {
        let keepalive = TcpKeepalive::new().with_time(Duration::from_secs(7));
        let readable = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
        assert!(can_be_read(&TcpSettings::default()) && can_be_read(&readable));
        assert!(!can_be_read(&readable.set_linger_time(Duration::ZERO)));
    }
}
