//! Timestamps and durations: text, and the parts of a timestamp in a time zone.

use jiff::civil::Date;
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp, Zoned};

use crate::error::EvalError;
use crate::meter::Meter;
use crate::overloads::Declared;
use crate::value::{Result, Value};

const NANOS_PER_SECOND: i64 = 1_000_000_000;
/// The years that CEL can represent: 1 to 9999.
const MIN_SECONDS: i64 = -62_135_596_800;
const MAX_SECONDS: i64 = 253_402_300_799;

pub(super) const OVERLOADS: &[Declared] = &[
    ("timestamp_to_year", "<timestamp>.getFullYear() int", year),
    (
        "timestamp_to_year_with_tz",
        "<timestamp>.getFullYear(string) int",
        year,
    ),
    ("timestamp_to_month", "<timestamp>.getMonth() int", month),
    (
        "timestamp_to_month_with_tz",
        "<timestamp>.getMonth(string) int",
        month,
    ),
    (
        "timestamp_to_day_of_year",
        "<timestamp>.getDayOfYear() int",
        day_of_year,
    ),
    (
        "timestamp_to_day_of_year_with_tz",
        "<timestamp>.getDayOfYear(string) int",
        day_of_year,
    ),
    (
        "timestamp_to_day_of_month",
        "<timestamp>.getDayOfMonth() int",
        day_of_month,
    ),
    (
        "timestamp_to_day_of_month_with_tz",
        "<timestamp>.getDayOfMonth(string) int",
        day_of_month,
    ),
    (
        "timestamp_to_day_of_month_1_based",
        "<timestamp>.getDate() int",
        date,
    ),
    (
        "timestamp_to_day_of_month_1_based_with_tz",
        "<timestamp>.getDate(string) int",
        date,
    ),
    (
        "timestamp_to_day_of_week",
        "<timestamp>.getDayOfWeek() int",
        day_of_week,
    ),
    (
        "timestamp_to_day_of_week_with_tz",
        "<timestamp>.getDayOfWeek(string) int",
        day_of_week,
    ),
    ("timestamp_to_hours", "<timestamp>.getHours() int", hours),
    (
        "timestamp_to_hours_with_tz",
        "<timestamp>.getHours(string) int",
        hours,
    ),
    (
        "timestamp_to_minutes",
        "<timestamp>.getMinutes() int",
        minutes,
    ),
    (
        "timestamp_to_minutes_with_tz",
        "<timestamp>.getMinutes(string) int",
        minutes,
    ),
    (
        "timestamp_to_seconds",
        "<timestamp>.getSeconds() int",
        seconds,
    ),
    (
        "timestamp_to_seconds_with_tz",
        "<timestamp>.getSeconds(string) int",
        seconds,
    ),
    (
        "timestamp_to_milliseconds",
        "<timestamp>.getMilliseconds() int",
        milliseconds,
    ),
    (
        "timestamp_to_milliseconds_with_tz",
        "<timestamp>.getMilliseconds(string) int",
        milliseconds,
    ),
    (
        "duration_to_hours",
        "<duration>.getHours() int",
        duration_hours,
    ),
    (
        "duration_to_minutes",
        "<duration>.getMinutes() int",
        duration_minutes,
    ),
    (
        "duration_to_seconds",
        "<duration>.getSeconds() int",
        duration_seconds,
    ),
    (
        "duration_to_milliseconds",
        "<duration>.getMilliseconds() int",
        duration_milliseconds,
    ),
];

/// The units of Go's durations in nanoseconds, longer names before those that begin with them.
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
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') || whole.len() > 19 {
        return None;
    }
    let whole: i128 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let digits = &fraction[..fraction.len().min(18)];
    let part = if digits.is_empty() {
        0
    } else {
        digits.parse::<i128>().ok()? * unit / 10i128.pow(u32::try_from(digits.len()).ok()?)
    };
    whole.checked_mul(unit)?.checked_add(part)
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

pub(crate) fn from_seconds(seconds: i64) -> std::result::Result<Timestamp, EvalError> {
    let overflow = || EvalError::new("timestamp overflow");
    if !(MIN_SECONDS..=MAX_SECONDS).contains(&seconds) {
        return Err(overflow());
    }
    Timestamp::from_second(seconds).map_err(|_| overflow())
}

pub(super) fn shift(at: Timestamp, nanos: i64) -> std::result::Result<Timestamp, EvalError> {
    let shifted = at.checked_add(SignedDuration::from_nanos(nanos)).ok();
    shifted
        .filter(|at| (MIN_SECONDS..=MAX_SECONDS).contains(&at.as_second()))
        .ok_or_else(|| EvalError::new("timestamp overflow"))
}

fn time_zone(name: &str) -> std::result::Result<TimeZone, EvalError> {
    let unknown = || EvalError::new(format!("unknown time zone {name}"));
    let Some((hours, minutes)) = name.split_once(':') else {
        if name.is_empty() {
            return Ok(TimeZone::UTC);
        }
        return TimeZone::get(name).map_err(|_| unknown());
    };
    let hours: i32 = hours.parse().map_err(|_| unknown())?;
    let minutes: i32 = minutes.parse().map_err(|_| unknown())?;
    if !(0..60).contains(&minutes) || hours.abs() > 24 {
        let why = format!("timezone offset minutes out of range [0, 59]: {name}");
        return Err(EvalError::new(why));
    }
    let minutes = if name.starts_with('-') {
        -minutes
    } else {
        minutes
    };
    let offset = Offset::from_seconds((hours * 60 + minutes) * 60).map_err(|_| unknown())?;
    Ok(TimeZone::fixed(offset))
}

fn part<'a>(arguments: &[Value<'a>], read: fn(&Zoned) -> i64) -> Result<'a> {
    let (at, zone) = match arguments {
        [Value::Timestamp(at)] => (at, TimeZone::UTC),
        [Value::Timestamp(at), Value::String(zone)] => (at, time_zone(zone.as_str())?),
        _ => return Err(EvalError::NoSuchOverload),
    };
    Ok(Value::Int(read(&at.to_zoned(zone))))
}

fn year<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> Result<'a> {
    part(arguments, |at| i64::from(at.year()))
}

fn month<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> Result<'a> {
    part(arguments, |at| i64::from(at.month()) - 1)
}

fn day_of_year<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> Result<'a> {
    part(arguments, |at| i64::from(at.day_of_year()) - 1)
}

fn day_of_month<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> Result<'a> {
    part(arguments, |at| i64::from(at.day()) - 1)
}

fn date<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> Result<'a> {
    part(arguments, |at| i64::from(at.day()))
}

fn day_of_week<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> Result<'a> {
    part(arguments, |at| {
        i64::from(at.weekday().to_sunday_zero_offset())
    })
}

fn hours<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> Result<'a> {
    part(arguments, |at| i64::from(at.hour()))
}

fn minutes<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> Result<'a> {
    part(arguments, |at| i64::from(at.minute()))
}

fn seconds<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> Result<'a> {
    part(arguments, |at| i64::from(at.second()))
}

fn milliseconds<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> Result<'a> {
    part(arguments, |at| i64::from(at.millisecond()))
}

fn whole<'a>(arguments: &[Value<'a>], unit: i64) -> Result<'a> {
    match arguments {
        [Value::Duration(nanos)] => Ok(Value::Int(nanos / unit)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn duration_hours<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> Result<'a> {
    whole(arguments, 3600 * NANOS_PER_SECOND)
}

fn duration_minutes<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> Result<'a> {
    whole(arguments, 60 * NANOS_PER_SECOND)
}

fn duration_seconds<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> Result<'a> {
    whole(arguments, NANOS_PER_SECOND)
}

fn duration_milliseconds<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> Result<'a> {
    whole(arguments, 1_000_000)
}
