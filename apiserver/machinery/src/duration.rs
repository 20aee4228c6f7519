//! Parses durations as Kubernetes' flags and annotations write them (Go's
//! `time.ParseDuration`).

use std::time::Duration;

/// Micro has two spellings: U+00B5 (micro sign) and U+03BC (Greek letter mu).
const UNITS: [(&str, f64); 8] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("\u{b5}s", 1e-6),
    ("\u{3bc}s", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
];
/// Longest duration that is accepted: one year.
const MAX_SECONDS: f64 = 365.0 * 24.0 * 3600.0;

/// Parses `15s`, `1m30s`, `1.5h`, `0`. Negative durations are an error.
pub fn parse(text: &str) -> Result<Duration, String> {
    let invalid = || format!("{text:?} is not a duration, such as 15s, 500ms or 1m30s");
    let seconds = parse_unsigned(text).ok_or_else(invalid)?;
    if seconds > MAX_SECONDS {
        return Err(format!(
            "{text:?} is too long, the longest duration is a year (8760h)"
        ));
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| invalid())
}

/// Whether a text is a duration, of either sign and any length.
pub fn is_duration(text: &str) -> bool {
    parse_unsigned(text.strip_prefix(['-', '+']).unwrap_or(text)).is_some()
}

/// The seconds in a sequence of decimals, each with a unit, or in `0`.
fn parse_unsigned(text: &str) -> Option<f64> {
    if text == "0" {
        return Some(0.0);
    }
    let (mut rest, mut seconds) = (text, 0.0);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(digits);
        let number: f64 = number.parse().ok()?;
        let end = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, next) = after.split_at(end);
        let (_, size) = UNITS.iter().find(|(name, _)| *name == unit)?;
        seconds += number * size;
        rest = next;
    }
    (!text.is_empty()).then_some(seconds)
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
            ("2000us", Some(2)),
            ("2000\u{b5}s", Some(2)),
            ("2000\u{3bc}s", Some(2)),
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

    #[test]
    fn an_error_tells_what_is_no_duration_from_what_is_too_long() {
        for (text, expected) in [("1d", "is not a duration"), ("8761h", "is too long")] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        assert!(parse("8760h").is_ok());
    }

    #[test]
    fn a_duration_has_either_sign_and_any_length() {
        for text in ["0", "-0", "+1h", "-1.5h2m", "99999999h", "1\u{3bc}s", ".5s"] {
            assert!(is_duration(text), "{text}");
        }
        for text in ["", "-", "--1s", "5", "1d", "1..s", "1 s", "1ss"] {
            assert!(!is_duration(text), "{text}");
        }
    }
}
