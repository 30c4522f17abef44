//! The sales: products, stocks and opening times.

use std::time::Duration;

/// The products with their names. Each has a sale of its own.
const PRODUCTS: [(&str, &str); 3] = [("watch", "Watch"), ("camera", "Camera"), ("bicycle", "Bicycle")];

/// The time from one opening to the next.
const OPENING_INTERVAL: Duration = Duration::from_secs(1);

/// The number of sales.
pub(crate) const SALES: u32 = 3;

/// A sale of one product, as it is planned. Redis has its opening time, which may be changed there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sale {
    pub(crate) id: &'static str,
    pub(crate) name: &'static str,
    pub(crate) items: u32,
    /// The time from the start of the program to the opening.
    pub(crate) opens_in: Duration,
}

/// Returns the sales, which share the items and open one after the other.
pub(crate) fn plan(items: u32, first_opens_in: Duration) -> Vec<Sale> {
    let shares = (0..SALES).map(|index| items / SALES + u32::from(index < items % SALES));
    let openings = (0..SALES).map(|index| first_opens_in + OPENING_INTERVAL * index);
    let sales = PRODUCTS.iter().zip(shares).zip(openings);
    sales.map(|((&(id, name), items), opens_in)| Sale { id, name, items, opens_in }).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{PRODUCTS, SALES, plan};

    #[test]
    fn sales_share_all_items_and_open_one_after_the_other() {
        assert_eq!(PRODUCTS.len().to_string(), SALES.to_string());
        for items in [3, 4, 5, 1_000] {
            let sales = plan(items, Duration::from_millis(300));
            assert_eq!(sales.iter().map(|sale| sale.items).sum::<u32>(), items);
            assert!(sales.iter().all(|sale| sale.items >= 1));
            assert!(sales.windows(2).all(|pair| pair[0].opens_in < pair[1].opens_in));
        }
    }
}
