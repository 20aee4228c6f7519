//! Parses durations as Kubernetes' flags and annotations write them (Go's
//! `time.ParseDuration`).

use std::time::Duration;

const UNITS: [(&str, f64); 7] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
];
/// Longest duration that is accepted: one year.
const MAX_SECONDS: f64 = 365.0 * 24.0 * 3600.0;

/// Parses `15s`, `1m30s`, `1.5h`, `0`. Negative durations are an error.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a duration, such as 15s, 500ms or 1m30s");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let (mut rest, mut seconds) = (text, 0.0);
    while !rest.is_empty() {
        let digits = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .ok_or_else(wrong)?;
        let (number, after) = rest.split_at(digits);
        let number: f64 = number.parse().map_err(|_| wrong())?;
        let end = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, next) = after.split_at(end);
        let (_, size) = UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .ok_or_else(wrong)?;
        seconds += number * size;
        rest = next;
    }
    if text.is_empty() || seconds > MAX_SECONDS {
        return Err(wrong());
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_durations_are_parsed() {
        for (text, millis) in [
            ("0", Some(0)),
            ("0s", Some(0)),
            ("15s", Some(15_000)),
            ("1m30s", Some(90_000)),
            ("1.5h", Some(5_400_000)),
            ("500ms", Some(500)),
            ("2m0.5s", Some(120_500)),
            ("", None),
            ("5", None),
            ("s", None),
            ("-1s", None),
            ("1d", None),
            ("1..s", None),
            ("99999999h", None),
        ] {
            let read = parse(text).ok().map(|d| d.as_millis());
            assert_eq!(read, millis, "{text}");
        }
    }
}
