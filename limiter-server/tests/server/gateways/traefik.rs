//! docs/gateways/traefik.md.

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Instant;

use super::page::{Addresses, configurations};
use super::process::{Gateway, program_of};
use super::{SLOW, Service, ask, limits, service, timed};

const PAGE: &str = include_str!("../../../../docs/gateways/traefik.md");

async fn start(program: &Path, service: SocketAddr) -> Gateway {
    let behind = service::program().await;
    let prepare = |directory: &Path, addresses: Addresses| -> Vec<OsString> {
        let part = configurations(PAGE, "yaml", addresses).remove(0);
        fs::write(directory.join("routes.yml"), part).expect("written");
        let entry = format!("--entrypoints.web.address={}", addresses.gateway);
        let others = ["--providers.file.filename=routes.yml", "--global.checknewversion=false"];
        let others = others.into_iter().chain(["--global.sendanonymoususage=false"]);
        others.map(OsString::from).chain([entry.into()]).collect()
    };
    let gateway = Gateway::start(program, service, behind, prepare).await;
    // It listens before it has read its routes.
    let begin = Instant::now();
    while gateway.ask("OPTIONS /start HTTP/1.1\r\nx-forwarded-for: 192.0.2.9").await.status == 404 {
        assert!(begin.elapsed() < super::process::START_TIME, "no routes");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    gateway
}

#[tokio::test]
async fn requests_are_limited_by_the_address_that_traefik_writes() {
    let Some(program) = program_of("traefik") else { return };
    let service = Service::start("x-forwarded-for").await;
    let gateway = start(&program, service.address).await;
    service.reset(super::CLIENT).await;
    let [first, _, denied] = limits(&gateway, &service).await;
    assert_eq!(first.field("ratelimit"), "", "never on an admitted answer");
    assert_eq!(denied.field("content-type"), "application/json", "as the service wrote it");
    let forged = gateway.ask("GET / HTTP/1.1\r\nx-forwarded-for: 192.0.2.1").await;
    assert_eq!((forged.status, service.remaining("192.0.2.1").await), (429, 2), "an address that a client chose");
}

#[tokio::test]
async fn a_stopped_service_lets_nobody_in_and_a_slow_one_is_waited_for() {
    let Some(program) = program_of("traefik") else { return };
    let (stopped, _socket) = service::refusing();
    assert_eq!(ask(&start(&program, stopped).await).await.status, 500);
    let slow = service::answering_after(SLOW).await;
    let (received, took) = timed(&start(&program, slow).await).await;
    assert_eq!(received.status, 200);
    assert!(took >= SLOW, "{took:?}");
}
