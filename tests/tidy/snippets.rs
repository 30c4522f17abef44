//! Code of the README that needs more than the facade: the same code is compiled elsewhere.

use crate::sources::{read, root};

/// The blocks of code of a document: the word behind the fence, and the code without hidden lines.
fn blocks(document: &str) -> Vec<(String, String)> {
    let text = read(&root().join(document));
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(kind) = lines.by_ref().find_map(|line| line.strip_prefix("```")) {
        let code: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
        let shown: Vec<_> = code.into_iter().filter(|line| *line != "#" && !line.starts_with("# ")).collect();
        blocks.push((kind.to_owned(), shown.join("\n")));
    }
    blocks
}

#[test]
fn the_layer_in_the_readme_is_compiled_with_the_document_about_it() {
    let compiled: Vec<_> = blocks("docs/http.md").into_iter().filter(|(kind, _)| !kind.contains("ignore")).collect();
    let layers: Vec<_> = blocks("README.md").into_iter().filter(|(_, code)| code.contains("RateLimitLayer")).collect();
    assert_eq!(layers.len(), 1, "the layer");
    for (_, code) in layers {
        assert!(compiled.iter().any(|(_, other)| *other == code), "docs/http.md must compile this code:\n{code}");
    }
}
