//! Mistakes on `impl` blocks: each is reported once, and the methods are still emitted.

use rate_limited::{Denied, rate_limited};

struct Service(u64);

#[rate_limited(key = "k", limit = "5/s")]
impl Service {}

#[rate_limited(key = "k", limit = "5/s")]
impl Service {
    const ONE: u64 = 1;
}

#[rate_limited(key = "k", limit = "5/s")]
impl Service {
    #[rate_limited(skip)]
    fn only_exempt(&self) {}

    #[rate_limited(key = "own", limit = "5/s", fallback = ())]
    fn only_own(&self) {}
}

#[rate_limited(key = "k", limit = "5/s", fallback = Err(1))]
impl Service {
    const fn constant(&self) -> Result<(), u64> {
        Ok(())
    }

    #[rate_limited(skip)]
    fn exempt(&self) {}
}

#[rate_limited(key = "user {user_id}/{self.0}", limit = "5/s", cost = amount * 2)]
impl Service {
    fn get(&self, user_id: u64, amount: u32) -> Result<u64, Denied> {
        Ok(user_id + u64::from(amount))
    }

    fn delete(&self, id: u64, amount: u32) -> Result<u64, Denied> {
        Ok(id + u64::from(amount))
    }

    fn new(user_id: u64) -> Result<Self, Denied> {
        Ok(Self(user_id))
    }
}

#[rate_limited(key = "", limit = "5/0s", colour = "red", on_error = "open")]
impl Service {
    fn first(&self) -> Result<(), Denied> {
        Ok(())
    }

    fn second(&self) -> Result<(), Denied> {
        Ok(())
    }

    #[rate_limited(skip, key = "more")]
    fn third(&self) {}
}

#[rate_limited(skip)]
impl Service {
    fn all_skipped(&self) {}
}

#[rate_limited(key = "a", limit = "5/s", recover = Err(error))]
#[rate_limited(key = "b", limit = "5/s", on_error = raise)]
impl Iterator for Service {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        None
    }

    fn for_each<F: FnMut(u64)>(self, _: F) {}

    fn map<B, F: FnMut(u64) -> B>(self, _: F) -> std::iter::Map<Self, F> {
        loop {}
    }
}

struct Hidden;

#[rate_limited(key = "a", limit = "5/s", fallback = ())]
impl Hidden {
    #[cfg_attr(all(), rate_limited(key = "b", limit = "9/s", fallback = ()))]
    fn own(&self) {}
}

#[rate_limited(key = "a", limit = "5/s", fallback = ())]
impl Hidden {
    #[cfg_attr(all(), inline)]
    fn limited(&self) {}
}

fn main() {
    Hidden.own();
    Hidden.limited();
    let service = Service(Service::ONE);
    service.only_exempt();
    service.only_own();
    service.exempt();
    service.third();
    service.all_skipped();
    drop((service.constant(), service.get(1, 1), service.delete(1, 1), Service::new(1)));
    drop((service.first(), service.second()));
}
