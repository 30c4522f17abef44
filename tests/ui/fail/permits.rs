//! Variables for the permit that cannot be.

use rate_limited::rate_limited;

#[rate_limited(key = "k", limit = "5/s", fallback = (), permit = id)]
fn argument(id: u64) {}

#[rate_limited(key = "k", limit = "5/s", fallback = (), permit = id)]
fn in_a_pattern((id, _): (u64, u64)) {}

#[rate_limited(key = "k", limit = "5/s", fallback = (), permit = self)]
fn keyword() {}

#[rate_limited(key = "k", limit = "5/s", fallback = (), permit = "allowed")]
fn quoted() {}

#[rate_limited(key = "k", limit = "5/s", fallback = (), permit = Allowed)]
fn type_name() {}

#[rate_limited(key = "k", limit = "5/s", fallback = (), permit = mut allowed)]
fn mutable() {}

#[rate_limited(key = "k", limit = "5/s", fallback = (), permit = _)]
fn wildcard() {}

#[rate_limited(key = "k", limit = "5/s", fallback = (), permit)]
fn no_name() {}

#[rate_limited(key = "k", limit = "5/s", fallback = (), receipt = allowed)]
fn another_name() {}

#[rate_limited(key = "a", limit = "5/s", fallback = (), permit = first)]
#[rate_limited(key = "b", limit = "5/s", fallback = (), permit = second)]
fn twice() {}

struct Mailer;

#[rate_limited(key = "k", limit = "5/s", fallback = (), permit = allowed)]
impl Mailer {
    fn send(&self) {}

    fn verify(&self) {}
}

// No further errors here: the functions are emitted.
fn main() {
    argument(1);
    twice();
    Mailer.send();
}
