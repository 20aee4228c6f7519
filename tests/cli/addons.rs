//! `addons`: what karmadactl's command prints, and what it refuses.

use harness::process::run_with_input;
use serde_json::Value;

use crate::cli::fixture::CliFixture;

fn statuses(fixture: &CliFixture) -> Vec<(String, String)> {
    let output = fixture.run("addons list -o json").succeeded();
    let rows: Vec<Value> = machinery::json::from_str(&output).unwrap();
    let text = |row: &Value, field: &str| row[field].as_str().unwrap().to_owned();
    let rows = rows.iter();
    rows.map(|row| (text(row, "name"), text(row, "status")))
        .collect()
}

fn status(fixture: &CliFixture, name: &str) -> String {
    let all = statuses(fixture);
    let entry = all.into_iter().find(|(of, _)| of == name);
    entry.unwrap().1
}

// proves: ADD-cli, CLI-examples
#[test]
fn addons_are_listed_enabled_and_disabled() {
    let fixture = CliFixture::start();
    fixture.wait_for_output("addons list", |out| !out.contains("unknown"));
    let table = fixture.run("addons list").succeeded();
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().take(3).collect())
        .collect();
    assert_eq!(
        rows,
        [
            ["ADDON", "NAME", "STATUS"],
            ["flotilla-autoscalers", "enabled", "Default"],
            ["flotilla-cluster-inventory", "enabled", "Default"],
            ["flotilla-multicluster-services", "enabled", "Default"],
            ["karmada-descheduler", "disabled", "Default"],
            ["karmada-metrics-adapter", "enabled", "Default"],
            ["karmada-scheduler-estimator", "disabled", "Default"],
            ["karmada-search", "enabled", "Default"],
        ]
    );
    fixture.run_examples("addons");
    assert_eq!(status(&fixture, "karmada-descheduler"), "enabled");
    fixture.run_examples("addons list");
    fixture.run_examples("addons disable");
    assert!(statuses(&fixture).iter().all(|(_, s)| s == "disabled"));
    fixture.run_examples("addons enable");
    assert!(statuses(&fixture).iter().all(|(_, s)| s == "enabled"));

    let output = fixture
        .run("addons disable karmada-search --dry-run")
        .succeeded();
    assert_eq!(
        output,
        "Disable Karmada addon [karmada-search]\nSuccessfully disable addon karmada-search (dry run)\n"
    );
    assert_eq!(status(&fixture, "karmada-search"), "enabled");
    for (line, error) in [
        ("addons enable", "addonNames must be not be null"),
        (
            "addons disable karmada-serch -f",
            "addon karmada-serch is not be supported now",
        ),
        ("addons disable karmada-search", "no answer"),
        (
            "addons enable karmada-search -n elsewhere",
            "namespaces \"elsewhere\" not found",
        ),
        (
            "addons enable karmada-search -n default --timeout 100ms",
            "the server has not acted within 0.1 s: karmada-search is not reported",
        ),
    ] {
        fixture.run(line).failed_with(error);
    }
}

// proves: ADD-cli
#[test]
fn addons_are_disabled_after_a_confirmation() {
    let fixture = CliFixture::start();
    for (answer, expected) in [("n\n", "enabled"), ("what\nyes\n", "disabled")] {
        let command = fixture.command(&["addons", "disable", "karmada-search"]);
        let output = run_with_input(&command, answer.as_bytes());
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        let question = "Please type (y)es or (n)o and then press enter:";
        assert_eq!(text.matches(question).count(), answer.lines().count());
        assert_eq!(status(&fixture, "karmada-search"), expected, "{answer}");
    }
}
