//! Parses the schedule of a CronJob as the library of Kubernetes' controller does: five fields, a
//! macro such as `@daily`, or `@every` with a duration.

use machinery::duration;

use super::cron_names::{MACROS, MONTHS, WEEKDAYS};

const EVERY: &str = "@every ";

/// The values of a field.
struct FieldBounds {
    min: u32,
    max: u32,
    names: &'static [&'static str],
}

const FIELDS: [FieldBounds; 5] = [
    FieldBounds {
        min: 0,
        max: 59,
        names: &[],
    },
    FieldBounds {
        min: 0,
        max: 23,
        names: &[],
    },
    FieldBounds {
        min: 1,
        max: 31,
        names: &[],
    },
    FieldBounds {
        min: 1,
        max: 12,
        names: &MONTHS,
    },
    FieldBounds {
        min: 0,
        max: 6,
        names: &WEEKDAYS,
    },
];

/// Checks a schedule; the error says why it is invalid.
pub(super) fn validate(schedule: &str) -> Result<(), String> {
    let mut text = schedule;
    if text.starts_with("TZ=") || text.starts_with("CRON_TZ=") {
        text = text.split_once(' ').map_or("", |(_, rest)| rest.trim());
    }
    if text.is_empty() {
        return Err("empty spec string".into());
    }
    if text.starts_with('@') {
        return validate_macro(text);
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!(
            "expected exactly 5 fields, found {}: [{}]",
            fields.len(),
            fields.join(" ")
        ));
    }
    for (field, bounds) in fields.iter().zip(&FIELDS) {
        for range in field.split(',').filter(|range| !range.is_empty()) {
            bounds.validate_range(range)?;
        }
    }
    Ok(())
}

fn validate_macro(text: &str) -> Result<(), String> {
    if MACROS.contains(&text) {
        return Ok(());
    }
    let Some(period) = text.strip_prefix(EVERY) else {
        return Err(format!("unrecognized descriptor: {text}"));
    };
    match duration::is_duration(period) {
        true => Ok(()),
        false => Err(format!(
            "failed to parse duration {text}: time: invalid duration {period:?}"
        )),
    }
}

impl FieldBounds {
    /// Checks `*`, a number, a name or a range, each with or without a step.
    fn validate_range(&self, text: &str) -> Result<(), String> {
        let mut parts = text.split('/');
        let ends: Vec<&str> = parts.next().unwrap_or("").split('-').collect();
        let (start, mut end) = match ends[..] {
            ["*" | "?", ..] => (self.min, self.max),
            [one] => {
                let value = self.value(one)?;
                (value, value)
            }
            [start, end] => (self.value(start)?, self.value(end)?),
            _ => return Err(format!("too many hyphens: {text}")),
        };
        let step = match (parts.next(), parts.next()) {
            (None, _) => 1,
            (Some(step), None) => {
                if ends.len() == 1 {
                    end = self.max;
                }
                number(step)?
            }
            _ => return Err(format!("too many slashes: {text}")),
        };
        let (min, max) = (self.min, self.max);
        if start < min {
            return Err(format!(
                "beginning of range ({start}) below minimum ({min}): {text}"
            ));
        }
        if end > max {
            return Err(format!(
                "end of range ({end}) above maximum ({max}): {text}"
            ));
        }
        if start > end {
            return Err(format!(
                "beginning of range ({start}) beyond end of range ({end}): {text}"
            ));
        }
        match step {
            0 => Err(format!("step of range should be a positive number: {text}")),
            _ => Ok(()),
        }
    }

    fn value(&self, text: &str) -> Result<u32, String> {
        let mut values = (self.min..).zip(self.names);
        match values.find(|(_, name)| name.eq_ignore_ascii_case(text)) {
            Some((value, _)) => Ok(value),
            None => number(text),
        }
    }
}

fn number(text: &str) -> Result<u32, String> {
    match text.parse::<i64>() {
        Ok(number) if number < 0 => Err(format!("negative number ({number}) not allowed: {text}")),
        Ok(number) => Ok(u32::try_from(number).unwrap_or(u32::MAX)),
        Err(_) => Err(format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_are_those_of_kubernetes() {
        for valid in [
            "* * * * *",
            "*/5 0-6 1,15 jan-mar MON",
            "0 0 ? * 6",
            "5/10 * * * *",
            "@hourly",
            "@every 1h30m",
            "@every 90s",
            "CRON_TZ=UTC * * * * *",
        ] {
            assert_eq!(validate(valid), Ok(()), "{valid}");
        }
        for (invalid, detail) in [
            ("", "empty spec string"),
            ("@never", "unrecognized descriptor: @never"),
            (
                "@every day",
                "failed to parse duration @every day: time: invalid duration \"day\"",
            ),
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("* * * * 7", "end of range (7) above maximum (6): 7"),
            (
                "5-1 * * * *",
                "beginning of range (5) beyond end of range (1): 5-1",
            ),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            (
                "*/0 * * * *",
                "step of range should be a positive number: */0",
            ),
            (
                "a * * * *",
                "failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax",
            ),
        ] {
            assert_eq!(validate(invalid), Err(detail.to_owned()), "{invalid}");
        }
    }
}
