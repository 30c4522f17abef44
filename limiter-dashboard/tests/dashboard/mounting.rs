//! The page under any path.

use axum::Router;
use axum::body::Body;
use axum::http::StatusCode;
use limiter_testkit::RedisServer;

use crate::support::{Answer, router, send};

async fn page(app: &Router, path: &str) -> Answer {
    send(app, "GET", path, &[], Body::empty()).await
}

/// Returns where a relative URL of a page leads to.
fn resolve(page: &str, link: &str) -> String {
    let (directory, _) = page.rsplit_once('/').expect("a path");
    format!("{directory}/{}", link.trim_start_matches("./"))
}

#[tokio::test]
async fn the_files_of_the_page_are_found_under_any_path() {
    let server = RedisServer::start();
    let router = router(&server).await;
    let nested = |path: &str| Router::new().nest(path, router.clone());
    for (app, path) in [
        (router.clone(), "/"),
        (nested("/limits"), "/limits"),
        (nested("/ops/limits"), "/ops/limits"),
        (nested("/a&b"), "/a&b"),
    ] {
        let answer = page(&app, path).await;
        assert_eq!(
            (answer.status, &answer.headers["content-type"]),
            (StatusCode::OK, &"text/html; charset=utf-8".parse().expect("a value")),
            "{path}"
        );
        let links: Vec<_> = answer.text.split("=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        let links: Vec<_> = links.into_iter().filter(|link| link.starts_with("./")).collect();
        assert!(links.len() >= 5, "{links:?}");
        for link in links {
            let file = resolve(path, &link.replace("&amp;", "&"));
            assert_eq!(page(&app, &file).await.status, StatusCode::OK, "{path}: {file}");
        }
        assert!(!answer.text.contains("http:") && !answer.text.contains("https:") && !answer.text.contains("{base}"));
        assert!(!answer.text.contains("style=") && !answer.text.contains("<style") && !answer.text.contains(" on"));
    }
}

/// Returns the modules of the page, as they import each other.
async fn modules(router: &Router) -> Vec<String> {
    let mut found = vec!["/dashboard.js".to_owned()];
    for place in 0.. {
        let Some(file) = found.get(place).cloned() else { break };
        let answer = page(router, &file).await;
        let kind = &answer.headers["content-type"];
        assert_eq!(
            (answer.status, kind),
            (StatusCode::OK, &"text/javascript; charset=utf-8".parse().expect("a value")),
            "{file}"
        );
        for import in answer.text.lines().filter(|line| line.starts_with("import ")) {
            let path =
                import.rsplit('"').nth(1).expect("a path").strip_prefix('.').expect("a relative path").to_owned();
            if !found.contains(&path) {
                found.push(path);
            }
        }
    }
    found
}

#[tokio::test]
async fn the_page_is_small_and_has_no_address_of_others() {
    let server = RedisServer::start();
    let router = router(&server).await;
    let mut bytes = 0;
    let mut files = vec!["/".to_owned(), "/dashboard.css".to_owned(), "/uplot.css".to_owned(), "/icon.svg".to_owned()];
    files.extend(modules(&router).await.into_iter().chain(["/uplot.js".to_owned()]));
    for file in &files {
        let text = page(&router, file).await.text;
        bytes += text.len();
        let addresses: Vec<_> =
            text.match_indices("://").map(|(at, _)| &text[at.saturating_sub(8)..(at + 30).min(text.len())]).collect();
        // A name of SVG, and the home of uPlot in a comment.
        let known = |address: &&&str| address.contains("www.w3.org") || address.contains("github.com/leeoniya");
        assert!(addresses.iter().all(|address| known(&address)), "{file}: {addresses:?}");
        let module = text.contains("import ");
        assert!(
            !module || text.lines().filter(|line| line.contains("import ")).all(|line| line.contains(" from \"./")),
            "{file}"
        );
        for call in [
            "eval(",
            "new Function",
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "localStorage",
            "sessionStorage",
            "document.cookie",
        ] {
            assert!(!text.contains(call), "{file} has {call}");
        }
    }
    assert!(bytes < 145_000, "{bytes} bytes");
}
