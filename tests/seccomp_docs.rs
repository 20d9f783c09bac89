//! The page about system calls says what the table says.

use std::path::Path;

use taskman::sandbox::seccomp::page::markdown;

#[test]
fn page_and_table_agree() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/seccomp.md");
    let expected = markdown();
    if std::env::var_os("UPDATE_DOCS").is_some_and(|v| v == "1") {
        std::fs::write(&path, &expected).expect("docs/seccomp.md can be written");
    }
    let page = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = page.lines().zip(expected.lines()).position(|(a, b)| a != b);
    assert!(
        page == expected,
        "docs/seccomp.md differs from src/sandbox/seccomp/table.rs (first at line {}); \
         regenerate it with UPDATE_DOCS=1 cargo test --test seccomp_docs",
        differs.unwrap_or_else(|| page.lines().count().min(expected.lines().count())) + 1,
    );
}

#[test]
fn every_call_is_on_the_page() {
    let page = markdown();
    for row in taskman::sandbox::seccomp::table::rows() {
        let entry = format!("`{}` {}", row.name, row.nr);
        assert!(page.contains(&entry), "{entry} is not on the page");
    }
}
