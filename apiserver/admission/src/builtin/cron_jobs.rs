//! Validates CronJobs.

use jiff::tz::{self, TimeZone};
use machinery::FieldError;
use serde_json::Value;

use super::job_schedule;
use super::jobs::validate_job_spec;
use super::numbers::validate_non_negative;
use crate::unstructured::{flag, get, has, text};

/// Leaves eleven characters for the suffix of a Job's name.
const MAX_NAME_LENGTH: usize = 52;
const MAX_ZONE_PART_LENGTH: usize = 14;

pub(super) fn validate_cron_job(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let name = text(new, "/metadata/name");
    if old.is_none() && name.len() > MAX_NAME_LENGTH {
        errors.push(FieldError::invalid(
            "metadata.name",
            &name.into(),
            format!("must be no more than {MAX_NAME_LENGTH} characters"),
        ));
    }
    let schedule = text(new, "/spec/schedule");
    if schedule.is_empty() {
        errors.push(FieldError::required("spec.schedule", ""));
    } else {
        validate_schedule(schedule, new, old, errors);
    }
    validate_non_negative(new, "spec.startingDeadlineSeconds", errors);
    let zone = get(new, "/spec/timeZone");
    if let Some(zone) = zone.as_str()
        && old.is_none_or(|old| get(old, "/spec/timeZone") != zone)
        && let Err(detail) = validate_time_zone(zone)
    {
        errors.push(FieldError::invalid("spec.timeZone", &zone.into(), detail));
    }
    validate_job_spec("spec.jobTemplate.spec", new, old, errors);
    let job = get(new, "/spec/jobTemplate/spec");
    if has(job, "/selector") {
        errors.push(FieldError::invalid(
            "spec.jobTemplate.spec.selector",
            get(job, "/selector"),
            "`selector` will be auto-generated",
        ));
    }
    if flag(job, "/manualSelector") {
        errors.push(FieldError::not_supported(
            "spec.jobTemplate.spec.manualSelector",
            &true.into(),
            &["nil", "false"],
        ));
    }
    for limit in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        validate_non_negative(new, &format!("spec.{limit}"), errors);
    }
}

/// A time zone in the schedule itself may stay, without the field for it.
fn validate_schedule(
    schedule: &str,
    new: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    let mut refuse = |detail: String| {
        errors.push(FieldError::invalid(
            "spec.schedule",
            &schedule.into(),
            detail,
        ));
    };
    if let Err(detail) = job_schedule::validate(schedule) {
        refuse(detail);
    }
    if schedule.contains("TZ") {
        let had_zone = old.is_some_and(|old| text(old, "/spec/schedule").contains("TZ"));
        if !had_zone {
            refuse("cannot use TZ or CRON_TZ in schedule, use timeZone field instead".into());
        } else if has(new, "/spec/timeZone") {
            refuse("cannot use both timeZone field and TZ or CRON_TZ in schedule".into());
        }
    }
}

/// Checks the name of a time zone, whose case matters.
fn validate_time_zone(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("timeZone must be nil or non-empty string".into());
    }
    let unknown = || Err(format!("unknown time zone {name}"));
    if !name.split('/').all(is_zone_part) {
        return unknown();
    }
    if name.eq_ignore_ascii_case("local") {
        return Err(
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
                .into(),
        );
    }
    let zone = tz::db().get(name).ok();
    match zone.as_ref().and_then(TimeZone::iana_name) {
        Some(canonical_name) if canonical_name == name => Ok(()),
        _ => unknown(),
    }
}

fn is_zone_part(part: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b".-_+".contains(&b);
    (1..=MAX_ZONE_PART_LENGTH).contains(&part.len())
        && part.bytes().all(is_plain)
        && !part.starts_with('-')
        && !matches!(part, "." | "..")
}
