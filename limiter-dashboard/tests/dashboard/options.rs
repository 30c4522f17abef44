//! The options that a dashboard refuses.

use limiter_dashboard::Dashboard;
use rate_limited::Limiter;

use crate::support::TOKEN;

fn dashboard() -> Dashboard {
    let limiter = Limiter::builder().url("redis://127.0.0.1:1").presence(false).build();
    Dashboard::new(limiter.expect("a limiter"))
}

#[test]
fn an_option_that_cannot_be_used_is_an_error() {
    let message = |dashboard: Dashboard| dashboard.router().map(drop).expect_err("an error").to_string();
    assert!(message(dashboard().token("0123456789abcde")).contains("at least 16 bytes, got 15: use"));
    assert!(message(dashboard().token("0123456789 abcdef")).contains("visible ASCII"));
    assert!(message(dashboard().hosts(["http://a"])).contains("without a port, got \"http://a\": write"));
    assert!(message(dashboard().operator("redis://127.0.0.1:1")).contains("`token` must be set"));
    assert!(message(dashboard().token(TOKEN).operator("nonsense://x")).contains("url"));
    assert!(message(Dashboard::new(Limiter::memory())).contains("got one in memory"));
    assert!(dashboard().token(TOKEN).operator("redis://127.0.0.1:1").hosts(["a.example.com"]).router().is_ok());
}

#[tokio::test]
async fn beyond_loopback_a_token_and_insecure_are_needed() {
    let anywhere = "0.0.0.0:0".parse().expect("an address");
    for refused in [dashboard(), dashboard().token(TOKEN), dashboard().insecure()] {
        let error = refused.bind(anywhere).await.expect_err("an error").to_string();
        assert!(error.contains("must be a loopback address, got 0.0.0.0:0: use 127.0.0.1 behind a proxy"), "{error}");
    }
    assert!(dashboard().token(TOKEN).insecure().bind(anywhere).await.is_ok());
    let loopback = dashboard().bind("127.0.0.1:0".parse().expect("an address")).await.expect("a socket");
    let taken = dashboard().bind(loopback.address()).await.expect_err("it is taken").to_string();
    assert!(taken.contains("must be a free address"), "{taken}");
}
