//! Finds out whether clusters may begin at a time, by the windows of the policy.
//!
//! A window opens at each time of its schedule and stays open for its duration, in elapsed time
//! however clocks change meanwhile. It does not open at times that clocks skip.

use jiff::{SignedDuration, Timestamp};
use karmada_api::CronSchedule;
use karmada_api::rollout::RolloutWindow;
use machinery::{duration, time};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WindowState {
    Open,
    /// With the time when the next window opens.
    Closed(Option<Timestamp>),
}

/// The state of all windows together. A policy without windows is always open; a window that cannot
/// be read never opens.
pub(super) fn window_state(windows: &[RolloutWindow], now: Timestamp) -> WindowState {
    let mut next: Option<Timestamp> = None;
    for window in windows {
        match opening(window, now) {
            Some(opening) if opening <= now => return WindowState::Open,
            Some(opening) => next = Some(next.map_or(opening, |next| next.min(opening))),
            None => {}
        }
    }
    match windows {
        [] => WindowState::Open,
        _ => WindowState::Closed(next),
    }
}

/// The first opening of a window that has not ended.
fn opening(window: &RolloutWindow, now: Timestamp) -> Option<Timestamp> {
    let schedule = CronSchedule::parse(&window.schedule, Some(&window.time_zone)).ok()?;
    let duration = SignedDuration::try_from(duration::parse(&window.duration).ok()?).ok()?;
    // One that opened exactly a duration ago has ended.
    schedule.next_after(now.checked_sub(duration).ok()?)
}

/// Says when the next window opens.
pub(super) fn message(next: Option<Timestamp>) -> String {
    match next {
        Some(next) => format!("the next window opens at {}", time::rfc3339_seconds(next)),
        None => "no window opens within four years".to_owned(),
    }
}
