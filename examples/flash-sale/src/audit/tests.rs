//! Tests of the audit: a correct sale has no faults, and each deviation has one.

use std::time::Duration;

use super::{AuditedSale, Faults};
use crate::buyers::{Call, Outcome, Record, Visit};
use crate::medals::Medals;
use crate::sale::Sale;
use crate::shop::Limits;
use crate::store::{Leader, Ledger, SoldItem};

/// A sale of one item: `b0` has it, and `b1` called without success.
struct Case {
    records: Vec<Record>,
    sale: AuditedSale,
}

impl Case {
    fn correct() -> Self {
        let sale = Sale { id: "watch", name: "Watch", items: 1, opens_in: Duration::ZERO };
        let sold = SoldItem { buyer: "b0".to_owned(), number: 1, request: "run-0".to_owned() };
        let medals = Medals { bronze: 1, ..Medals::default() };
        let clubs = vec![Leader { club: "Lisbon".to_owned(), medals }];
        let ledger = Ledger { left: 0, items: vec![sold], clubs };
        let records = vec![record("b0", &[1]), record("b1", &[])];
        Self { records, sale: AuditedSale { sale, ledger } }
    }

    /// Returns the faults without those of the medals.
    fn faults(self) -> String {
        let limits = Limits { buyer: limit("1/10s"), product: limit("2/10s") };
        Faults::find(&self.records, 2, "run", &[self.sale], limits).to_string()
    }
}

fn limit(text: &str) -> rate_limited::Limit {
    text.parse().expect("a limit")
}

fn call(outcome: Outcome) -> Call {
    Call { sent: Duration::ZERO, answered: Duration::from_millis(1), outcome }
}

fn record(buyer: &str, bought: &[u32]) -> Record {
    let visit = Visit {
        sale: "watch".to_owned(),
        calls: vec![call(Outcome::Admitted)],
        bought: bought.to_vec(),
        confirmed: Vec::new(),
        has_final_answer: true,
        is_turned_away: bought.is_empty(),
    };
    Record { buyer: buyer.to_owned(), club: "Lisbon", visits: vec![visit] }
}

#[test]
fn each_deviation_is_a_fault() {
    type Deviation = fn(&mut Case);
    let cases: [(&str, Deviation); 9] = [
        ("oversold 0, bought twice 0, above the limit 0, lost 0", |_| {}),
        ("oversold 1, bought twice 1, above the limit 0, lost 0", |case| case.sale.ledger.left = -1),
        ("oversold 0, bought twice 0, above the limit 0, lost 1", |case| case.records.truncate(1)),
        ("oversold 0, bought twice 0, above the limit 0, lost 1", |case| {
            case.records[1].visits[0].has_final_answer = false;
        }),
        // The buyer has an item that Redis does not have.
        ("oversold 0, bought twice 1, above the limit 0, lost 1", |case| case.sale.ledger.items.clear()),
        // Both buyers have the one item.
        ("oversold 1, bought twice 0, above the limit 0, lost 1", |case| case.records[1].visits[0].bought.push(1)),
        // An item is left for the buyer who was told that there is none.
        ("oversold 0, bought twice 0, above the limit 0, lost 1", |case| {
            case.sale.sale.items = 2;
            case.sale.ledger.left = 1;
        }),
        // The third call for the product, and the second of its buyer. Permits of lost replies are taken.
        ("oversold 0, bought twice 0, above the limit 2, lost 0", |case| {
            case.records[1].visits[0].calls.push(call(Outcome::Unknown));
        }),
        ("oversold 0, bought twice 0, above the limit 0, lost 0", |case| {
            case.records[1].visits[0].calls.extend([Outcome::Degraded, Outcome::Refused, Outcome::Unlimited].map(call));
        }),
    ];
    for (expected, deviate) in cases {
        let mut case = Case::correct();
        deviate(&mut case);
        assert_eq!(case.faults(), expected);
    }
}
