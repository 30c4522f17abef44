//! Each form of `fallback` and `on_error`, as a value and as a future.

use rate_limited::{Denied, Error, ErrorKind, Limiter, rate_limited};

/// An invalid `max`, which makes the limiter fail.
const NO_PERMITS: u32 = 0;

#[derive(Clone, Debug, PartialEq)]
enum Reply {
    Ran,
    Busy,
    Denied(u32),
    Failed(ErrorKind),
    Passed(u64),
}

impl Reply {
    const DEFAULT: Self = Self::Busy;

    fn of(denied: &Denied) -> Self {
        Self::Denied(denied.limit().max())
    }

    fn from_error(error: Error) -> Self {
        Self::Failed(error.kind())
    }
}

impl From<Denied> for Reply {
    fn from(denied: Denied) -> Self {
        Self::of(&denied)
    }
}

impl From<Error> for Reply {
    fn from(error: Error) -> Self {
        Self::from_error(error)
    }
}

fn passed(id: u64) -> Reply {
    Reply::Passed(id)
}

async fn passed_later(id: u64) -> Reply {
    tokio::task::yield_now().await;
    Reply::Passed(id)
}

fn passed_boxed(id: u64) -> std::pin::Pin<Box<dyn Future<Output = Reply> + Send>> {
    Box::pin(passed_later(id))
}

async fn failed_later(error: Error) -> Reply {
    tokio::task::yield_now().await;
    Reply::from_error(error)
}

/// An async function of each `case { <fallback> => <what it gives>, <on_error> }`.
macro_rules! cases {
    ($name:ident($id:ident): $($case:ident { $fallback:expr => $denied:expr, $($on_error:tt)+ })*) => {
        async fn $name() {
            $({
                #[rate_limited(key = "k", limit = "1/1h", fallback = $fallback, on_error = $($on_error)+)]
                async fn $case($id: u64) -> Reply {
                    assert_eq!($id, 7);
                    tokio::task::yield_now().await;
                    Reply::Ran
                }
                Limiter::memory().scope(async {
                    assert_eq!($case(7).await, Reply::Ran, stringify!($case));
                    assert_eq!($case(7).await, $denied, stringify!($case));
                }).await;
            })*
        }
    };
}

cases! {
    all_forms(id):
    function { passed => Reply::Passed(7), open }
    function_of_a_future { passed_later => Reply::Passed(7), closed }
    function_of_a_boxed_future { self::passed_boxed => Reply::Passed(7), standby }
    associated_function { Reply::Passed(id) => Reply::Passed(7), Reply::from_error }
    closure { |denied| Reply::of(&denied) => Reply::Denied(1), |error| Reply::from_error(error) }
    typed_closure { |denied: Denied| -> Reply { Reply::of(&denied) } => Reply::Denied(1), |_: Error| Reply::Busy }
    ignoring_closure { |_| Reply::Passed(id + 1) => Reply::Passed(8), |_| Reply::Busy }
    moving_closure { move |denied| { drop(denied); Reply::Passed(id) } => Reply::Passed(7), move |_| Reply::Passed(id) }
    async_closure { async |denied| { drop(denied); passed_later(id).await } => Reply::Passed(7), async |error| failed_later(error).await }
    closure_of_a_block { |denied| async move { Reply::of(&denied) } => Reply::Denied(1), |error| async { failed_later(error).await } }
    variant { Reply::Busy => Reply::Busy, Reply::Busy }
    constant { Reply::DEFAULT => Reply::Busy, Reply::DEFAULT }
    awaited { passed_later(id).await => Reply::Passed(7), passed_later(id).await }
    returned { return Reply::Busy => Reply::Busy, return Reply::Busy }
}

#[rate_limited(key = "k", limit = "1/1h", fallback = denied.into(), on_error = failed_later(error).await)]
async fn conversion() -> Reply {
    Reply::Ran
}

#[rate_limited(key = "k", limit = "1/1h", fallback = match denied.remaining() {
    0 => Reply::of(&denied),
    _ => unreachable!("{denied}"),
})]
fn matched() -> Reply {
    Reply::Ran
}

#[rate_limited(key = "k", limit = "1/1h", fallback = Err(format!("{}{denied}", id)))]
fn in_a_string(id: u64) -> Result<Reply, String> {
    Ok(Reply::Passed(id))
}

/// An argument named `fallback` is used as a value: the first call runs, the second is denied.
#[rate_limited(key = "k", limit = "1/1h", fallback = fallback, on_error = self::open)]
fn named_as_others(fallback: Reply) -> Reply {
    if fallback == Reply::Busy { Reply::Ran } else { fallback }
}

/// A function with the name of a policy, which is used by its path.
fn open(error: Error) -> Reply {
    Reply::from_error(error)
}

async fn denials() {
    let limiters: [Limiter; 4] = std::array::from_fn(|_| Limiter::memory());
    let [first, second, third, fourth] = &limiters;
    for expected in [Reply::Ran, Reply::Denied(1)] {
        assert_eq!(first.scope(conversion()).await, expected);
        assert_eq!(second.scope_sync(matched), expected);
    }
    assert_eq!(third.scope_sync(|| in_a_string(7)), Ok(Reply::Passed(7)));
    assert!(third.scope_sync(|| in_a_string(7)).is_err_and(|text| text.starts_with('7')));
    for expected in [Reply::Ran, Reply::Busy] {
        assert_eq!(fourth.scope_sync(|| named_as_others(Reply::Busy)), expected);
    }
}

#[rate_limited(key = "k", max = NO_PERMITS, window = "1h", fallback = Reply::Busy, on_error = failed_later)]
async fn failing() -> Reply {
    Reply::Ran
}

#[rate_limited(key = "k", max = NO_PERMITS, window = "1h", fallback = Reply::Busy, on_error = Reply::from_error)]
fn failing_sync() -> Reply {
    Reply::Ran
}

#[rate_limited(key = "k", max = NO_PERMITS, window = "1h", fallback = Reply::Busy, on_error = match error.kind() {
    ErrorKind::InvalidLimit => Reply::Passed(id),
    _ => unreachable!(),
})]
fn failing_expression(id: u64) -> Reply {
    Reply::Failed(if id == 0 { ErrorKind::Config } else { ErrorKind::Timeout })
}

#[rate_limited(key = "k", max = NO_PERMITS, window = "1h", fallback = Reply::Busy, on_error = open)]
fn failing_open() -> Reply {
    Reply::Ran
}

#[rate_limited(key = "k", max = NO_PERMITS, window = "1h", fallback = Reply::Busy, on_error = closed)]
async fn failing_closed() -> Reply {
    Reply::Ran
}

#[rate_limited(key = "k", max = max, window = "1h", on_error = raise)]
async fn raising(max: u32) -> Result<u64, Reply> {
    Ok(1)
}

#[rate_limited(key = "k", max = max, window = "1h", on_error = raise)]
fn raising_sync(max: u32) -> Result<(), Box<dyn std::error::Error>> {
    Ok(())
}

async fn failures() {
    let failed = Reply::Failed(ErrorKind::InvalidLimit);
    assert_eq!(failing().await, failed);
    assert_eq!(failing_sync(), failed);
    assert_eq!(failing_expression(7), Reply::Passed(7));
    assert_eq!(failing_open(), Reply::Busy, "an invalid limit is no failure of the store");
    assert_eq!(failing_closed().await, Reply::Busy);
    assert_eq!(raising(0).await, Err(failed));
    assert_eq!((raising(1).await, raising(1).await), (Ok(1), Err(Reply::Denied(1))));
    assert!(raising_sync(0).expect_err("fails").is::<Error>());
    assert!(raising_sync(1).expect_err("the quota is used up").is::<Denied>());
}

#[tokio::main]
async fn main() {
    all_forms().await;
    denials().await;
    Limiter::memory().scope(failures()).await;
}
