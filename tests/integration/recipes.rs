//! Tests of docs/recipes.md. Each module begins with the code of one recipe, as the page has it.

use std::time::Instant;

use limiter_testkit::RedisServer;
use rate_limited::{HealthState, Source};

use crate::deadlines::{DEADLINE, MAX_LATENESS, eventually};
use crate::support::{builder_for, key, limit};

const PAGE: &str = include_str!("../../docs/recipes.md");

/// Returns the blocks of code of this kind.
fn blocks(kind: &str) -> Vec<&'static str> {
    let start = format!("```{kind}\n");
    PAGE.split(&start).skip(1).filter_map(|block| block.split("```").next()).collect()
}

/// Returns the first block of this kind.
fn first_block(kind: &str) -> &'static str {
    blocks(kind)[0]
}

#[test]
fn the_code_of_the_page_is_that_of_these_tests() {
    let without_indentation = |code: &str| code.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    let tested = without_indentation(include_str!("recipes.rs"));
    let recipes = blocks("rust");
    assert_eq!(recipes.len(), 8);
    for recipe in recipes {
        let recipe = without_indentation(recipe);
        assert!(tested.contains(&format!(" {{\n{recipe}\n")), "no test runs this code:\n{recipe}");
    }
}

mod each_user {
    use rate_limited::{Denied, rate_limited};

    #[rate_limited(key = "search:{user_id}", limit = "100/min")]
    async fn search(user_id: u64, query: &str) -> Result<Vec<String>, Denied> {
        Ok(vec![query.to_owned()])
    }

    #[tokio::test]
    async fn each_user_has_a_quota() {
        let calls = async {
            for _ in 0..100 {
                assert!(search(1, "a").await.is_ok());
            }
            assert!(search(1, "a").await.is_err());
            assert!(search(2, "a").await.is_ok());
        };
        rate_limited::Limiter::memory().scope(calls).await;
    }
}

mod plans {
    use rate_limited::{Denied, Error, Limiter, rate_limited};

    #[rate_limited(key = "invoice:{user_id}", name = "invoice", limit = "10/h", plan = plan)]
    async fn invoice(plan: &str, user_id: u64) -> Result<(), Denied> {
        println!("an invoice for {user_id} by the plan {plan}");
        Ok(())
    }

    fn limiter(file: &str) -> Result<Limiter, Error> {
        Limiter::builder().rules_file(file).build()
    }

    #[tokio::test]
    async fn users_of_another_plan_have_its_limit() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("rules.toml");
        std::fs::write(&file, super::first_block("toml")).expect("written");
        let limiter = limiter(file.to_str().expect("UTF-8")).expect("a file of rules");
        let calls = async {
            for (plan, max) in [("free", 10), ("pro", 990)] {
                for _ in 0..max {
                    assert!(invoice(plan, 42).await.is_ok());
                }
                assert!(invoice(plan, 42).await.is_err());
            }
        };
        limiter.scope(calls).await;
    }
}

mod log_ins {
    use std::net::IpAddr;

    use rate_limited::{Denied, Limiter, rate_limited};

    /// Only failures count: 5 for an account and 20 for an address in any 15 minutes.
    #[rate_limited(key = "log-in:{account}", limit = "5/15min", permit = allowed, on_error = closed)]
    #[rate_limited(key = "log-in-from:{address}", limit = "20/15min")]
    async fn log_in(account: &str, address: IpAddr, password: &str) -> Result<bool, Denied> {
        let is_right = password == "open sesame";
        if is_right {
            let _ = Limiter::current().refund(&allowed).await; // a refund that fails leaves the permits taken
        }
        Ok(is_right)
    }

    #[tokio::test]
    async fn only_failed_log_ins_count() {
        let address = IpAddr::from([192, 0, 2, 1]);
        let calls = async {
            for _ in 0..30 {
                assert_eq!(log_in("ann", address, "open sesame").await.ok(), Some(true));
            }
            for account in ["ann", "ben", "cid", "dan"] {
                for _ in 0..5 {
                    assert_eq!(log_in(account, address, "guess").await.ok(), Some(false));
                }
                assert!(log_in(account, address, "open sesame").await.is_err());
            }
            let denied = log_in("eve", address, "open sesame").await.expect_err("20 failures of the address");
            assert_eq!(denied.name(), "log-in-from:{address}");
        };
        Limiter::memory().scope(calls).await;
    }
}

mod partner {
    use rate_limited::{Denied, rate_limited};

    #[rate_limited(key = "partner", limits = ["10/s", "1000/h"], wait = "2s")]
    async fn order(item: u64) -> Result<String, Denied> {
        Ok(format!("item {item} is ordered"))
    }

    #[tokio::test]
    async fn calls_wait_for_the_partner() {
        let clock = rate_limited::ManualClock::new();
        let limiter = rate_limited::Limiter::builder().clock(clock.clone()).build().expect("a limiter");
        let calls = async {
            for item in 0..10 {
                assert!(order(item).await.is_ok());
            }
            let (eleventh, ()) = tokio::join!(order(10), async { clock.advance(std::time::Duration::from_secs(1)) });
            assert_eq!(eleventh.ok().as_deref(), Some("item 10 is ordered"));
        };
        limiter.scope(calls).await;
    }
}

mod queue {
    use std::collections::VecDeque;
    use std::time::Duration;

    use rate_limited::{Denied, rate_limited};

    #[rate_limited(key = "mail", limit = "10/s", wait = "200ms")]
    async fn send_mail(address: &str) -> Result<(), Denied> {
        println!("a mail to {address}");
        Ok(())
    }

    async fn work(mut queue: VecDeque<String>) {
        while let Some(address) = queue.pop_front() {
            if let Err(denied) = send_mail(&address).await {
                queue.push_front(address);
                tokio::time::sleep(denied.retry_after_spread(Duration::from_millis(100))).await;
            }
        }
    }

    #[tokio::test]
    async fn a_worker_sends_all_jobs_within_the_limit() {
        let sent = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let times = std::sync::Arc::clone(&sent);
        let observe = move |_: &rate_limited::Allowed| times.lock().expect("no panic").push(std::time::Instant::now());
        let limiter = rate_limited::Limiter::builder().on_allowed(observe).build().expect("a limiter");
        let started = std::time::Instant::now();
        limiter.scope(work((0..12).map(|job| job.to_string()).collect())).await;
        assert!(started.elapsed() >= Duration::from_secs(1), "the eleventh mail is early");
        assert_eq!(sent.lock().expect("no panic").len(), 12);
    }
}

mod block {
    use rate_limited::{Denied, rate_limited};

    /// Allows 100 calls in a minute. The first call above that blocks the user for an hour.
    #[rate_limited(key = "calls:{user}", limit = "100/min", block = "1h")]
    async fn call(user: u64) -> Result<(), Denied> {
        Ok(())
    }

    #[tokio::test]
    async fn an_excess_blocks_for_an_hour() {
        let clock = rate_limited::ManualClock::new();
        let limiter = rate_limited::Limiter::builder().clock(clock.clone()).build().expect("a limiter");
        let calls = async {
            for _ in 0..100 {
                assert!(call(1).await.is_ok());
            }
            let hour = std::time::Duration::from_secs(3_600);
            assert_eq!(call(1).await.expect_err("the excess").retry_after(), hour);
            clock.advance(hour / 2);
            assert_eq!(call(1).await.expect_err("the block").retry_after(), hour / 2);
            assert!(call(2).await.is_ok());
            clock.advance(hour / 2);
            assert!(call(1).await.is_ok());
        };
        limiter.scope(calls).await;
    }
}

mod clock {
    use std::time::Duration;

    use rate_limited::{Limiter, ManualClock, rate_limited};

    #[rate_limited(key = "getId", window = "10s", max = 5, fallback = "degraded")]
    async fn get_id() -> &'static str {
        "id"
    }

    #[tokio::test]
    async fn degrades_the_sixth_call() -> Result<(), rate_limited::Error> {
        let clock = ManualClock::new();
        let limiter = Limiter::builder().clock(clock.clone()).build()?;
        let calls = async {
            for _ in 0..5 {
                assert_eq!(get_id().await, "id");
            }
            assert_eq!(get_id().await, "degraded");
            clock.advance(Duration::from_secs(10));
            assert_eq!(get_id().await, "id");
        };
        limiter.scope(calls).await;
        Ok(())
    }
}

mod report {
    use rate_limited::{Denied, Error, Limiter};

    fn limiter(report: impl Fn(&Denied) + Send + Sync + 'static) -> Result<Limiter, Error> {
        Limiter::builder().expose_keys().on_denied(report).build()
    }

    #[tokio::test]
    async fn observers_get_the_key_of_a_denial() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let report =
            move |denied: &Denied| drop(sender.send((denied.name().to_owned(), denied.key().map(str::to_owned))));
        let limiter = limiter(report).expect("a limiter");
        let (key, limit) = (rate_limited::Key::new("user:").part(42), "1/h".parse().expect("a limit"));
        for _ in 0..2 {
            let _ = limiter.check(&key, &limit).await.expect("a decision");
        }
        assert_eq!(receiver.try_recv(), Ok(("check".to_owned(), Some("user:@42".to_owned()))));
        assert!(receiver.try_recv().is_err());
    }
}

#[tokio::test]
async fn a_drill_shows_an_outage() {
    let command =
        PAGE.lines().find_map(|line| line.strip_prefix("redis-cli -u \"$RATE_LIMITED_URL\" ")).expect("a drill");
    let command = command.replace("30000", "1500");
    let server = RedisServer::start();
    let limiter = builder_for(&server).deadline(DEADLINE).connect().await.expect("a server");
    let source = async || {
        let started = Instant::now();
        let decision = limiter.check(&key("drill"), &limit("1000/100ms")).await.expect("a decision");
        assert!(started.elapsed() < DEADLINE + MAX_LATENESS, "{:?}", started.elapsed());
        decision.into_result().expect("far from the limit").source()
    };
    eventually("the store decides", || async { source().await == Source::Store }).await;
    server.command(&command.split(' ').collect::<Vec<_>>());
    assert_eq!(source().await, Source::Standby);
    eventually("the state is down", || async { limiter.health().state == HealthState::Down }).await;
    assert_eq!(source().await, Source::Standby);
    eventually("the state is up", || async { limiter.health().state == HealthState::Up }).await;
    eventually("the store decides again", || async { source().await == Source::Store }).await;
}

mod incident {
    use rate_limited::{Key, Limiter, RuleSet};

    use crate::support::limit;

    #[test]
    fn networks_get_nothing_except_one_client() {
        let rules: RuleSet = super::blocks("toml")[1].parse().expect("rules");
        let limiter = Limiter::builder().rules(rules).build().expect("builds");
        let calls = |ip: &str, path: &str| {
            let key = Key::new("api:ip:").part(ip).text(":path:").part(path);
            let check = || limiter.named("api").check_blocking(&key, &limit("9/min")).expect("memory");
            (0..200).filter(|_| check().is_allowed()).count()
        };
        for ip in ["203.0.113.7", "198.51.100.255", "2001:db8:bad:1::/64"] {
            assert_eq!((calls(ip, "/search"), calls(ip, "/export/all")), (0, 0), "{ip}");
        }
        assert_eq!((calls("203.0.113.9", "/search"), calls("203.0.113.9", "/export/all")), (100, 100));
        assert_eq!((calls("192.0.2.1", "/search"), calls("192.0.2.1", "/export/all")), (100, 5));
        assert_eq!(calls("192.0.2.1", &format!("/export/{}", "x".repeat(500))), 5);
    }
}
