//! A run of all buyers, with its progress and its result.

use std::error::Error;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::audit::{AuditedSale, Faults};
use crate::buyers::{Buyers, Outcome};
use crate::shop::Shop;
use crate::totals::Counts;

/// Runs the buyers, prints the progress each second, and then the result. Returns whether no fault was found.
///
/// # Errors
/// The service has no state of the sales, or Redis is away at the end.
pub(crate) async fn run(shop: &Shop, address: SocketAddr, count: u32) -> Result<bool, Box<dyn Error>> {
    let started = Instant::now();
    let mut buyers = Buyers::start(address, count).await?;
    while !buyers.wait(Duration::from_secs(1)).await {
        progress(shop, &buyers, started.elapsed());
    }
    let duration = started.elapsed();

    let mut sales = Vec::new();
    for sale in &shop.sales {
        let ledger = shop.store.ledger(sale.id).await;
        let ledger = ledger.map_err(|error| format!("the sales cannot be read for the audit: {error}"))?;
        sales.push(AuditedSale { sale: *sale, ledger });
    }
    let faults = Faults::find(buyers.records(), count, &buyers.request_prefix, &sales, shop.limits);
    summary(&buyers, &sales, duration);
    if let Some(clubs) = faults.wrong_medals() {
        println!("{clubs} clubs of the leaderboards have other medals than their items");
    }
    println!("{faults}");
    Ok(faults.are_none())
}

fn progress(shop: &Shop, buyers: &Buyers, elapsed: Duration) {
    let (sold, Counts { degraded, failed, pages, .. }) = (shop.board.borrow().sold, shop.totals.read());
    let items: u32 = shop.sales.iter().map(|sale| sale.items).sum();
    let (seconds, in_flight) = (elapsed.as_secs(), buyers.in_flight().0);
    let answers = format!("{degraded} degrade answers, {failed} failures");
    println!("{seconds:3} s: {sold} of {items} items sold, {answers}, {in_flight} buys in flight, {pages} pages open");
}

fn summary(buyers: &Buyers, sales: &[AuditedSale], duration: Duration) {
    let sold: usize = sales.iter().map(|sale| sale.ledger.items.len()).sum();
    let items: u32 = sales.iter().map(|sale| sale.sale.items).sum();
    let calls = || buyers.records().iter().flat_map(|record| &record.visits).flat_map(|visit| &visit.calls);
    let count = |outcome| calls().filter(|call| call.outcome == outcome).count();
    let (unknown, refused) = (count(Outcome::Unknown), count(Outcome::Refused));
    if unknown > 0 {
        println!(
            "{unknown} calls without an answer while Redis was away or slow: each was sent again with its request id"
        );
    }
    if refused > 0 {
        println!("{refused} calls got 503 while the limiter could not decide: its policy `closed` admits none then");
    }
    println!("{sold} of {items} items sold, in {:.1} s and {} calls", duration.as_secs_f64(), calls().count());
    println!("{} buys in flight at most", buyers.in_flight().1);
    println!("{} degrade answers", count(Outcome::Degraded));
}
