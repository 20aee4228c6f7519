//! `doctor`: a healthy control plane, servers and members that do not answer, refused
//! credentials. The other failures are injected into the observations beside the checks.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cli::fixture::{CliFixture, rows};
use crate::cli::join::{UnjoinedMember, join_line};

/// The results of a check as `status message`.
fn results_of(report: &Value, check: &str) -> Vec<String> {
    let results = report["checks"].as_array().unwrap().iter();
    let of = results.filter(|result| result["check"] == check);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    of.map(|r| format!("{} {}", text(&r["status"]), text(&r["message"])))
        .collect()
}

/// How much of the disk is free is the business of the machine, so that result may be a
/// warning.
#[test]
fn a_healthy_control_plane_has_one_line_per_check_and_nothing_to_do() {
    let fixture = CliFixture::shared();
    let report = fixture.json("doctor");
    assert_eq!(report["errors"], 0, "{report}");
    let results = report["checks"].as_array().unwrap();
    assert_eq!(results.len(), 16, "{report}");
    for result in results {
        if result["check"] != "disk" {
            assert_eq!(result["status"], "ok", "{result}");
            assert_eq!(result["remedy"], Value::Null, "{result}");
        }
    }
    let disk = results_of(&report, "disk").concat();
    assert!(disk.contains("free in the data directory"), "{disk}");
    assert_eq!(
        results_of(&report, "members"),
        ["ok all 2 clusters are ready"]
    );
    let text = fixture.run("doctor").succeeded();
    let lines = rows(&text);
    assert_eq!(lines[0], "STATUS CHECK MESSAGE REMEDY");
    assert!(lines[1].starts_with("ok api-server https://"), "{text}");
    assert!(lines[1].ends_with(" answers and is ready -"), "{text}");
    assert!(lines[18].starts_with("0 errors and "), "{text}");
    let yaml = fixture.run("doctor -o yaml").succeeded();
    let yaml: Value = serde_saphyr::from_str(&yaml).unwrap();
    assert_eq!(yaml["errors"], 0);
    fixture.run_examples("doctor");
}

// proves: DOC-unreachable
#[test]
fn a_server_that_does_not_answer_is_one_error_within_the_deadline() {
    let fixture = CliFixture::shared();
    // Accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_address = silent.local_addr().unwrap();
    // No other test listens at this address.
    let closed = TcpListener::bind("127.0.0.2:0").unwrap();
    let closed_address = closed.local_addr().unwrap();
    drop(closed);
    for (name, address) in [("hanging", silent_address), ("closed", closed_address)] {
        let kubeconfig = json!({"current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": ""}}],
            "clusters": [{"name": "c", "cluster": {"server": format!("https://{address}")}}]});
        fixture.write_kubeconfig(name, &kubeconfig);
        let started_at = Instant::now();
        let line = format!("doctor --timeout 2s -o json --kubeconfig {name}.kubeconfig");
        let done = fixture.run(&line);
        assert!(started_at.elapsed() < Duration::from_secs(20));
        assert_eq!(done.code, 1, "{done:?}");
        let report: Value = machinery::json::from_str(&done.out).unwrap();
        assert_eq!(report["errors"], 1, "{report}");
        let results = results_of(&report, "api-server");
        let start = format!("error https://{address}/ does not answer: ");
        assert!(results[0].starts_with(&start), "{results:?}");
        assert_eq!(report["checks"].as_array().unwrap().len(), 2, "{report}");
    }
}

// proves: DOC-server
#[test]
fn refused_credentials_are_an_error() {
    let fixture = CliFixture::shared();
    let text = std::fs::read_to_string(fixture.dir().join("kubeconfig")).unwrap();
    let mut kubeconfig: Value = serde_saphyr::from_str(&text).unwrap();
    kubeconfig["users"][0]["user"] = json!({"token": "made-up"});
    fixture.write_kubeconfig("refused", &kubeconfig);
    let done = fixture.run("doctor --kubeconfig refused.kubeconfig -o json");
    assert_eq!(done.code, 1, "{done:?}");
    let report: Value = machinery::json::from_str(&done.out).unwrap();
    let results = results_of(&report, "api-server").concat();
    assert!(
        results.ends_with("refuses the credentials of the kubeconfig"),
        "{results}"
    );
}

// proves: DOC-members
#[test]
fn a_member_that_is_gone_and_an_agent_that_never_came_are_named() {
    let fixture = CliFixture::with_changing_clusters();
    let mut member = UnjoinedMember::start();
    fixture.write_kubeconfig("vanished", &member.kubeconfig());
    fixture.run(&join_line("vanished")).succeeded();
    fixture.register_cluster("agentless", None);
    member.kill();
    let done = fixture.run("doctor -o json");
    assert_eq!(done.code, 1, "{done:?}");
    let report: Value = machinery::json::from_str(&done.out).unwrap();
    let results = results_of(&report, "members");
    let of_vanished = |line: &String| line.starts_with("error cluster vanished ");
    assert!(results.iter().any(of_vanished), "{results:?}");
    let leases = results_of(&report, "agent-leases");
    let missing = "warning the agent of agentless has no lease".to_owned();
    assert!(leases.contains(&missing), "{leases:?}");
    fixture.run("unjoin vanished --force --wait 1s").succeeded();
}
