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

use super::connect::{Listener, connect};
use super::sentinels::{Address, where_is};
use crate::Error;
use crate::store::redis::failure::Refusal;

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
            let mut watched = Watched { master, address, doubted: true, lost };
            loop {
                for sentinel in &each {
                    let gone = Arc::new(Notify::new());
                    if let Ok(Ok(_connection)) = timeout(PATIENCE, watched.listen(sentinel, &gone)).await {
                        gone.notified().await;
                    }
                    // One that is behind the others would name the last master for as long as it is asked, so only the
                    // one that named this one is.
                    watched.doubted = false;
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
    address: Address,
    /// It may have changed before anybody listened.
    doubted: bool,
    lost: Arc<Notify>,
}

impl Watched {
    /// Subscribes, and gives what has to be kept until it is `gone`.
    async fn listen(&self, sentinel: &ConnectionInfo, gone: &Arc<Notify>) -> Result<MultiplexedConnection, Error> {
        let settings = sentinel.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let info = sentinel.clone().set_redis_settings(settings);
        let mut connection = connect(info, PATIENCE, Some(self.listener(gone))).await?;
        connection.subscribe(CHANNEL).await.map_err(Refusal::from)?;
        if self.doubted {
            let now = connection.send_packed_command(&where_is(&self.master)).await.map_err(Refusal::from)?;
            if from_redis_value::<Address>(now).is_ok_and(|now| now != self.address) {
                self.lost.notify_one();
            }
        }
        Ok(connection)
    }

    fn listener(&self, gone: &Arc<Notify>) -> Listener {
        let (host, port) = &self.address;
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
