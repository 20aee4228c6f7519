//! Scenarios: what is asked of the control plane and of its members, and all that
//! must then be there.
//!
//! Each theme is a YAML file beside this one: a document that says what the theme
//! needs of its control plane, then one document per scenario; their form is
//! described in [`story`]. Scenarios run at once, in namespaces called as they are,
//! but for those that want the clusters for themselves. `SCENARIO=name` runs one, and
//! fails where no theme has it.
//!
//! theme.yaml ──► [`story`] ──► steps ([`stage`]) ──► what is there ([`seen`])
//!                       └────► what must be there ([`frame`], from [`written`]) ──► compared whole
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test ends where its machine fails it"
)]

/// What must be there, from the rules and the little that a scenario says.
mod frame;

/// Names that are computed, by rules of their own.
mod names;

/// Parts of that.
mod rules;

/// What is there, without what no rule can foretell.
mod seen;

/// Steps, taken.
mod stage;

/// The form of a scenario.
mod story;

/// Templates and policies as their scenario writes them.
mod written;

use std::io::Write;
use std::path::Path;
use std::process::Command;

use futures_util::{StreamExt, stream};

use crate::stage::{Plane, Stage};
use crate::story::{Scenario, Theme};

/// Scenarios of one theme at once.
const AT_ONCE: usize = 6;

fn theme(name: &str) -> Theme {
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/scenarios")
        .join(format!("{name}.yaml"));
    Theme::read(&std::fs::read_to_string(file).unwrap()).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// The one scenario that SCENARIO asks for.
fn selected() -> Option<String> {
    let name = std::env::var("SCENARIO").ok()?;
    let mut all = THEMES.iter().flat_map(|t| theme(t).scenarios);
    let known = all.any(|s| s.name == name);
    assert!(
        known,
        "SCENARIO={name}: no theme has a scenario of that name"
    );
    Some(name)
}

async fn play(name: &str) {
    let Theme { head, scenarios } = theme(name);
    let only = selected();
    let wanted = |s: &Scenario| only.as_ref().is_none_or(|o| *o == s.name);
    let scenarios: Vec<Scenario> = scenarios.into_iter().filter(wanted).collect();
    if let (Some(only), []) = (&only, &*scenarios) {
        // libtest captures what `eprintln!` prints, but not this.
        let _ = writeln!(std::io::stderr(), "{name}: not played, SCENARIO={only}");
        return;
    }
    let plane = tokio::task::spawn_blocking(move || Plane::of(&head));
    let plane = plane.await.unwrap();
    let played = scenarios.iter().map(async |scenario| {
        let done = Stage::play(&plane, scenario).await;
        done.map_err(|why| format!("=== {}: {why}", scenario.name))
    });
    let played: Vec<Result<(), String>> = stream::iter(played)
        .buffer_unordered(AT_ONCE)
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
            play(stringify!($theme)).await;
        })*
    };
}

themes! {
    clusters decisions dependencies enforcement evictions failover members overrides placement policies preemption quotas refused replicas scheduling
}

#[test]
fn a_scenario_that_no_theme_has_is_a_failure() {
    let out = Command::new(std::env::current_exe().unwrap())
        .args([THEMES[0], "--exact"])
        .env("SCENARIO", "typo")
        .output()
        .unwrap();
    assert!(!out.status.success(), "{out:?}");
    let said = String::from_utf8(out.stdout).unwrap();
    assert!(said.contains("SCENARIO=typo: no theme has"), "{said}");
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
        assert!(THEMES.contains(&stem), "{stem}.yaml is played by nobody");
        names.extend(theme(stem).scenarios.into_iter().map(|s| s.name));
    }
    names.sort();
    let twice: Vec<&[String]> = names.windows(2).filter(|w| w[0] == w[1]).collect();
    assert!(twice.is_empty(), "used twice: {twice:?}");
}
