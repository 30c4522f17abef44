//! Arguments that are patterns: a `fallback` function gets them whole, all other code gets their bindings.

#![deny(warnings)]

use std::cell::RefCell;

use rate_limited::{Limiter, rate_limited};

/// Neither `Clone` nor `Copy`.
struct Path<T>(T);

struct Token;

struct Query {
    page: u32,
    size: u32,
    token: Token,
}

#[rate_limited(key = "{id}", limit = "1/1h", cost = id, fallback = with_path)]
async fn extractor(Path(id): Path<u32>, name: String) -> String {
    format!("ran {id} {name}")
}

async fn with_path(Path(id): Path<u32>, name: String) -> String {
    format!("denied {id} {name}")
}

#[rate_limited(key = "tuples {a}{b}", limit = "1/1h", fallback = with_tuples)]
fn tuples((a, (b,)): (u32, (u32,)), [c, d]: [u32; 2]) -> u32 {
    a + b + c + d
}

fn with_tuples(first: (u32, (u32,)), second: [u32; 2]) -> u32 {
    first.0 * 10 + first.1.0 + second[0] * 100 + second[1] * 1000
}

#[rate_limited(key = "structs {page}", limit = "1/1h", fallback = with_query)]
fn structs(Query { page, mut size, token: _token }: Query) -> u32 {
    size += page;
    size
}

#[rate_limited(key = "rest {page}", limit = "1/1h", cost = *page, fallback = with_query)]
fn structs_in_part(Query { page, .. }: Query) -> u32 {
    page
}

fn with_query(query: Query) -> u32 {
    let Token = query.token;
    query.page * 100 + query.size
}

#[rate_limited(key = "unnamed", limit = "1/1h", fallback = with_token)]
fn unnamed(_: Token, _: u32, mut last: u32) -> u32 {
    last += 1;
    last
}

fn with_token(Token: Token, second: u32, last: u32) -> u32 {
    second + last * 10
}

#[rate_limited(key = "references {first}{copy}{whole:?}", limit = "1/1h", fallback = with_references)]
fn references(
    (first, second): &(u32, String),
    &copy: &u32,
    ref lent: String,
    whole @ [_, one, ..]: [u32; 3],
) -> String {
    format!("{first}{second}{copy}{lent}{whole:?}{one}")
}

fn with_references(pair: &(u32, String), copy: &u32, lent: String, whole: [u32; 3]) -> String {
    format!("denied {pair:?} {copy} {lent} {whole:?}")
}

#[rate_limited(key = "unique {count}", limit = "1/1h", fallback = with_unique)]
fn unique((count, text): &mut (u32, String), &mut copied: &mut u32) {
    *count += copied;
    text.push('!');
}

fn with_unique(pair: &mut (u32, String), by: &mut u32) {
    pair.0 += 100;
    *by += 1;
}

#[rate_limited(key = "nested {outer}{inner}", limit = "1/1h", fallback = with_nested)]
fn nested((&outer, Path((inner, _))): (&u32, Path<(u32, Token)>)) -> u32 {
    outer + inner
}

fn with_nested((outer, path): (&u32, Path<(u32, Token)>)) -> u32 {
    outer * 10 + path.0.0
}

#[rate_limited(key = "cfg {id}", limit = "1/1h", fallback = with_cfg)]
fn conditional(
    #[cfg(any())] missing: Missing,
    #[cfg(all())] id: u32,
    #[cfg(all())] (a, _): (u32, u32),
    #[cfg(any())] _: Missing,
) -> u32 {
    id + a
}

fn with_cfg(id: u32, pair: (u32, u32)) -> u32 {
    id * 100 + pair.0 * 10 + pair.1
}

#[rate_limited(key = "forms {a}", limit = "1/1h", fallback = 0, on_error = handled)]
#[rate_limited(key = "{a}{a}", limit = "9/1h", when = *a > 0, fallback = with_pair)]
fn other_forms((a, _): (u32, Token)) -> u32 {
    a
}

#[rate_limited(key = "other", limit = "1/1h", fallback = with_pair, on_error = a + u32::from(error.is_transient()))]
#[rate_limited(key = "{a}{a}", max = 0 * *a, window = "1h", fallback = a + denied.remaining())]
fn other_forms_taken((a, _): (u32, Token)) -> u32 {
    a
}

fn with_pair(pair: (u32, Token)) -> u32 {
    pair.0 * 10
}

fn handled(_: rate_limited::Error) -> u32 {
    unreachable!()
}

/// Only the key uses `a`, and no code uses the others: the attribute adds no warning.
#[rate_limited(key = "used {a}", limit = "1/1h", fallback = with_pairs)]
fn used_by_the_key(
    (a, _): (u32, Token),
    #[allow(unused_variables)] (b, _): (u32, Token),
    #[expect(unused_mut)] mut c: u32,
) -> u32 {
    c
}

fn with_pairs(_: (u32, Token), _: (u32, Token), c: u32) -> u32 {
    c
}

#[rate_limited(key = "recovers {a}", limit = "1/1h", fallback = with_number, recover = |_| Ok(7))]
async fn recovers((a, _): (u32, Token), text: &str, mut unused: u32) -> Result<u32, std::num::ParseIntError> {
    unused += a;
    Ok(text.parse::<u32>()? + unused)
}

async fn with_number(pair: (u32, Token), _: &str, _: u32) -> Result<u32, std::num::ParseIntError> {
    Ok(pair.0)
}

#[rate_limited(key = "recovers sync {a}", limit = "1/1h", fallback = with_number_sync, recover = |_| Ok(7))]
fn recovers_sync((a, _): (u32, Token), text: &str) -> Result<u32, std::num::ParseIntError> {
    Ok(text.parse::<u32>()? + a)
}

fn with_number_sync(pair: (u32, Token), _: &str) -> Result<u32, std::num::ParseIntError> {
    Ok(pair.0)
}

type Log<'a> = &'a RefCell<Vec<&'static str>>;

struct Loud<'a>(&'static str, Log<'a>);

impl Drop for Loud<'_> {
    fn drop(&mut self) {
        self.1.borrow_mut().push(self.0);
    }
}

type Pair<'a> = (Loud<'a>, Loud<'a>);

fn plain<'a>(
    first: Loud<'a>,
    (a, _): Pair<'a>,
    second: Loud<'a>,
    _: Loud<'a>,
    (_, b): Pair<'a>,
    log: Log<'a>,
) -> usize {
    let _local = Loud("local", log);
    first.0.len() + a.0.len() + second.0.len() + b.0.len() + Loud("temporary", log).0.len()
}

#[rate_limited(key = "drop", limit = "1/1h", fallback = whole)]
fn limited<'a>(
    first: Loud<'a>,
    (a, _): Pair<'a>,
    second: Loud<'a>,
    _: Loud<'a>,
    (_, b): Pair<'a>,
    log: Log<'a>,
) -> usize {
    let _local = Loud("local", log);
    first.0.len() + a.0.len() + second.0.len() + b.0.len() + Loud("temporary", log).0.len()
}

#[rate_limited(key = "async drop", limit = "1/1h", fallback = whole)]
async fn limited_later<'a>(
    first: Loud<'a>,
    (a, _): Pair<'a>,
    second: Loud<'a>,
    _: Loud<'a>,
    (_, b): Pair<'a>,
    log: Log<'a>,
) -> usize {
    let _local = Loud("local", log);
    first.0.len() + a.0.len() + second.0.len() + b.0.len() + Loud("temporary", log).0.len()
}

fn whole<'a>(_: Loud<'a>, first: Pair<'a>, _: Loud<'a>, _: Loud<'a>, second: Pair<'a>, _: Log<'a>) -> usize {
    drop((first.1, second.1));
    0
}

async fn drop_order() {
    macro_rules! dropped {
        ($function:ident $($await:tt)*) => {{
            let log = RefCell::default();
            let loud = |name| Loud(name, &log);
            let (one, two) = ((loud("a"), loud("a rest")), (loud("b rest"), loud("b")));
            let given = $function(loud("first"), one, loud("second"), loud("unnamed"), two, &log) $($await)*;
            assert!(given > 0);
            log.into_inner()
        }};
    }
    let expected = dropped!(plain);
    assert_eq!(expected.len(), 9);
    assert_eq!(dropped!(limited), expected);
    assert_eq!(dropped!(limited_later.await), expected);
}

async fn check() {
    assert_eq!(extractor(Path(1), "a".to_owned()).await, "ran 1 a");
    assert_eq!(extractor(Path(1), "b".to_owned()).await, "denied 1 b");
    assert_eq!((tuples((1, (2,)), [3, 4]), tuples((1, (2,)), [3, 4])), (10, 4312));
    let query = || Query { page: 1, size: 20, token: Token };
    assert_eq!((structs(query()), structs(query())), (21, 120));
    assert_eq!((structs_in_part(query()), structs_in_part(query())), (1, 120));
    assert_eq!((unnamed(Token, 1, 2), unnamed(Token, 1, 2)), (3, 21));
    let pair = (1, "one".to_owned());
    let call = || references(&pair, &2, "lent".to_owned(), [3, 4, 5]);
    assert_eq!(call(), "1one2lent[3, 4, 5]4");
    assert_eq!(call(), "denied (1, \"one\") 2 lent [3, 4, 5]");
    let (mut pair, mut by) = ((0, String::new()), 0);
    unique(&mut pair, &mut by);
    unique(&mut pair, &mut by);
    assert_eq!((pair, by), ((100, "!".to_owned()), 1));
    assert_eq!((nested((&1, Path((2, Token)))), nested((&1, Path((2, Token))))), (3, 12));
    assert_eq!((conditional(1, (2, 3)), conditional(1, (2, 3))), (3, 123));
    assert_eq!((other_forms((1, Token)), other_forms((1, Token)), other_forms((0, Token))), (1, 0, 0));
    assert_eq!(other_forms_taken((3, Token)), 3);
    let call = || used_by_the_key((1, Token), (2, Token), 3);
    assert_eq!((call(), call()), (3, 3));
    assert_eq!(recovers((1, Token), "2", 3).await, Ok(6));
    assert_eq!(recovers((2, Token), "x", 3).await, Ok(7));
    assert_eq!(recovers((2, Token), "x", 3).await, Ok(2));
    assert_eq!((recovers_sync((3, Token), "2"), recovers_sync((3, Token), "2")), (Ok(5), Ok(3)));
    drop_order().await;
}

#[tokio::main]
async fn main() {
    Limiter::memory().scope(check()).await;
}
