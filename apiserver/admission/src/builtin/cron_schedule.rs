//! Parses the schedule of a CronFederatedHPA: five fields, or a macro such as `@hourly`.

use super::cron_names::{MACROS, MONTHS, WEEKDAYS};

/// Checks a schedule; the error says why it is invalid.
pub(crate) fn validate_schedule(text: &str) -> Result<(), String> {
    if MACROS.contains(&text) {
        return Ok(());
    }
    if text.contains("TZ=") {
        return Err("cannot use TZ or CRON_TZ in schedule, use timeZone field instead".into());
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    let [minute, hour, day, month, weekday] = fields[..] else {
        return Err(format!(
            "expected exactly 5 fields, found {}: {text:?}",
            fields.len()
        ));
    };
    validate_field(minute, 0, 59, &[])?;
    validate_field(hour, 0, 23, &[])?;
    validate_field(day, 1, 31, &[])?;
    validate_field(month, 1, 12, &MONTHS)?;
    validate_field(weekday, 0, 7, &WEEKDAYS)
}

/// Checks one field: `*`, numbers, names, ranges and steps, separated by commas.
fn validate_field(text: &str, min: u32, max: u32, names: &[&str]) -> Result<(), String> {
    let out_of_bounds = || format!("invalid schedule field {text:?}, must be within {min}-{max}");
    let number = |s: &str| {
        let index = names.iter().position(|n| s.eq_ignore_ascii_case(n));
        let index = index.and_then(|i| u32::try_from(i).ok()).map(|i| i + min);
        let digits = !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        index
            .or_else(|| s.parse().ok().filter(|_| digits))
            .filter(|n| (min..=max).contains(n))
    };
    for part in text.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (part, None),
        };
        if let Some(step) = step
            && step.parse::<u32>().ok().filter(|n| *n > 0).is_none()
        {
            return Err(out_of_bounds());
        }
        if matches!(range, "*" | "?") {
            continue;
        }
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (
            number(first).ok_or_else(out_of_bounds)?,
            number(last).ok_or_else(out_of_bounds)?,
        );
        if first > last {
            return Err(out_of_bounds());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_validated() {
        for (text, valid) in [
            ("* * * * *", true),
            ("*/5 0-6 1,15 jan-mar MON", true),
            ("0 0 ? * 7", true),
            ("@hourly", true),
            ("@never", false),
            ("* * * *", false),
            ("60 * * * *", false),
            ("* * 0 * *", false),
            ("*/0 * * * *", false),
            ("5-1 * * * *", false),
            ("TZ=UTC * * * * *", false),
            ("a * * * *", false),
            ("", false),
        ] {
            assert_eq!(validate_schedule(text).is_ok(), valid, "{text}");
        }
    }
}
