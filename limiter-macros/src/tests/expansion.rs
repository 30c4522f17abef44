//! Expansions of the attribute, compared with the files in `snapshots/`.
//!
//! `UPDATE_SNAPSHOTS=1 cargo test -p limiter-macros` rewrites them. Read the difference before you commit it.

use std::path::Path;
use std::{env, fs};

use super::tokens;
use crate::attribute::rate_limited;

fn check(name: &str, arguments: &str, function: &str) {
    let output = rate_limited(tokens(arguments), tokens(function));
    let file = syn::parse2(output).expect("an expansion is a function");
    let expanded = format!("// #[rate_limited({arguments})]\n// {function}\n\n{}", prettyplease::unparse(&file));

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/snapshots").join(name).with_extension("rs");
    if env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(&path, &expanded).expect("snapshots are writable");
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(committed == expanded, "{} should be\n\n{expanded}", path.display());
}

#[test]
fn async_function() {
    check(
        "async_function",
        r#"key = "getId", window = "10s", max = 5, fallback = degrade_fn"#,
        "pub async fn get_id(user_id: u64) -> String { load(user_id).await }",
    );
}

#[test]
fn sync_function() {
    check("sync_function", r#"key = "getId", limit = "5/10s""#, "fn get_id() -> Result<u64, Busy> { Ok(7) }");
}

#[test]
fn method_with_everything() {
    check(
        "method_with_everything",
        "key = self.key(id), name = \"get\", max = self.max, window = \"1m30s\", limiter = self.limiter, \
         fallback = Self::degraded, on_error = |error| error.into(), crate = ::my::facade",
        "async fn get(&self, mut id: u64, _unused: &str) -> Reply { self.load(id).await }",
    );
}

#[test]
fn template_key() {
    check(
        "template_key",
        r#"key = "{tenant}/{{{user.id}}}:{hash:08x}", limit = LIMIT, fallback = Reply::Busy(denied), on_error = open"#,
        "fn get(tenant: &str, user: &User, hash: u32) -> Reply { load(user) }",
    );
}

#[test]
fn constant_in_a_key() {
    check(
        "constant_in_a_key",
        r#"key = "{REGION}/{{user}}:{id}!", limit = "5/s", fallback = None"#,
        "fn get(id: u64) -> Option<u64> { Some(id) }",
    );
}

#[test]
fn raised_error() {
    check(
        "raised_error",
        r#"key = "k", limit = "5/s", on_error = raise"#,
        "async fn get() -> Result<(), Failed> { #![allow(unused)] let nothing = 1; Ok(()) }",
    );
}

#[test]
fn handlers() {
    check(
        "handlers",
        r#"key = "k", limit = "5/s", fallback = async |denied| later(denied).await, on_error = complain"#,
        "#[inline] async fn get<'a, T>(id: &'a T) -> &'a str where T: AsRef<str> { id.as_ref() }",
    );
}

#[test]
fn several_limits() {
    check(
        "several_limits",
        "key = \"{id}\", limits = [\"5/s\", limit], algorithm = token_bucket, burst = 10, cost = \
         size, when = size > 0, \
         wait = \"500ms\", fallback = None",
        "async fn get(id: u64, limit: Limit, size: u32) -> Option<u64> { Some(id) }",
    );
}

#[test]
fn concurrent() {
    check(
        "concurrent",
        r#"key = "erp", concurrent = 50, fallback = None"#,
        "async fn get(id: u64) -> Option<u64> { load(id).await }",
    );
}

#[test]
fn concurrent_beside_windows() {
    check(
        "concurrent_beside_windows",
        r#"key = "{id}", limits = ["5 concurrent", "100/min"], algorithm = token_bucket, permit = allowed"#,
        "#[rate_limited(key = \"erp\", concurrent = max, cost = size)] \
         fn get(id: u64, max: u32, size: u32) -> Result<u64, Busy> { load(id, allowed) }",
    );
}

#[test]
fn configured() {
    check("configured", r#""getId", wait = "1s""#, "async fn get_id() -> Result<u64, Busy> { Ok(7) }");
}

#[test]
fn configured_with_values() {
    check(
        "configured_with_values",
        r#""user:{id}", name = "user", cost = size, when = size > 0, fallback = 0"#,
        "#[rate_limited(key = KEY.clone(), name = \"all\", limit = configured, cost = 2, fallback = 1)] \
         fn get(id: u64, size: u32) -> u64 { id }",
    );
}

#[test]
fn plan_of_a_customer() {
    check(
        "plan_of_a_customer",
        r#"key = "{customer.id}", limit = "5/s", when = customer.is_limited, plan = customer.plan()"#,
        "#[rate_limited(key = \"all\", limit = configured, plan = \"free\")] \
         async fn get(customer: &Customer) -> Result<u64, Busy> { load(customer).await }",
    );
}

#[test]
fn permit() {
    check(
        "permit",
        r#"key = "getId", max = MAX, window = "10s", permit = allowed"#,
        "async fn get_id() -> Result<u32, Busy> { Ok(allowed.remaining()) }",
    );
}

#[test]
fn permit_beside_handlers() {
    check(
        "permit_beside_handlers",
        r#"key = "a", limit = "5/s", fallback = None, on_error = |error| { report(error); None }"#,
        "#[rate_limited(key = \"b\", limit = \"9/s\", fallback = slower, permit = allowed, recover = |_| None)] \
         fn get(id: u64) -> Option<Allowed> { Some(allowed) }",
    );
}

#[test]
fn several_attributes() {
    check(
        "several_attributes",
        r#"key = "user:{id}", limit = "5/s", fallback = slower"#,
        "#[rate_limited(key = \"global\", limit = \"100/s\", fallback = busy(denied), on_error = open)] \
         async fn get(id: u64) -> u64 { id }",
    );
}

#[test]
fn leases() {
    check(
        "leases",
        r#"key = "user:{id}", limit = "5/s", fallback = 0"#,
        "#[rate_limited(key = \"all\", limit = \"100000/s\", leases = true, on_error = closed, fallback = 1)] \
         #[rate_limited(\"rest\", leases = false, fallback = 2)] fn get(id: u64) -> u64 { id }",
    );
}

#[test]
fn impl_block() {
    check(
        "impl_block",
        r#"key = "service", limit = "5/s", fallback = None"#,
        "impl<T> Service<T> { const NONE: u64 = 0; fn get(&self) -> Option<u64> { None } \
         #[rate_limited(skip)] fn new() -> Self { Self } \
         #[rate_limited(key = \"own\", limit = \"1/s\")] async fn put(&mut self) -> Result<(), Denied> { Ok(()) } }",
    );
}

#[test]
fn async_trait() {
    check(
        "async_trait",
        r#"key = "user:{id}", limit = "5/s""#,
        "fn get<'a, 'async_trait>(&'a self, __arg1: Path<u64>) \
         -> Pin<Box<dyn Future<Output = Result<u64, Busy>> + Send + 'async_trait>> where 'a: 'async_trait { \
         Box::pin(async move { let __self = self; let Path(id) = __arg1; let __ret: Result<u64, \
         Busy> = { Ok(id) }; __ret }) }",
    );
}

#[test]
fn recover() {
    check(
        "recover",
        r#"key = "user:{id}", limit = "5/s", recover = from_cache"#,
        "async fn get(id: u64, mut name: String) -> Result<u64, Failed> { name.push('!'); load(name).await? }",
    );
}

#[test]
fn recover_in_a_sync_function() {
    check(
        "recover_sync",
        r#"key = "user:{id}", limit = "5/s", recover = |error| Err(error.into())"#,
        "fn get(id: u64) -> Result<u64, Failed> { Ok(load(id)?) }",
    );
}

#[test]
fn settle() {
    check(
        "settle",
        r#"key = "user:{id}", limit = "5/s", cost = 0, settle = |answer| answer.tokens, fallback = Answer::none()"#,
        "#[rate_limited(key = \"calls\", limit = \"9/s\", fallback = Answer::none())] \
         async fn get(id: u64, mut name: String) -> Answer { name.push('!'); load(name).await }",
    );
}

#[test]
fn settle_beside_permit_and_recover() {
    check(
        "settle_beside_permit_and_recover",
        r#"key = "k", limit = "5/s", settle = costs::of, permit = budget, recover = |error| Err(error)"#,
        "fn get() -> Result<u64, Failed> { Ok(load(budget)?) }",
    );
}

#[test]
fn settle_of_a_hidden_type() {
    check(
        "settle_of_a_hidden_type",
        r#"key = "k", limit = "5/s", cost = size, settle = |rows| size, when = size > 0"#,
        "async fn get(size: u32) -> Result<Vec<impl Row>, Busy> { load().await }",
    );
}

#[test]
fn patterns() {
    check(
        "patterns",
        r#"key = "{id}/{first}", limit = "5/s", fallback = degraded"#,
        "fn get(Path(id): Path<u64>, (first, ..): (u64, Token), #[cfg(unix)] _: Token, mut last: \
         u64) -> u64 { last += id; last }",
    );
}
