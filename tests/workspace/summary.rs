//! The end of a run of the whole workspace: the names of the tests that were skipped.

use std::io::Write;

#[test]
fn no_test_was_skipped_in_silence() {
    let skipped = harness::tools::take_skipped();
    let ci = std::env::var("CI").is_ok_and(|v| v == "true");
    assert!(!ci || skipped.is_empty(), "skipped: {skipped:#?}");
    if !skipped.is_empty() {
        let names = skipped.join("\n  ");
        // libtest captures what `println!` prints, but not this.
        let _ = writeln!(
            std::io::stderr(),
            "\n{} tests were skipped:\n  {names}",
            skipped.len()
        );
    }
}
