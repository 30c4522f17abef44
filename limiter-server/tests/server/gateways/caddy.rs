//! docs/gateways/caddy.md.

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::page::{Addresses, configurations};
use super::process::{Gateway, program_of};
use super::{Service, ask, has_fields, limits, service, timed};

const PAGE: &str = include_str!("../../../../docs/gateways/caddy.md");

/// The two configurations of the page, by their place.
const SHORT: usize = 0;
const LONG: usize = 1;

async fn start(program: &Path, service: SocketAddr, form: usize) -> Gateway {
    let behind = service::program().await;
    let prepare = |directory: &Path, addresses: Addresses| -> Vec<OsString> {
        let part = configurations(PAGE, "caddy", addresses).remove(form);
        // For each host that a client names.
        let part = part.replace(&addresses.gateway.to_string(), &format!(":{}", addresses.gateway.port()));
        let options = "admin off\n\tauto_https off\n\tpersist_config off\n\tdefault_bind 127.0.0.1";
        let whole = format!("{{\n\t{options}\n}}\n{part}");
        fs::write(directory.join("Caddyfile"), whole).expect("written");
        ["run", "--config", "Caddyfile", "--adapter", "caddyfile"].map(OsString::from).into()
    };
    Gateway::start(program, service, behind, prepare).await
}

#[tokio::test]
async fn requests_are_limited_and_the_long_form_adds_the_fields() {
    let Some(program) = program_of("caddy") else { return };
    for form in [SHORT, LONG] {
        let service = Service::start("x-client-ip").await;
        let [first, second, denied] = limits(&start(&program, service.address, form).await, &service).await;
        if form == LONG {
            has_fields(&first, 1);
            has_fields(&second, 0);
        } else {
            assert_eq!(first.field("ratelimit"), "", "none in the short form");
        }
        assert_eq!(denied.field("content-type"), "application/json", "as the service wrote it");
        assert_eq!(service.remaining("192.0.2.1").await, 2, "an address that a client chose");
    }
}

#[tokio::test]
async fn a_service_that_is_stopped_or_hangs_lets_none_in_or_all() {
    let Some(program) = program_of("caddy") else { return };
    let (stopped, _socket) = service::refusing();
    assert_eq!(ask(&start(&program, stopped, SHORT).await).await.status, 502);
    assert_eq!(ask(&start(&program, stopped, LONG).await).await.status, 200);
    let hanging = service::hanging().await;
    for (form, status) in [(SHORT, 504), (LONG, 200)] {
        let (received, took) = timed(&start(&program, hanging, form).await).await;
        assert_eq!(received.status, status);
        assert!(took >= Duration::from_millis(900), "`response_header_timeout`: {took:?}");
    }
}
