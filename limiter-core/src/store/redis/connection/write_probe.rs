//! The write probe: a decision on a key of the limiter's own.
//!
//! A replica and a server without memory reply to every read. Only a write shows that they accept no permits. The probe
//! is the script call of a decision, so it needs no other commands, keys or permissions than calls do.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::server_connection::ServerConnection;
use crate::clock::Clock;
use crate::request::Request;
use crate::store::redis::command_error::CommandError;
use crate::store::redis::naming::Naming;
use crate::store::redis::script::command::{Action, Command, Commands, KeyNames};
use crate::{Error, ErrorKind, Key, Layout, Limit};

/// Builds and sends write probes.
pub(crate) struct WriteProbe {
    commands: Commands,
    naming: Arc<Naming>,
}

/// The result of a successful probe.
pub(crate) enum Written {
    /// The server accepts writes.
    Here,
    /// The server replied that another node owns the slot.
    Elsewhere,
}

/// The window of the probe's counter, after which the key expires. It is deleted at once, if the user may do that.
const WINDOW: Duration = Duration::from_millis(100);

impl WriteProbe {
    pub(crate) fn new(clock: Clock, naming: Arc<Naming>) -> Self {
        Self { commands: Commands::new(clock), naming }
    }

    /// Takes a permit of a counter in one of these slots, and deletes the counter. A server without slots is probed by a
    /// read. `on_missing_scripts` runs before the scripts are loaded again: a server without them was restarted or
    /// replaced behind its connection.
    ///
    /// # Errors
    /// The server's error.
    pub(crate) async fn run(
        &self,
        connection: &ServerConnection,
        slots: &[RangeInclusive<u16>],
        scripts: &[String; 2],
        on_missing_scripts: impl Fn(),
    ) -> Result<Written, Error> {
        let Some([name, zset_name]) = self.naming.probe_keys(slots) else {
            return connection.probe().await.map(|()| Written::Here);
        };
        let mut taken = self.take(connection, &name, Layout::Compact, scripts, &on_missing_scripts).await?;
        if matches!(&taken, Err(error) if error.is_key_refused()) {
            // A user with sorted sets alone may not write under the prefix. For others this is refused too.
            taken = self.take(connection, &zset_name, Layout::Zset, scripts, &on_missing_scripts).await?;
        }
        match taken {
            Ok(()) => Ok(Written::Here),
            Err(error) if self.naming.is_cluster() && error.redirect().is_some() => Ok(Written::Elsewhere),
            // The scripts are flushed again and again. The server replies properly.
            Err(error) if error.is_no_script() => Ok(Written::Here),
            Err(error) => match Error::from(error) {
                // Another program uses the key. That concerns no call.
                error if error.kind() == ErrorKind::Protocol => Ok(Written::Here),
                error => Err(error),
            },
        }
    }

    /// Takes a permit. The outer error is that of the connection, the inner one the reply of the server.
    async fn take(
        &self,
        connection: &ServerConnection,
        name: &str,
        layout: Layout,
        scripts: &[String; 2],
        on_missing_scripts: &impl Fn(),
    ) -> Result<Result<(), CommandError>, Error> {
        let command = self.command(name, layout);
        let script_epoch = connection.script_epoch();
        let mut sent = send(connection, &command, name).await;
        if matches!(&sent, Err(error) if error.is_no_script()) {
            on_missing_scripts();
            connection.load_scripts(script_epoch, scripts).await?;
            sent = send(connection, &command, name).await;
        }
        match sent.map(|reply| command.decode(&reply)) {
            Ok(Ok(_)) => Ok(Ok(())),
            Ok(Err(_)) => Err(connection.close_out_of_step()),
            Err(error) => Ok(Err(error)),
        }
    }

    /// The script call that takes a permit of a counter which is never used up.
    fn command(&self, name: &str, layout: Layout) -> Command {
        let sliding = Limit::nearest(u32::MAX, WINDOW);
        let limit = sliding.with_layout(layout).unwrap_or(sliding);
        let key = Key::new("");
        let request = Request::new(&key, limit, 1);
        self.commands.decide(
            &Action::Take { max_wait: Duration::ZERO, leases: false },
            &[request],
            KeyNames::from_iter([name]),
        )
    }
}

async fn send(connection: &ServerConnection, command: &Command, name: &str) -> Result<redis::Value, CommandError> {
    let call = command.with_digest(&connection.digest(command.program()));
    let mut delete = redis::cmd("DEL");
    delete.arg(name);
    let sent_at = Instant::now();
    let reply = connection.send_with_second(call, delete).await;
    connection.record_reply_since(sent_at);
    reply
}
