//! Hears from the sentinels that another server is the master.
//!
//! A master that died is noticed without them. One that was replaced while it is alive, or cut off from the others, goes
//! on as if nothing had happened until somebody tells it, which takes sentinels ten seconds and more: meanwhile half of
//! the processes would count here and half there.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{ConnectionInfo, ProtocolVersion, PushInfo, PushKind, from_redis_value};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::Error;
use crate::store::redis::command_error::CommandError;
use crate::store::redis::server::connect::{Listener, connect};
use crate::store::redis::server::sentinels::{Address, where_is};

/// What sentinels say when they agree on another master: its name, where it was, and where it is.
const CHANNEL: &str = "+switch-master";

/// How long a sentinel may take to be listened to.
const PATIENCE: Duration = Duration::from_secs(1);

/// Listens to one sentinel at a time, until it is dropped.
pub(super) struct Watch(JoinHandle<()>);

impl Watch {
    /// Tells `lost` when `master` is not at this address any more. The first of the sentinels has named it.
    pub(super) fn start(each: Vec<ConnectionInfo>, master: String, address: Address, lost: Arc<Notify>) -> Self {
        Self(tokio::spawn(async move {
            let mut watched = Watched { master, named: Named::new(address, each.len()), lost };
            loop {
                for (place, sentinel) in each.iter().enumerate() {
                    let gone = Arc::new(Notify::new());
                    if let Ok(Ok(Some(_connection))) = timeout(PATIENCE, watched.listen(place, sentinel, &gone)).await {
                        gone.notified().await;
                    }
                    sleep(PATIENCE).await;
                }
            }
        }))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Watched {
    master: String,
    named: Named,
    lost: Arc<Notify>,
}

/// The address in use, and the sentinels that have named it.
struct Named {
    address: Address,
    by: Vec<bool>,
}

impl Named {
    /// The first of the sentinels has named it.
    fn new(address: Address, sentinels: usize) -> Self {
        Self { address, by: (0..sentinels).map(|place| place == 0).collect() }
    }

    /// Judges the address in use by a sentinel's answer.
    ///
    /// A sentinel that has named the address and now names another one has moved on. One that never named it may be
    /// behind the others, and would name the last master for as long as it is asked.
    fn evaluate(&mut self, place: usize, answer: &Address) -> Verdict {
        let is_same = *answer == self.address;
        self.by[place] |= is_same;
        match (is_same, self.by[place]) {
            (true, _) => Verdict::UpToDate,
            (false, true) => Verdict::Outdated,
            (false, false) => Verdict::Unknown,
        }
    }
}

/// The state of the address in use, as far as one sentinel's answer proves it.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    UpToDate,
    Outdated,
    Unknown,
}

impl Watched {
    /// Subscribes, and returns the connection, which is to be kept until it is `gone`. `None` if the sentinel disagrees with
    /// the others: another one has to be listened to.
    ///
    /// What was announced while no connection listened was missed, so each new one asks for the address.
    async fn listen(
        &mut self,
        place: usize,
        sentinel: &ConnectionInfo,
        gone: &Arc<Notify>,
    ) -> Result<Option<MultiplexedConnection>, Error> {
        let settings = sentinel.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let info = sentinel.clone().set_redis_settings(settings);
        let mut connection = connect(info, PATIENCE, Some(self.listener(gone))).await?;
        connection.subscribe(CHANNEL).await.map_err(CommandError::from)?;
        let answer = connection.send_packed_command(&where_is(&self.master)).await.map_err(CommandError::from)?;
        let verdict = from_redis_value(answer).map_or(Verdict::Unknown, |answer| self.named.evaluate(place, &answer));
        if verdict == Verdict::Outdated {
            self.lost.notify_one();
        }
        Ok((verdict != Verdict::Unknown).then_some(connection))
    }

    fn listener(&self, gone: &Arc<Notify>) -> Listener {
        let (host, port) = &self.named.address;
        let (about, here) = (format!("{} ", self.master), format!(" {host} {port}"));
        let (gone, lost) = (Arc::clone(gone), Arc::clone(&self.lost));
        Box::new(move |push: PushInfo| match push.kind {
            PushKind::Disconnection => gone.notify_one(),
            PushKind::Message => {
                let said = push.data.into_iter().nth(1).and_then(|said| from_redis_value::<String>(said).ok());
                // It may be late to say what others have said before.
                if said.is_some_and(|said| said.starts_with(&about) && !said.ends_with(&here)) {
                    lost.notify_one();
                }
            }
            _ => {}
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> Address {
        ("127.0.0.1".to_owned(), port)
    }

    #[test]
    fn a_sentinel_that_named_the_address_and_names_another_proves_it_outdated() {
        let mut named = Named::new(at(2), 2);
        assert_eq!(named.evaluate(0, &at(2)), Verdict::UpToDate);
        assert_eq!(named.evaluate(0, &at(3)), Verdict::Outdated);
    }

    #[test]
    fn a_sentinel_that_is_behind_proves_nothing_until_it_has_named_the_address() {
        let mut named = Named::new(at(2), 2);
        assert_eq!(named.evaluate(1, &at(1)), Verdict::Unknown);
        assert_eq!(named.evaluate(1, &at(2)), Verdict::UpToDate);
        assert_eq!(named.evaluate(1, &at(3)), Verdict::Outdated);
    }
}
