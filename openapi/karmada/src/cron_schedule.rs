//! Parses the schedules of CronFederatedHPAs and of the windows of RolloutPolicies, and finds their
//! times in a time zone.

use cronexpr::{Crontab, FallbackTimezoneOption, MakeTimestamp, ParseOptions};
use jiff::Timestamp;

/// The abbreviations of robfig/cron, with which Karmada parses schedules.
const ABBREVIATIONS: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// A schedule in a time zone.
#[derive(Debug)]
pub struct CronSchedule(Crontab);

impl CronSchedule {
    /// Without a time zone the schedule is in that of the process; with an empty one it is in UTC,
    /// as in Go.
    pub fn parse(text: &str, time_zone: Option<&str>) -> Result<Self, String> {
        let abbreviated = ABBREVIATIONS.iter().find(|(short, _)| *short == text);
        let fields = abbreviated.map_or(text, |(_, fields)| fields);
        // `?` is another `*` in every field.
        let mut expression = fields.replace('?', "*");
        if let Some(zone) = time_zone {
            let zone = if zone.is_empty() { "UTC" } else { zone };
            expression = format!("{expression} {zone}");
        }
        let mut options = ParseOptions::default();
        options.fallback_timezone_option = FallbackTimezoneOption::System;
        cronexpr::parse_crontab_with(&expression, options)
            .map(Self)
            .map_err(|e| format!("schedule {text:?}: {e}"))
    }

    /// The first time after `now`; none if there is none within four years, beyond which nothing is
    /// searched. A time that clocks skip
    /// when summer time begins is left out.
    pub fn next_after(&self, now: Timestamp) -> Option<Timestamp> {
        let next = self.0.find_next(MakeTimestamp(now)).ok()?;
        Some(next.timestamp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(text: &str, zone: Option<&str>, now: &str) -> Option<String> {
        let schedule = CronSchedule::parse(text, zone).unwrap();
        Some(schedule.next_after(now.parse().unwrap())?.to_string())
    }

    // proves: CRH-schedule
    #[test]
    fn times_follow_the_schedule() {
        let friday = "2026-03-27T10:07:30Z";
        for (text, expected) in [
            ("*/15 * * * *", Some("2026-03-27T10:15:00Z")),
            ("7 10 * * *", Some("2026-03-28T10:07:00Z")),
            ("5/20 * * * *", Some("2026-03-27T10:25:00Z")),
            ("0 9-17/4 * * mon-fri", Some("2026-03-27T13:00:00Z")),
            ("0 0 ? * 7", Some("2026-03-29T00:00:00Z")),
            // Of a day of the month and a day of the week, either suffices.
            ("0 0 13 * 5", Some("2026-04-03T00:00:00Z")),
            ("0 0 29 2 *", Some("2028-02-29T00:00:00Z")),
            ("0 0 31 feb *", None),
            ("@hourly", Some("2026-03-27T11:00:00Z")),
            ("@daily", Some("2026-03-28T00:00:00Z")),
            ("@weekly", Some("2026-03-29T00:00:00Z")),
            ("@monthly", Some("2026-04-01T00:00:00Z")),
            ("@yearly", Some("2027-01-01T00:00:00Z")),
        ] {
            assert_eq!(
                next(text, Some("UTC"), friday).as_deref(),
                expected,
                "{text}"
            );
        }
    }

    // proves: CRH-zone
    #[test]
    fn times_are_in_the_zone_of_the_rule() {
        for (zone, now, expected) in [
            ("", "2026-03-27T00:00:00Z", "2026-03-27T02:30:00Z"),
            (
                "Asia/Shanghai",
                "2026-03-27T00:00:00Z",
                "2026-03-27T18:30:00Z",
            ),
            // Summer time begins on the 29th: half past two does not exist.
            (
                "Europe/Berlin",
                "2026-03-28T02:00:00Z",
                "2026-03-30T00:30:00Z",
            ),
            // It ends on the 25th: half past two comes twice.
            (
                "Europe/Berlin",
                "2026-10-24T20:00:00Z",
                "2026-10-25T00:30:00Z",
            ),
            (
                "Europe/Berlin",
                "2026-10-25T00:30:00Z",
                "2026-10-25T01:30:00Z",
            ),
        ] {
            let actual = next("30 2 * * *", Some(zone), now);
            assert_eq!(actual.as_deref(), Some(expected), "{zone} {now}");
        }
    }

    #[test]
    fn malformed_schedules_are_errors() {
        for text in [
            "",
            "* * * *",
            "60 * * * *",
            "* * * * fri-sun",
            "@often",
            "* * * * * *",
        ] {
            let error = CronSchedule::parse(text, Some("UTC")).unwrap_err();
            assert!(error.contains(text), "{error}");
        }
        assert!(CronSchedule::parse("* * * * *", Some("Mars/Olympus")).is_err());
    }
}
