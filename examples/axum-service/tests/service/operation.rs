//! Readiness, changes of the limits, and the end of the service.

use limiter_testkit::RedisServer;
use tokio::net::TcpStream;

use crate::client::{Connection, get};
use crate::instance::{Instance, eventually};
use crate::quota::{check_denial, of_rule};

const FIELDS: [&str; 2] = ["authorization: Bearer 7", "x-forwarded-for: 192.0.2.1"];

#[tokio::test]
async fn readiness_follows_the_store() {
    let mut server = RedisServer::start();
    let service = Instance::start(&server, "# none\n");
    let ready = async |status| (get(service.address, "/readyz", &[]).await.status == status).then_some(());
    eventually("readiness", async || ready(200).await).await;
    server.kill();
    eventually("failed readiness", async || ready(503).await).await;
    server.restart();
    eventually("readiness again", async || ready(200).await).await;
}

#[tokio::test]
async fn a_changed_file_takes_effect_without_a_restart() {
    let service = Instance::start_with("rules.user.limit = \"10/h\"\n", &[]);
    let limit = async |rule| {
        let answer = get(service.address, "/quote", &FIELDS).await;
        of_rule(&answer, "ratelimit-policy", rule)["q"]
    };
    assert_eq!((limit("user").await, limit("service").await), (10, 1_000));
    service.set_rules("rules.user.limit = \"100000/h\"\n");
    eventually("the new limit", async || (limit("user").await == 100_000).then_some(())).await;
}

#[tokio::test]
async fn a_handler_with_a_limit_answers_as_a_layer_does() {
    let service = Instance::start_with("rules.report.limit = \"1/h\"\n", &[]);
    assert_eq!(get(service.address, "/report", &FIELDS).await.status, 200);
    let denied = get(service.address, "/report", &FIELDS).await;
    check_denial(&denied, &["report", "service", "user", "address"]);
    let other = ["authorization: Bearer 8", FIELDS[1]];
    assert_eq!(get(service.address, "/report", &other).await.status, 200);
}

#[tokio::test]
async fn scripts_of_other_origins_can_read_the_fields_of_a_denial() {
    let service = Instance::start_with("rules.user.limit = \"1/h\"\n", &[]);
    let fields = [&FIELDS[..], &["origin: https://shop.example"]].concat();
    get(service.address, "/quote", &fields).await;
    let denied = get(service.address, "/quote", &fields).await;
    check_denial(&denied, &["user", "address"]);
    let exposed = denied.field("access-control-expose-headers").expect("a list");
    for name in ["retry-after", "ratelimit", "ratelimit-policy"] {
        assert!(exposed.split(',').any(|field| field == name), "{exposed}");
    }
}

#[tokio::test]
async fn an_open_request_is_answered_after_sigterm() {
    let mut service = Instance::start_with("# none\n", &[]);
    let mut connection = Connection::open(service.address).await;
    let fields = [FIELDS[0], FIELDS[1], "content-length: 5", "expect: 100-continue"].map(str::as_bytes);
    connection.send_head("POST /order", &fields).await;
    // The service sends it when the handler reads the body: the request is open.
    assert_eq!(connection.answer().await.status, 100);
    service.terminate();
    let refuses = async || TcpStream::connect(service.address).await.is_err().then_some(());
    eventually("refusal of new connections", refuses).await;
    connection.send(b"bread").await;
    let answer = connection.answer().await;
    assert_eq!((answer.status, &*answer.body), (200, "user 7 orders bread\n"));
    assert!(service.end().await.success());
}
