//! The speed beside `INCR` of redis-server: the same client, in the same run.

use std::process::Command;

use limiter_testkit::{Address, RedisServer};

use super::*;

/// Prints the ratio of each round and the median. `SPEED_ROUNDS` and `SPEED_REQUESTS` change the length.
#[test]
#[ignore = "a measurement of minutes, in release alone: cargo test --release -p limiter-server --lib speed -- --ignored --nocapture"]
fn a_check_beside_incr() {
    let number =
        |name: &str, default: usize| std::env::var(name).map_or(default, |text| text.parse().expect("a number"));
    let (rounds, requests) = (number("SPEED_ROUNDS", 7), number("SPEED_REQUESTS", 200_000));
    let rules = "[rules.search]\nkey = \"search:{user}\"\nlimit = \"4000000000/10s\"";
    let server = Setup { builder: Limiter::builder().url("memory:"), rules, ..Setup::default() }.start();
    let redis = RedisServer::builder().tcp().start();
    let Address::Tcp(redis_address) = redis.address() else { panic!("a port") };
    for pipeline in [1, 16] {
        let mut ratios = Vec::new();
        for round in 0..rounds {
            let requests = if pipeline == 1 { requests } else { requests * 5 };
            let incr = || per_second(redis_address.port(), pipeline, requests, &["INCR", "counter"]);
            let check = || per_second(server.address.port(), pipeline, requests, &["RL.CHECK", "search", "42"]);
            // In turns, as the machine has other work.
            let (incr, check) = if round % 2 == 0 {
                (incr(), check())
            } else {
                let check = check();
                (incr(), check)
            };
            println!("-P {pipeline}: INCR {incr:.0}/s, RL.CHECK {check:.0}/s, {:.2}", check / incr);
            ratios.push(check / incr);
        }
        ratios.sort_by(f64::total_cmp);
        let median = ratios[ratios.len() / 2];
        println!("-P {pipeline}: median {median:.2}");
    }
}

fn per_second(port: u16, pipeline: usize, requests: usize, command: &[&str]) -> f64 {
    let output = Command::new("redis-benchmark")
        .args(["-h", "127.0.0.1", "-p", &port.to_string(), "-c", "50", "-P", &pipeline.to_string()])
        .args(["-n", &requests.to_string(), "--csv"])
        .args(command)
        .output()
        .expect("redis-benchmark");
    let text = String::from_utf8_lossy(&output.stdout);
    let fields = text.lines().last().unwrap_or_default().rsplit(',').nth(6).unwrap_or_default().trim_matches('"');
    fields.parse().unwrap_or_else(|_| panic!("{text}"))
}
