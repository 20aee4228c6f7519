//! Timestamps and durations as text.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

pub(crate) const NANOS_PER_SECOND: i64 = 1_000_000_000;
/// The years that CEL can represent: 1 to 9999.
pub(crate) const MIN_SECONDS: i64 = -62_135_596_800;
pub(crate) const MAX_SECONDS: i64 = 253_402_300_799;

/// The units of Go's durations in nanoseconds. A longer name comes before its own prefixes.
const UNITS: [(&str, i128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
    ("ms", 1_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
];

/// The nanoseconds of a Go duration: `1h30m`, `-1.5s`.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut nanos: i128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(end);
        let (name, unit) = UNITS.iter().find(|(name, _)| after.starts_with(name))?;
        nanos = nanos.checked_add(scaled(number, *unit)?)?;
        rest = &after[name.len()..];
    }
    i64::try_from(if negative { -nanos } else { nanos }).ok()
}

/// A decimal number times a unit, cut after the last whole nanosecond.
fn scaled(number: &str, unit: i128) -> Option<i128> {
    let (integer, fraction) = number.split_once('.').unwrap_or((number, ""));
    if integer.is_empty() && fraction.is_empty() || fraction.contains('.') || integer.len() > 19 {
        return None;
    }
    let integer: i128 = if integer.is_empty() {
        0
    } else {
        integer.parse().ok()?
    };
    let digits = &fraction[..fraction.len().min(18)];
    let part = if digits.is_empty() {
        0
    } else {
        digits.parse::<i128>().ok()? * unit / 10i128.pow(u32::try_from(digits.len()).ok()?)
    };
    integer.checked_mul(unit)?.checked_add(part)
}

/// A duration as Go prints it: `1h0m0.5s`.
pub(crate) fn format_duration(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let total = nanos.unsigned_abs();
    let per_second = NANOS_PER_SECOND.unsigned_abs();
    if total == 0 {
        return "0s".to_owned();
    }
    if total < per_second {
        let (unit, name) = match total {
            0..1_000 => (1, "ns"),
            1_000..1_000_000 => (1_000, "\u{b5}s"),
            _ => (1_000_000, "ms"),
        };
        return format!("{sign}{}{name}", decimal(total, unit));
    }
    let (hours, rest) = (total / 3600 / per_second, total % (3600 * per_second));
    let (minutes, rest) = (rest / 60 / per_second, rest % (60 * per_second));
    let seconds = decimal(rest, per_second);
    match (hours, minutes) {
        (0, 0) => format!("{sign}{seconds}s"),
        (0, _) => format!("{sign}{minutes}m{seconds}s"),
        _ => format!("{sign}{hours}h{minutes}m{seconds}s"),
    }
}

/// `amount / unit` in decimals, for a unit that is a power of ten.
fn decimal(amount: u64, unit: u64) -> String {
    let digits = unit.ilog10() as usize;
    let fraction = format!("{:0digits$}", amount % unit);
    let fraction = fraction.trim_end_matches('0');
    if digits == 0 || fraction.is_empty() {
        return (amount / unit).to_string();
    }
    format!("{}.{fraction}", amount / unit)
}

/// A duration as CEL's `string()` writes it: seconds.
pub(crate) fn format_seconds(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let per_second = NANOS_PER_SECOND.unsigned_abs();
    format!("{sign}{}s", decimal(nanos.unsigned_abs(), per_second))
}

/// RFC 3339 with a zone, in the years that CEL represents.
pub(crate) fn parse_timestamp(text: &str) -> Option<Timestamp> {
    let at = machinery::time::parse(text).ok()?;
    let exact = text
        .as_bytes()
        .get(10)
        .is_some_and(|b| matches!(b, b'T' | b't'));
    (exact && (MIN_SECONDS..=MAX_SECONDS).contains(&at.as_second())).then_some(at)
}

pub(crate) fn parse_timestamp_or_date(text: &str) -> Option<Timestamp> {
    parse_timestamp(text).or_else(|| {
        let date: Date = text.parse().ok()?;
        let midnight = date.to_zoned(TimeZone::UTC).ok()?;
        Some(midnight.timestamp())
    })
}

pub(crate) fn format_timestamp(at: Timestamp) -> String {
    at.to_string()
}
