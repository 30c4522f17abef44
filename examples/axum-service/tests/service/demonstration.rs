//! The program without options, and the length of its first file.

use std::process::Command;

use limiter_testkit::RedisServer;

#[test]
fn the_demonstration_ends_by_itself() {
    let server = RedisServer::start();
    for options in [&[][..], &["--redis", &server.url()]] {
        let output = Command::new(env!("CARGO_BIN_EXE_axum-service")).args(options).output().expect("the service");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
        let shown = ["200 OK", "401 Unauthorized", "400 Bad Request", "429 Too Many Requests"];
        assert!(shown.iter().all(|status| text.contains(status)), "{text}");
        assert!(text.contains("\nrate_limited_decisions_total{"), "{text}");
        assert!(text.contains("\nretry-after: ") && text.contains(r#""violated-policies":["report"]"#), "{text}");
    }
}

/// Returns the lines of the service's first file that are neither empty, comments, attributes, handlers, the chain of
/// layers, nor bind and shutdown.
fn glue(source: &str) -> Vec<&str> {
    let mut glue = Vec::new();
    // Returns whether a line ends the handler or the chain that is skipped.
    let mut ends: Option<fn(&str) -> bool> = None;
    for line in source.lines() {
        let text = line.trim();
        let starts = |texts: &[&str]| texts.iter().any(|start| text.starts_with(start));
        if let Some(is_end) = ends {
            ends = ends.filter(|_| !is_end(line));
        } else if text.starts_with("async fn") && !text.contains(" main(") {
            ends = Some(|line| line == "}");
        } else if text.starts_with("let router = ") {
            ends = Some(|line| line.ends_with(';'));
        } else if !text.is_empty()
            && !starts(&["//", "#[", "let listener", "let stop", "let service", "Ok(axum::serve"])
        {
            glue.push(line);
        }
    }
    glue
}

#[test]
fn the_glue_is_at_most_15_lines() {
    let glue = glue(include_str!("../../src/main.rs"));
    assert!(glue.len() <= 15, "{} lines:\n{}", glue.len(), glue.join("\n"));
}
