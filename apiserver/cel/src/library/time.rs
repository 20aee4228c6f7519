//! Timestamps and durations: their parts, in a time zone, and their arithmetic.

use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp, Zoned};

use crate::error::EvalError;
use crate::function::DeclaredOverload;
use crate::meter::Meter;
use crate::time_text::{MAX_SECONDS, MIN_SECONDS, NANOS_PER_SECOND};
use crate::value::{EvaluationResult, Value};

pub(super) const OVERLOADS: &[DeclaredOverload] = &[
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

pub(crate) fn from_seconds(seconds: i64) -> Result<Timestamp, EvalError> {
    let overflow = || EvalError::new("timestamp overflow");
    if !(MIN_SECONDS..=MAX_SECONDS).contains(&seconds) {
        return Err(overflow());
    }
    Timestamp::from_second(seconds).map_err(|_| overflow())
}

pub(super) fn shift(at: Timestamp, nanos: i64) -> Result<Timestamp, EvalError> {
    let shifted = at.checked_add(SignedDuration::from_nanos(nanos)).ok();
    shifted
        .filter(|at| (MIN_SECONDS..=MAX_SECONDS).contains(&at.as_second()))
        .ok_or_else(|| EvalError::new("timestamp overflow"))
}

fn time_zone(name: &str) -> Result<TimeZone, EvalError> {
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
        let message = format!("timezone offset minutes out of range [0, 59]: {name}");
        return Err(EvalError::new(message));
    }
    let minutes = if name.starts_with('-') {
        -minutes
    } else {
        minutes
    };
    let offset = Offset::from_seconds((hours * 60 + minutes) * 60).map_err(|_| unknown())?;
    Ok(TimeZone::fixed(offset))
}

fn part<'a>(arguments: &[Value<'a>], read: fn(&Zoned) -> i64) -> EvaluationResult<'a> {
    let (at, zone) = match arguments {
        [Value::Timestamp(at)] => (at, TimeZone::UTC),
        [Value::Timestamp(at), Value::String(zone)] => (at, time_zone(zone.as_str())?),
        _ => return Err(EvalError::NoSuchOverload),
    };
    Ok(Value::Int(read(&at.to_zoned(zone))))
}

fn year<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    part(arguments, |at| i64::from(at.year()))
}

fn month<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    part(arguments, |at| i64::from(at.month()) - 1)
}

fn day_of_year<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    part(arguments, |at| i64::from(at.day_of_year()) - 1)
}

fn day_of_month<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    part(arguments, |at| i64::from(at.day()) - 1)
}

fn date<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    part(arguments, |at| i64::from(at.day()))
}

fn day_of_week<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    part(arguments, |at| {
        i64::from(at.weekday().to_sunday_zero_offset())
    })
}

fn hours<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    part(arguments, |at| i64::from(at.hour()))
}

fn minutes<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    part(arguments, |at| i64::from(at.minute()))
}

fn seconds<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    part(arguments, |at| i64::from(at.second()))
}

fn milliseconds<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    part(arguments, |at| i64::from(at.millisecond()))
}

fn duration_in<'a>(arguments: &[Value<'a>], unit: i64) -> EvaluationResult<'a> {
    match arguments {
        [Value::Duration(nanos)] => Ok(Value::Int(nanos / unit)),
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn duration_hours<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    duration_in(arguments, 3600 * NANOS_PER_SECOND)
}

fn duration_minutes<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    duration_in(arguments, 60 * NANOS_PER_SECOND)
}

fn duration_seconds<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    duration_in(arguments, NANOS_PER_SECOND)
}

fn duration_milliseconds<'a>(arguments: &[Value<'a>], _: &mut Meter<'_>) -> EvaluationResult<'a> {
    duration_in(arguments, 1_000_000)
}
