//! The RolloutPolicy of the manual that has windows and a query.

use std::path::Path;

use harness::objects::{deployment, policy};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::json;

use crate::cli::fixture::CliFixture;

/// The example of the manual, with another schedule.
fn example(schedule: &str) -> String {
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/README.md");
    let manual = std::fs::read_to_string(manual).unwrap();
    let mut blocks = manual.split("```yaml");
    let block = blocks.find(|block| block.contains("windows:")).unwrap();
    let block = block.split("```").next().unwrap();
    block
        .replace("name: api", "name: nightly")
        .replace("0 22 * * mon-thu", schedule)
}

// proves: ROL-windows, ROL-valid
#[test]
fn a_change_waits_for_its_window() {
    let fixture = CliFixture::shared();
    fixture.write("nightly.yaml", example("0 0 31 2 *"));
    fixture
        .run("apply -f nightly.yaml")
        .failed_with("spec.windows[0].schedule: Invalid value: \"0 0 31 2 *\": never occurs");
    // It opens in half a year.
    let month = (Timestamp::now().to_zoned(TimeZone::UTC).month() + 5) % 12 + 1;
    fixture.write("nightly.yaml", example(&format!("0 0 1 {month} *")));
    fixture.run("apply -f nightly.yaml").succeeded();
    let mut nightly = deployment("default", "nightly", 1);
    fixture.create(nightly.clone());
    fixture.create(policy("default", "nightly", &nightly, &["member1"]));
    let status = "rollout status deploy/nightly";
    fixture.wait_for_output(status, |out| out.contains("Soaking"));
    nightly["spec"]["template"]["metadata"]["annotations"] = json!({"v": "2"});
    fixture.write("nightly.json", nightly.to_string());
    fixture.run("apply -f nightly.json").succeeded();
    fixture.wait_for_output(status, |out| {
        out.starts_with("deployment/nightly: OutsideWindow in stage canary, 0/1 clusters done")
            && out.contains("OutsideWindow: the next window opens at 20")
    });
}
