//! The demonstration, wrong options, and the end of the service.

use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use limiter_testkit::RedisServer;
use limiter_testkit::stalls::Stalls;
use tonic::Request;

use crate::instance::{Instance, PATIENT, run};
use crate::shop::Goods;
use crate::shop::quotes_client::QuotesClient;

/// Returns the lines of the demonstration's output that begin with this text.
fn lines_of<'a>(output: &'a str, start: &str) -> Vec<&'a str> {
    output.lines().filter(|line| line.starts_with(start)).collect()
}

#[test]
fn the_demonstration_ends_by_itself() {
    let server = RedisServer::start();
    for options in [&[][..], &["--redis", &server.url(), PATIENT[0], PATIENT[1]]] {
        let (code, text, errors) = run(options);
        assert_eq!(code, Some(0), "{text}\n{errors}");
        let quotes = lines_of(&text, "Quote: ");
        assert_eq!(quotes[..3], ["Quote: a quote of bread for user 7"; 3], "{text}");
        assert_eq!(quotes[4], "Quote: a quote of bread for user 8", "{text}");
        // The service has denied two of these, and the client has not sent the last one.
        for (quote, rule) in [(quotes[3], "quote"), (quotes[5], "quote"), (quotes[6], "shop")] {
            assert!(quote.starts_with("Quote: ResourceExhausted, RetryInfo "), "{text}");
            assert!(quote.contains(&format!("`{rule}`")), "{text}");
        }
        let stock = lines_of(&text, "Stock: ");
        let seconds = stock[0].strip_prefix("Stock: 9 of 9 calls were answered, in ").expect("all calls");
        let seconds: f64 = seconds.trim_end_matches(" s").parse().expect("a number");
        // Four calls in any second: the ninth is two seconds after the first.
        assert!(seconds >= 2.0, "{text}");
        assert_eq!(stock[1], "Stock: there is bread", "{text}");
        assert!(text.lines().count() < 40, "{text}");
    }
}

#[test]
fn the_demonstration_without_its_redis_shows_the_policies() {
    let (code, text, errors) = run(&["--redis", "redis://127.0.0.1:1"]);
    assert_eq!(code, Some(0), "{text}\n{errors}");
    let quotes = lines_of(&text, "Quote: ");
    assert!(quotes.iter().all(|quote| quote.starts_with("Quote: Unavailable, RetryInfo 1.000s: ")), "{text}");
    assert_eq!((quotes.len(), lines_of(&text, "Stock: there is bread").len()), (7, 1), "{text}");
}

#[test]
fn wrong_options_end_the_service_with_one_error() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = listener.local_addr().expect("an address").to_string();
    let in_use = format!("cannot listen on {taken}: ");
    let cases = [
        (["--listen", "nowhere"], 2, "invalid value 'nowhere' for '--listen <ADDRESS>'"),
        (["--deadline", "0"], 2, "invalid value '0' for '--deadline <MILLISECONDS>'"),
        (["--redis", "nowhere"], 1, "`url` must"),
        (["--listen", &*taken], 1, &*in_use),
    ];
    for (options, expected, message) in cases {
        let (code, text, errors) = run(&options);
        assert_eq!((code, &*text), (Some(expected), ""), "{options:?}: {errors}");
        assert!(errors.starts_with("error: ") && errors.contains(message), "{options:?}: {errors}");
        assert!(expected == 2 || errors.lines().count() == 1, "{options:?}: {errors}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_end_the_service_with_idle_connections() {
    let server = RedisServer::start();
    for signal in ["INT", "TERM"] {
        let mut service = Instance::start(&server);
        // It never sends the preface of HTTP/2, so only the timeout ends it.
        let _silent = TcpStream::connect(service.address).expect("the service listens");
        let client = QuotesClient::connect(format!("http://{}", service.address)).await;
        let mut client = client.expect("the service listens");
        assert!(client.stock(Request::new(Goods { name: signal.to_owned() })).await.is_ok());
        let began = Instant::now();
        let stalls = Stalls::watch(began);
        service.signal(signal);
        assert!(service.end().success());
        let took = began.elapsed().saturating_sub(stalls.stall_time_since(began));
        assert!(took < Duration::from_secs(5), "{took:?} after {signal}");
    }
}
