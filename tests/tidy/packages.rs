//! The packages that are published, and the files of the repository for those who work on it.

use std::path::Path;

use crate::sources::{files, read, root};

/// The manifests of the packages that are published.
fn published() -> Vec<std::path::PathBuf> {
    let manifests = files(".", &["toml"]).into_iter().filter(|file| file.ends_with("Cargo.toml"));
    manifests.filter(|file| !read(file).lines().any(|line| line == "publish = false")).collect()
}

#[test]
fn published_packages_have_what_a_registry_shows() {
    let manifests = published();
    assert_eq!(manifests.len(), 9, "CONTRIBUTING.md, scripts/test and public_api.rs name each of {manifests:?}");
    for manifest in manifests {
        let text = read(&manifest);
        let shown = manifest.display();
        let keys = [
            "version",
            "edition",
            "rust-version",
            "license",
            "repository",
            "description",
            "keywords",
            "categories",
            "documentation",
        ];
        for key in keys {
            let is_set = |line: &str| line.strip_prefix(key).is_some_and(|rest| rest.starts_with([' ', '.']));
            assert!(text.lines().any(is_set), "{shown} must have `{key}`");
        }
        let docs_rs = "[package.metadata.docs.rs]\nall-features = true\n";
        assert!(text.contains(docs_rs), "{shown} must have {docs_rs}");
        let directory = manifest.parent().expect("a directory");
        for file in ["README.md", "LICENSE-APACHE", "LICENSE-MIT"] {
            assert!(directory.join(file).is_file(), "there must be a {file} beside {shown}");
        }
    }
}

#[test]
fn workflows_and_contributing_run_programs_that_are_there() {
    let places = [".github/workflows/ci.yml", ".github/workflows/dependencies.yml", "CONTRIBUTING.md"];
    let mut programs = Vec::new();
    for place in places {
        let text = read(&root().join(place));
        let words = text.split(|letter: char| letter.is_whitespace() || "`,;()".contains(letter));
        let named = words.filter(|word| word.starts_with("scripts/") || word.starts_with(".ci/"));
        programs.extend(named.map(|word| word.trim_end_matches('.').to_owned()));
    }
    for program in &programs {
        assert!(root().join(program).is_file(), "there is no {program}");
    }
    for program in [".ci/run", "scripts/msrv", "scripts/dependency-policy"] {
        assert!(programs.iter().any(|named| named == program), "a workflow must run {program}");
    }
}

#[test]
fn the_workflow_has_the_compiler_of_the_expected_messages() {
    let expected = read(&root().join("tests/ui.rs"));
    let version = expected.split_once("\"rustc ").and_then(|(_, rest)| rest.split_once(".\"")).expect("a version").0;
    let workflow = read(&root().join(Path::new(".github/workflows/ci.yml")));
    let toolchain = format!("rustup toolchain install {version} ");
    assert!(workflow.contains(&toolchain), "ci.yml must have `{toolchain}`, as tests/ui.rs");
}
