//! Validates the windows of a RolloutPolicy, and the queries and Jobs of its stages. Does no I/O.

use std::time::Duration;

use jiff::Timestamp;
use karmada_api::CronSchedule;
use machinery::names::{
    validate_dns1035_label, validate_dns1123_label, validate_dns1123_subdomain,
};
use machinery::{FieldError, duration};
use serde_json::Value;

use crate::unstructured::{get, has, index_path, items, report_invalid, text};

/// The shortest interval of a query.
const MIN_QUERY_INTERVAL: Duration = Duration::from_secs(10);

pub(crate) fn validate_windows(spec: &Value, errors: &mut Vec<FieldError>) {
    for (i, window) in items(spec, "/windows").iter().enumerate() {
        let field = index_path("spec.windows", i);
        let zone = text(window, "/timeZone");
        let is_zone = zone.is_empty() || jiff::tz::db().get(zone).is_ok();
        let zone_result = match is_zone {
            true => Ok(()),
            false => Err(format!("unknown time zone {zone}")),
        };
        report_invalid(format!("{field}.timeZone"), zone, zone_result, errors);
        let schedule = text(window, "/schedule");
        let zone = if is_zone { zone } else { "" };
        let result = validate_schedule(schedule, zone);
        report_invalid(format!("{field}.schedule"), schedule, result, errors);
        validate_at_least(
            &format!("{field}.duration"),
            get(window, "/duration"),
            Duration::from_secs(1),
            errors,
        );
    }
}

/// The schedule must have a time within four years of any.
fn validate_schedule(schedule: &str, zone: &str) -> Result<(), String> {
    let times = CronSchedule::parse(schedule, Some(zone))?;
    let first = times.next_after(Timestamp::UNIX_EPOCH);
    first.map(drop).ok_or_else(|| "never occurs".to_owned())
}

/// Validates the query of a stage. `namespace` is empty for a ClusterRolloutPolicy.
pub(crate) fn validate_query(
    field: &str,
    namespace: &str,
    query: &Value,
    errors: &mut Vec<FieldError>,
) {
    if query.is_null() {
        return;
    }
    if has(query, "/prometheus") {
        let service = get(query, "/prometheus");
        validate_service(&format!("{field}.prometheus"), namespace, service, errors);
    }
    if has(query, "/interval") {
        validate_at_least(
            &format!("{field}.interval"),
            get(query, "/interval"),
            MIN_QUERY_INTERVAL,
            errors,
        );
    }
}

fn validate_service(field: &str, namespace: &str, service: &Value, errors: &mut Vec<FieldError>) {
    let named = text(service, "/namespace");
    let namespace_field = format!("{field}.namespace");
    if !namespace.is_empty() && !named.is_empty() && named != namespace {
        errors.push(FieldError::invalid(
            namespace_field,
            &named.into(),
            "must be empty or the namespace of the policy",
        ));
    } else if !named.is_empty() {
        report_invalid(
            namespace_field,
            named,
            validate_dns1123_label(named),
            errors,
        );
    }
    let name = text(service, "/name");
    let name_field = format!("{field}.name");
    report_invalid(name_field, name, validate_dns1035_label(name), errors);
}

/// Validates the Job of a stage.
pub(crate) fn validate_job(field: &str, job: &Value, errors: &mut Vec<FieldError>) {
    if !job.is_null() {
        let name = text(job, "/cronJob");
        let result = validate_dns1123_subdomain(name);
        report_invalid(format!("{field}.cronJob"), name, result, errors);
    }
}

fn validate_at_least(field: &str, value: &Value, min: Duration, errors: &mut Vec<FieldError>) {
    let detail = match duration::parse(value.as_str().unwrap_or_default()) {
        Ok(duration) if duration >= min => return,
        Ok(_) => format!("must be at least {}s", min.as_secs()),
        Err(detail) => detail,
    };
    errors.push(FieldError::invalid(field, value, detail));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(errors: &[FieldError], expected: &[&str]) {
        let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let fits = |(message, start): (&String, &&str)| message.starts_with(*start);
        assert!(
            messages.len() == expected.len() && messages.iter().zip(expected).all(fits),
            "{messages:?}"
        );
    }

    // proves: ROL-valid
    #[test]
    fn windows_open_at_some_time_for_some_time() {
        for (window, expected) in [
            (
                json!({"schedule": "0 22 * * mon-fri", "duration": "4h"}),
                &[] as &[&str],
            ),
            (
                json!({"schedule": "@daily", "duration": "90m", "timeZone": "Europe/Berlin"}),
                &[],
            ),
            (json!({"schedule": "0 0 29 2 *", "duration": "1s"}), &[]),
            (
                json!({"schedule": "0 22 * *", "duration": "0s"}),
                &[
                    "spec.windows[0].schedule: Invalid value",
                    "spec.windows[0].duration: Invalid value: \"0s\": must be at least 1s",
                ],
            ),
            (
                json!({"schedule": "0 0 31 2 *", "duration": "soon", "timeZone": "Mars/Olympus"}),
                &[
                    "spec.windows[0].timeZone: Invalid value: \"Mars/Olympus\": unknown time zone",
                    "spec.windows[0].schedule: Invalid value: \"0 0 31 2 *\": never occurs",
                    "spec.windows[0].duration: Invalid value: \"soon\": \"soon\" is not a duration",
                ],
            ),
        ] {
            let mut errors = Vec::new();
            validate_windows(&json!({"windows": [window]}), &mut errors);
            check(&errors, expected);
        }
    }

    // proves: ROL-valid, ROL-query-service
    #[test]
    fn a_query_names_a_service_of_the_namespace_of_the_policy() {
        for (namespace, service, interval, expected) in [
            ("n", json!({"name": "prom"}), json!(null), &[] as &[&str]),
            // The Prometheus of the control plane answers it.
            ("n", json!(null), json!("10s"), &[]),
            (
                "n",
                json!({"name": "prom", "namespace": "n"}),
                json!("10s"),
                &[],
            ),
            (
                "",
                json!({"name": "prom", "namespace": "m"}),
                json!("1h"),
                &[],
            ),
            (
                "n",
                json!({"name": "prom", "namespace": "m"}),
                json!("9s"),
                &[
                    "q.prometheus.namespace: Invalid value: \"m\": must be empty or the namespace of the policy",
                    "q.interval: Invalid value: \"9s\": must be at least 10s",
                ],
            ),
            (
                "",
                json!({"name": "http://evil", "namespace": "../x"}),
                json!("often"),
                &[
                    "q.prometheus.namespace: Invalid value",
                    "q.prometheus.name: Invalid value",
                    "q.interval: Invalid value",
                ],
            ),
        ] {
            let query = json!({"prometheus": service, "interval": interval});
            let mut errors = Vec::new();
            validate_query("q", namespace, &query, &mut errors);
            check(&errors, expected);
        }
        let mut errors = Vec::new();
        validate_query("q", "n", &json!(null), &mut errors);
        check(&errors, &[]);
    }
}
