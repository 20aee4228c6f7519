//! Windows in which clusters may begin, with the clock at their edges.

use jiff::Timestamp;
use karmada_api::rollout::RolloutPhase;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::fleet::Fleet;
use crate::decision::windows::{WindowState, message, window_state};

fn timestamp(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn state(windows: Value, now: &str) -> WindowState {
    window_state(
        &serde_json::from_value::<Vec<_>>(windows).unwrap(),
        timestamp(now),
    )
}

// proves: ROL-windows, ROL-windows-dst
#[test]
fn windows_are_open_from_their_times_for_their_duration() {
    let open = WindowState::Open;
    let closed = |next: &str| WindowState::Closed(Some(timestamp(next)));
    let nightly = json!([{"schedule": "0 22 * * mon-fri", "duration": "4h"}]);
    let two = json!([{"schedule": "0 22 * * *", "duration": "1h"}, {"schedule": "0 4 * * *", "duration": "1h"}]);
    let berlin = |schedule: &str| json!([{"schedule": schedule, "duration": "3h", "timeZone": "Europe/Berlin"}]);
    for (windows, now, expected) in [
        (json!([]), "2026-01-01T00:00:00Z", open),
        // Friday, and its window ends on Saturday.
        (
            nightly.clone(),
            "2026-01-02T21:59:59Z",
            closed("2026-01-02T22:00:00Z"),
        ),
        (nightly.clone(), "2026-01-02T22:00:00Z", open),
        (nightly.clone(), "2026-01-03T01:59:59Z", open),
        (
            nightly,
            "2026-01-03T02:00:00Z",
            closed("2026-01-05T22:00:00Z"),
        ),
        (two.clone(), "2026-01-02T04:30:00Z", open),
        (
            two.clone(),
            "2026-01-02T05:00:00Z",
            closed("2026-01-02T22:00:00Z"),
        ),
        (two, "2026-01-02T23:00:00Z", closed("2026-01-03T04:00:00Z")),
        // Windows that overlap are one.
        (
            json!([{"schedule": "* * * * *", "duration": "1h"}]),
            "2026-01-02T05:00:00Z",
            open,
        ),
        // Summer time begins on the 29th: the window is as long, and ends at six o'clock.
        (berlin("0 2 28 3 *"), "2026-03-28T03:59:59Z", open),
        (berlin("0 1 29 3 *"), "2026-03-29T02:59:59Z", open),
        (
            berlin("0 1 29 3 *"),
            "2026-03-29T03:00:00Z",
            closed("2027-03-28T23:00:00Z"),
        ),
        // Half past two does not exist on that day, and no window opens.
        (
            berlin("30 2 * * *"),
            "2026-03-29T01:00:00Z",
            closed("2026-03-30T00:30:00Z"),
        ),
        // It ends on the 25th: half past two comes twice, and each opens a window.
        (berlin("30 2 * * *"), "2026-10-25T00:30:00Z", open),
        (berlin("30 2 * * *"), "2026-10-25T04:29:59Z", open),
        (
            berlin("30 2 * * *"),
            "2026-10-25T04:30:00Z",
            closed("2026-10-26T01:30:00Z"),
        ),
        // What cannot be read, or never comes, opens nothing.
        (
            json!([{"schedule": "0 0 31 2 *", "duration": "1h"}]),
            "2026-01-01T00:00:00Z",
            WindowState::Closed(None),
        ),
        (
            json!([{"schedule": "often", "duration": "1h"}]),
            "2026-01-01T00:00:00Z",
            WindowState::Closed(None),
        ),
        (
            json!([{"schedule": "@daily", "duration": "long"}]),
            "2026-01-01T00:00:00Z",
            WindowState::Closed(None),
        ),
    ] {
        assert_eq!(state(windows.clone(), now), expected, "{windows} at {now}");
    }
    assert_eq!(message(None), "no window opens within four years");
}

// proves: ROL-windows
#[test]
fn clusters_begin_only_in_a_window_and_continue_after_it() {
    // The fleet begins at midnight and has the first revision at one o'clock, outside the window.
    let windows = json!([{"schedule": "0 2 * * *", "duration": "90s"}]);
    let mut fleet = Fleet::three_stages(json!({"windows": windows}));
    fleet.check("Completed: a=1 Done, b=1 Done, c=1 Done, d=1 Done");
    fleet.change("2");
    fleet.check("OutsideWindow: a=1 Blocked, b=1 Pending, c=1 Pending, d=1 Pending");
    let status = fleet.status.as_ref().unwrap();
    let text = "the next window opens at 2026-01-01T02:00:00Z";
    assert_eq!(status.cluster("a").unwrap().message, text);
    let mut conditions = status.conditions.iter();
    let paused = conditions.find(|c| c.condition_type == "Paused").unwrap();
    assert_eq!(
        (&*paused.status, &*paused.reason, &*paused.message),
        (
            "True",
            "OutsideWindow",
            &*format!("0/4 clusters are done, 0 have failed; {text}")
        )
    );
    // The step says when the window opens.
    fleet.pass_to_next();
    assert_eq!(fleet.now, timestamp("2026-01-01T02:00:00Z"));
    fleet.check("Progressing: a=2 Soaking, b=1 Pending, c=1 Pending, d=1 Pending");
    fleet.pass(60);
    fleet.check("Progressing: a=2 Done, b=2 Soaking, c=1 Pending, d=1 Pending");
    // The window closes, and the second stage continues.
    fleet.pass(30);
    fleet.check("Progressing: a=2 Done, b=2 Soaking, c=1 Pending, d=1 Pending");
    fleet.pass(30);
    fleet.check("OutsideWindow: a=2 Done, b=2 Done, c=1 Blocked, d=1 Blocked");
    // A return is no change that is staged.
    fleet.change("1");
    assert_eq!(fleet.phase("b"), Some(RolloutPhase::Soaking));
    fleet.change("2");
    fleet.check("OutsideWindow: a=1 Blocked, b=1 Pending, c=1 Pending, d=1 Pending");
    fleet.policy.windows.clear();
    fleet.run_to_rest();
    fleet.check("Progressing: a=2 Soaking, b=1 Pending, c=1 Pending, d=1 Pending");
}

/// A window that closes holds nobody who waits for others.
// proves: ROL-windows
#[test]
fn the_end_of_a_window_is_no_step() {
    let stages = json!([{"name": "s", "maxConcurrency": 1, "gates": {"healthyFor": "1m"}}]);
    let windows = json!([{"schedule": "0 1 * * *", "duration": "30s"}]);
    let policy = json!({"stages": stages, "windows": windows});
    let mut fleet = Fleet::new(policy, &[("a", 0), ("b", 0)]);
    fleet.change("2");
    fleet.check("Progressing: a=2 Soaking, b=1 Pending");
    let before = fleet.status.clone();
    fleet.pass(45);
    assert_eq!(fleet.status, before);
    fleet.pass(15);
    fleet.check("OutsideWindow: a=2 Done, b=1 Blocked");
    // It is approved, paused or resumed as at any time.
    fleet.spec.paused = true;
    fleet.run_to_rest();
    fleet.check("Paused: a=2 Done, b=1 Blocked");
    fleet.spec.paused = false;
    fleet.pass_to_next();
    assert_eq!(fleet.now, timestamp("2026-01-02T01:00:00Z"));
    fleet.check("Progressing: a=2 Done, b=2 Soaking");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // proves: ROL-windows, ROL-progress
    #[test]
    fn no_cluster_begins_outside_the_windows_and_each_rollout_ends(
        events in prop::collection::vec((0..400i64, prop::option::of(2..4u8)), 1..30),
    ) {
        // The first four of each ten minutes, in two ways.
        let windows = json!([{"schedule": "*/10 * * * *", "duration": "3m"}, {"schedule": "1/10 * * * *", "duration": "3m"}]);
        let mut fleet = Fleet::three_stages(json!({"windows": windows}));
        for (seconds, change) in events {
            if let Some(revision) = change {
                fleet.target = revision.to_string();
            }
            let before = fleet.status.clone().unwrap();
            fleet.step();
            let after = fleet.status.as_ref().unwrap();
            let is_staged = after.target_revision != before.stable_revision;
            let is_open = fleet.now.as_second() % 600 < 240;
            for name in ["a", "b", "c", "d"] {
                let begins = before.cluster(name).unwrap().revision != after.target_revision
                    && after.cluster(name).unwrap().revision == after.target_revision;
                prop_assert!(!begins || !is_staged || is_open, "{name} began at {}", fleet.now);
            }
            fleet.deliver();
            fleet.now += jiff::SignedDuration::from_secs(seconds);
        }
        for _ in 0..30 {
            fleet.pass(120);
        }
        prop_assert_eq!(&*fleet.status.unwrap().state, "Completed");
    }
}
