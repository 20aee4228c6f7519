//! Runs scenarios in YAML files: each has steps for the control plane and its members, and
//! the complete expected state of bindings, Works and the members' objects.
//!
//! Each theme is a YAML file in this folder: a first document with the requirements on the
//! control plane, then one document per scenario; [`scenario`] describes their format.
//! Scenarios run concurrently, each in a namespace with its name, except those with `alone`,
//! which change clusters. `SCENARIO=name` runs one scenario, and fails when no theme has it.
//!
//! theme.yaml ──► [`scenario`] ──► steps ([`scenario_run`]) ──► [`observed_state`]
//!                          └────► [`expected_state`], from [`written_objects`] ──► compared
//!                                                                                completely

/// The expected state, computed from Karmada's rules and a scenario's expectations.
mod expected_state;

/// The part of the expected state that Works and members' objects are.
mod expected_works;

/// Computed names of bindings and Works.
mod expected_names;

/// Rules for parts of the expected state.
mod expectation_rules;

/// The observed state, without the fields that no rule can predict.
mod observed_state;

/// The control plane that scenarios run on, with its members.
mod scenario_control_plane;

/// Runs the steps of a scenario.
mod scenario_run;

/// The format of a scenario.
mod scenario;

/// Templates and policies as their scenario writes them.
mod written_objects;

use std::io::Write;
use std::path::Path;
use std::process::Command;

use futures_util::{StreamExt, stream};

use crate::scenarios::scenario::{Scenario, ScenarioTheme};
use crate::scenarios::scenario_control_plane::ScenarioControlPlane;
use crate::scenarios::scenario_run::ScenarioRun;

/// Concurrent scenarios of one theme.
const CONCURRENT_SCENARIOS: usize = 6;

fn read_theme(name: &str) -> ScenarioTheme {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/scenarios")
        .join(format!("{name}.yaml"));
    ScenarioTheme::parse(&std::fs::read_to_string(file).unwrap())
        .unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// The name of the one scenario that the variable SCENARIO selects.
fn selected_scenario() -> Option<String> {
    let name = std::env::var("SCENARIO").ok()?;
    let mut all = THEMES.iter().flat_map(|t| read_theme(t).scenarios);
    let exists = all.any(|s| s.name == name);
    assert!(
        exists,
        "SCENARIO={name}: no theme has a scenario of that name"
    );
    Some(name)
}

async fn run_theme(name: &str) {
    let ScenarioTheme {
        requirements: head,
        scenarios,
    } = read_theme(name);
    let only = selected_scenario();
    let is_selected = |s: &Scenario| only.as_ref().is_none_or(|o| *o == s.name);
    let scenarios: Vec<Scenario> = scenarios.into_iter().filter(is_selected).collect();
    if let (Some(only), []) = (&only, &*scenarios) {
        // libtest captures what `eprintln!` prints, but not this.
        let _ = writeln!(std::io::stderr(), "{name}: not run, SCENARIO={only}");
        return;
    }
    let plane = tokio::task::spawn_blocking(move || ScenarioControlPlane::for_theme(&head));
    let plane = plane.await.unwrap();
    let played = scenarios.iter().map(async |scenario| {
        let done = ScenarioRun::run(&plane, scenario).await;
        done.map_err(|message| format!("=== {}: {message}", scenario.name))
    });
    let played: Vec<Result<(), String>> = stream::iter(played)
        .buffer_unordered(CONCURRENT_SCENARIOS)
        .collect()
        .await;
    let failed: Vec<String> = played.into_iter().filter_map(Result::err).collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

macro_rules! themes {
    ($($theme:ident)*) => {
        const THEMES: &[&str] = &[$(stringify!($theme)),*];
        $(#[tokio::test]
        async fn $theme() {
            run_theme(stringify!($theme)).await;
        })*
    };
}

themes! {
    clusters decisions dependencies enforcement evictions failover members overrides placement policies preemption quotas refused replicas scheduling
}

#[test]
fn a_scenario_that_no_theme_has_is_a_failure() {
    let out = Command::new(std::env::current_exe().unwrap())
        .args([&format!("scenarios::{}", THEMES[0]), "--exact"])
        .env("SCENARIO", "typo")
        .output()
        .unwrap();
    assert!(!out.status.success(), "{out:?}");
    let output = String::from_utf8(out.stdout).unwrap();
    assert!(output.contains("SCENARIO=typo: no theme has"), "{output}");
}

#[test]
fn every_file_is_a_theme_and_every_name_is_used_once() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/scenarios");
    let mut names: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "yaml") {
            continue;
        }
        let stem = path.file_stem().unwrap().to_str().unwrap();
        assert!(THEMES.contains(&stem), "{stem}.yaml is not in `themes!`");
        names.extend(read_theme(stem).scenarios.into_iter().map(|s| s.name));
    }
    names.sort();
    let twice: Vec<&[String]> = names.windows(2).filter(|w| w[0] == w[1]).collect();
    assert!(twice.is_empty(), "used twice: {twice:?}");
}
