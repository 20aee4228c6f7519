//! Ages and durations as kubectl shows them.

use jiff::{SignedDuration, Timestamp};

/// Time since an RFC 3339 time in human-readable form; `<unknown>` when empty, `<invalid>`
/// when it is not a time or lies in the future.
pub fn age(start: &str, now: Timestamp) -> String {
    if start.is_empty() {
        return "<unknown>".to_owned();
    }
    match machinery::time::parse(start) {
        Ok(at) => human_duration(now.duration_since(at)),
        Err(_) => "<invalid>".to_owned(),
    }
}

/// A duration in at most two units, coarser the longer it is
/// (`apimachinery/pkg/util/duration.HumanDuration`): `5s`, `2m30s`, `3h`, `4d`.
pub fn human_duration(length: SignedDuration) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    // Clocks may differ by a second.
    let seconds = length.as_secs();
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    let two_units = |big: i64, unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{big}{unit}"),
        _ => format!("{big}{unit}{small}{small_unit}"),
    };
    match seconds {
        ..0 => "0s".to_owned(),
        s if s < 2 * MINUTE => format!("{s}s"),
        s if s < 10 * MINUTE => two_units(s / MINUTE, "m", s % MINUTE, "s"),
        s if s < 3 * HOUR => format!("{}m", s / MINUTE),
        s if s < 8 * HOUR => two_units(s / HOUR, "h", s % HOUR / MINUTE, "m"),
        s if s < 2 * DAY => format!("{}h", s / HOUR),
        s if s < 8 * DAY => two_units(s / DAY, "d", s % DAY / HOUR, "h"),
        s if s < 2 * YEAR => format!("{}d", s / DAY),
        s if s < 8 * YEAR => two_units(s / YEAR, "y", s % YEAR / DAY, "d"),
        s => format!("{}y", s / YEAR),
    }
}
