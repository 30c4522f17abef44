//! The buyers: clients of the service, each of which tries each sale until it has a final answer.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

use self::buyer::Buyer;
use self::client::Client;
use self::page::{Offer, Page};
#[cfg(test)]
pub(crate) use self::record::Visit;
pub(crate) use self::record::{Call, Outcome, Record};

mod buyer;
mod client;
mod page;
mod record;

/// The cities of the clubs.
const CLUBS: [&str; 20] = [
    "Athens",
    "Berlin",
    "Bergen",
    "Cairo",
    "Dakar",
    "Dublin",
    "Hanoi",
    "Kyoto",
    "Lagos",
    "Lima",
    "Lisbon",
    "Lyon",
    "Malmö",
    "Nairobi",
    "Osaka",
    "Porto",
    "Quito",
    "Riga",
    "São Paulo",
    "Turin",
];

/// The buyers of one run.
pub(crate) struct Buyers {
    client: Arc<Client>,
    /// Always there until the drop.
    runtime: Option<Runtime>,
    tasks: JoinSet<Record>,
    records: Vec<Record>,
    /// The start of all request ids, which sets the items of these buyers apart from those of other clients.
    pub(crate) request_prefix: String,
}

impl Buyers {
    /// Starts the buyers of the service at this address.
    ///
    /// # Errors
    /// The service has no state of the sales.
    pub(crate) async fn start(address: SocketAddr, count: u32) -> io::Result<Self> {
        // Threads of their own: buyers in the runtime of the service would delay its tasks.
        let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("buyers").enable_all().build()?;
        let client = Arc::new(Client::new(address));
        // The connection belongs to the runtime in which it is opened.
        let page = runtime.spawn(open_page(Arc::clone(&client))).await??;
        let offers: Arc<[Offer]> = page.offers().into();
        let request_prefix = format!("{:08x}", fastrand::u32(..));
        let mut tasks = JoinSet::new();
        for index in 0..count {
            let buyer = Buyer::new(index, &request_prefix, Arc::clone(&client), page.clone(), Arc::clone(&offers));
            tasks.spawn_on(buyer.run(), runtime.handle());
        }
        Ok(Self { client, runtime: Some(runtime), tasks, records: Vec::new(), request_prefix })
    }

    /// Waits until all buyers have their final answers, at most this long. Returns whether they have.
    pub(crate) async fn wait(&mut self, at_most: Duration) -> bool {
        let all = async {
            while let Some(record) = self.tasks.join_next().await {
                // A task that panics has no record, so its items count as lost.
                self.records.extend(record);
            }
        };
        tokio::time::timeout(at_most, all).await.is_ok()
    }

    /// Returns the number of calls in flight, and the greatest one so far.
    pub(crate) fn in_flight(&self) -> (usize, usize) {
        self.client.in_flight()
    }

    pub(crate) fn records(&self) -> &[Record] {
        &self.records
    }
}

impl Drop for Buyers {
    fn drop(&mut self) {
        // A plain drop would block, which panics in a task.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn open_page(client: Arc<Client>) -> io::Result<Page> {
    client.open_page().await
}
