//! Values of `plan` that name no plan.

use rate_limited::rate_limited;

#[derive(Clone, Copy)]
enum Plan {
    Pro,
}

struct Customer {
    id: u64,
    plan: Plan,
}

#[rate_limited(key = "a:{customer.id}", limit = "5/s", plan = customer.plan, fallback = ())]
fn of_another_type(customer: &Customer) {}

#[rate_limited(key = "a", limit = "5/s", plan = Some(level), fallback = ())]
fn option_of_another_type(level: u32) {}

#[rate_limited(key = "a", limit = "5/s", plan = 5, fallback = ())]
fn number() {}

#[rate_limited(key = "a", limit = "5/s", plan = "{plan}", fallback = ())]
fn template(plan: &str) {}

#[rate_limited(key = "a", limit = "5/s", tier = "pro", fallback = ())]
fn another_name() {}

fn main() {
    let _ = Plan::Pro;
}
