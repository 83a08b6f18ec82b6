//! The corpus of the fuzz target holds: `cargo xtask fuzz` adds to it what it finds.

#[path = "../../fuzz/src/check.rs"]
mod check;

#[test]
fn everything_in_the_corpus_holds() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        check::check(&std::fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count > 20, "only {count} files in {folder}");
}
