//! Lists the skipped tests at the end of a run of all suites.

use std::io::Write;

#[test]
fn skipped_tests_are_listed() {
    let skipped = harness::tools::drain_skipped();
    let ci = std::env::var("CI").is_ok_and(|v| v == "true");
    assert!(!ci || skipped.is_empty(), "skipped: {skipped:#?}");
    if !skipped.is_empty() {
        let names = skipped.join("\n  ");
        // libtest captures the output of `println!`, but not of this.
        let _ = writeln!(
            std::io::stderr(),
            "\n{} tests were skipped:\n  {names}",
            skipped.len()
        );
    }
}
