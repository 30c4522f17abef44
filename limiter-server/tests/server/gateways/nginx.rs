//! docs/gateways/nginx.md.

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::page::{Addresses, configurations};
use super::process::{Gateway, program_of};
use super::{CLIENT, Service, ask, has_fields, limits, service, timed};

const PAGE: &str = include_str!("../../../../docs/gateways/nginx.md");

/// The configuration of the page with what is around it. One process is enough, and nothing is written outside of the directory.
fn whole(part: &str) -> String {
    let directories =
        ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|name| format!("{name}_temp_path {name};\n"));
    let directories = directories.concat();
    format!(
        "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n\
         {directories}{part}}}\n"
    )
}

async fn start(program: &Path, service: SocketAddr, is_open: bool) -> Gateway {
    let behind = service::program().await;
    let prepare = |directory: &Path, addresses: Addresses| -> Vec<OsString> {
        let mut part = configurations(PAGE, "nginx", addresses).remove(0);
        if !is_open {
            let lines = part.lines().filter(|line| !line.contains("= @unlimited;")).map(|line| format!("{line}\n"));
            part = lines.collect();
        }
        fs::write(directory.join("nginx.conf"), whole(&part)).expect("written");
        ["-p".into(), directory.into(), "-c".into(), "nginx.conf".into()].into()
    };
    Gateway::start(program, service, behind, prepare).await
}

#[tokio::test]
async fn requests_are_limited_and_every_answer_has_the_fields() {
    let Some(program) = program_of("nginx") else { return };
    let service = Service::start("x-client-ip").await;
    let nginx = start(&program, service.address, true).await;
    let [first, second, denied] = limits(&nginx, &service).await;
    has_fields(&first, 1);
    has_fields(&second, 0);
    assert_eq!(denied.field("content-type"), "application/problem+json");
    assert_eq!(service.remaining("192.0.2.1").await, 2, "an address that a client chose");
}

/// nginx makes 500 of it, and the page's line lets the request in. So `denied=403` is needed.
#[tokio::test]
async fn a_denial_of_429_would_let_the_request_in() {
    let Some(program) = program_of("nginx") else { return };
    let service = Service::start("x-client-ip").await;
    let behind = service::program().await;
    let prepare = |directory: &Path, addresses: Addresses| -> Vec<OsString> {
        let part = configurations(PAGE, "nginx", addresses).remove(0).replace("&denied=403", "");
        fs::write(directory.join("nginx.conf"), whole(&part)).expect("written");
        ["-p".into(), directory.into(), "-c".into(), "nginx.conf".into()].into()
    };
    let nginx = Gateway::start(&program, service.address, behind, prepare).await;
    for _ in 0..3 {
        assert_eq!(ask(&nginx).await.status, 200);
    }
    assert_eq!(service.remaining(CLIENT).await, 0);
}

#[tokio::test]
async fn a_service_that_is_stopped_or_hangs_lets_all_in_or_none() {
    let Some(program) = program_of("nginx") else { return };
    let (stopped, _socket) = service::refusing();
    assert_eq!(ask(&start(&program, stopped, true).await).await.status, 200);
    assert_eq!(ask(&start(&program, stopped, false).await).await.status, 500);
    let hanging = service::hanging().await;
    for (is_open, status) in [(true, 200), (false, 500)] {
        let (received, took) = timed(&start(&program, hanging, is_open).await).await;
        assert_eq!(received.status, status);
        assert!(took >= Duration::from_millis(900), "`proxy_read_timeout`: {took:?}");
    }
}
