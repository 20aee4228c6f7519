//! `drain`: what has another place leaves the cluster gracefully, what has none stays and is
//! named.

use harness::objects::{deployment, divided_policy, policy};
use serde_json::{Value, json};

use crate::cli::fixture::{CliFixture, rows};

const SPACE: &str = "karmada-es-member2";

/// `web` in both members, `spread` with replicas in both, and `pinned` in member2 alone.
fn occupied_fixture() -> CliFixture {
    let fixture = CliFixture::start();
    let spread = deployment("default", "spread", 4);
    let pinned = deployment("default", "pinned", 1);
    for object in [&spread, &pinned] {
        fixture.create(object.clone());
    }
    let weights = [("member1", 1), ("member2", 1)];
    fixture.create(divided_policy("default", "spread", &spread, &weights));
    fixture.create(policy("default", "pinned", &pinned, &["member2"]));
    for (name, replicas) in [("spread", 4), ("pinned", 1)] {
        fixture.wait_until_ready("default", name, replicas);
    }
    fixture
}

fn clusters_of(fixture: &CliFixture, binding: &str) -> Value {
    fixture.json(&format!("get resourcebinding {binding}"))["spec"]["clusters"].clone()
}

fn works_in_member2(fixture: &CliFixture) -> Vec<String> {
    let works = fixture.json(&format!("get works -n {SPACE}"));
    let items = works["items"].as_array().unwrap().iter();
    let of = |w: &Value| w["spec"]["workload"]["manifests"][0]["metadata"]["name"].clone();
    items
        .map(of)
        .filter_map(|name| name.as_str().map(str::to_owned))
        .filter(|name| ["web", "spread", "pinned"].contains(&name.as_str()))
        .collect()
}

// proves: DRN-moves, DRN-stays
#[test]
fn what_may_move_leaves_and_what_may_not_is_named() {
    let fixture = occupied_fixture();
    let table = [
        "TEMPLATE NOW THEN NOTE",
        "Deployment default/pinned member2:1 stays ",
        "Deployment default/spread member1:2, member2:2 member1:4 -",
        "Deployment default/web member1:2, member2:2 member1:2 -",
        "2 of 3 templates can leave member2.",
    ];
    let check = |printed: &str| {
        let rows = rows(printed);
        assert_eq!(rows.len(), table.len(), "{rows:?}");
        for (row, expected) in rows.iter().zip(table) {
            assert!(row.starts_with(expected), "{row:?} instead of {expected:?}");
        }
    };
    let dry = fixture.run("drain member2 --dry-run");
    assert_eq!(dry.code, 1, "{dry:?}");
    check(&dry.out);
    let unchanged = json!([{"name": "member1", "replicas": 2}, {"name": "member2", "replicas": 2}]);
    assert_eq!(clusters_of(&fixture, "spread-deployment"), unchanged);
    assert!(fixture.json("get cluster member2")["spec"]["taints"].is_null());

    let drained = fixture.run("drain member2");
    assert_eq!(drained.code, 1, "{drained:?}");
    check(&drained.out);
    assert!(drained.errors.contains("member2 cluster cordoned"));
    let end = "member2 cluster drained; templates that stay: 1";
    assert!(drained.errors.contains(end), "{drained:?}");
    let all = json!([{"name": "member1", "replicas": 4}]);
    assert_eq!(clusters_of(&fixture, "spread-deployment"), all);
    let rest = json!([{"name": "member1", "replicas": 2}]);
    assert_eq!(clusters_of(&fixture, "web-deployment"), rest);
    assert_eq!(works_in_member2(&fixture), ["pinned"]);
    let kept = json!([{"name": "member2", "replicas": 1}]);
    assert_eq!(clusters_of(&fixture, "pinned-deployment"), kept);
}

#[test]
fn the_examples_of_the_help_work_and_an_unknown_cluster_is_named() {
    let fixture = CliFixture::start();
    fixture.run_examples("drain");
    let nothing = "Nothing is placed on member2.\n";
    fixture.wait_for_output("drain member2", |out| out == nothing);
    let failed = fixture.run("drain nowhere --dry-run");
    failed.failed_with("clusters.cluster.karmada.io \"nowhere\" not found");
    let json = fixture.run("drain member1 --dry-run -o json");
    assert_eq!(json.code, 1, "{json:?}");
    let json: Value = machinery::json::from_str(&json.out).unwrap();
    assert_eq!(json["cluster"], "member1");
    assert!(json["templates"][0]["stays"].is_string(), "{json}");
}
