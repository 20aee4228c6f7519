//! Validates Deployment, ReplicaSet, DaemonSet, StatefulSet, Job and CronJob.

use jiff::tz::{self, TimeZone};
use machinery::{FieldError, LabelSelector};
use serde_json::{Map, Value};

use super::numbers::{validate_non_negative, validate_non_negative_at};
use super::{job_schedule, pods};
use crate::metadata;
use crate::unstructured::{flag, get, has, int, pointer, text, validate_immutable_field};

const ALWAYS: &[&str] = &["Always"];
/// The most pods with an index that a Job runs at once.
const MAX_INDEXED_PARALLELISM: i64 = 100_000;

pub(super) fn validate_deployment(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    validate_pod_template("deployment", new, ALWAYS, errors);
    validate_counts(
        new,
        &["replicas", "minReadySeconds", "revisionHistoryLimit"],
        errors,
    );
    validate_strategy(get(new, "/spec/strategy"), errors);
    if let Some(deadline) = int(new, "/spec/progressDeadlineSeconds") {
        let ready = int(new, "/spec/minReadySeconds").unwrap_or(0);
        if deadline <= ready {
            errors.push(FieldError::invalid(
                "spec.progressDeadlineSeconds",
                &deadline.into(),
                "must be greater than minReadySeconds",
            ));
        }
    }
    validate_immutable_fields(new, old, &["selector"], errors);
}

fn validate_strategy(strategy: &Value, errors: &mut Vec<FieldError>) {
    let rolling = get(strategy, "/rollingUpdate");
    if text(strategy, "/type") == "Recreate" {
        if !rolling.is_null() {
            errors.push(FieldError::forbidden(
                "spec.strategy.rollingUpdate",
                "may not be specified when strategy `type` is 'Recreate'",
            ));
        }
        return;
    }
    if rolling.is_null() {
        return;
    }
    for side in ["maxUnavailable", "maxSurge"] {
        validate_int_or_percent(
            &format!("spec.strategy.rollingUpdate.{side}"),
            get(rolling, &format!("/{side}")),
            errors,
        );
    }
    let zero = |side: &str| matches!(get(rolling, side), v if *v == 0 || *v == "0%");
    if zero("/maxUnavailable") && zero("/maxSurge") {
        errors.push(FieldError::invalid(
            "spec.strategy.rollingUpdate.maxUnavailable",
            get(rolling, "/maxUnavailable"),
            "may not be 0 when `maxSurge` is 0",
        ));
    }
}

/// Checks an int-or-percent: a number of at least 0, or a percentage.
pub(super) fn validate_int_or_percent(field: &str, value: &Value, errors: &mut Vec<FieldError>) {
    match value {
        Value::Number(n) if n.as_i64().is_none_or(|n| n < 0) => errors.push(FieldError::invalid(
            field,
            value,
            "must be greater than or equal to 0",
        )),
        Value::String(s) => {
            let digits = s.strip_suffix('%').unwrap_or("");
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                errors.push(FieldError::invalid(field, value, "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"));
            }
        }
        _ => {}
    }
}

pub(super) fn validate_replica_set(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    validate_pod_template("deployment", new, ALWAYS, errors);
    validate_counts(new, &["replicas", "minReadySeconds"], errors);
    validate_immutable_fields(new, old, &["selector"], errors);
}

pub(super) fn validate_daemon_set(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    validate_pod_template("daemonset", new, ALWAYS, errors);
    validate_daemon_update(get(new, "/spec/updateStrategy"), errors);
    validate_counts(new, &["minReadySeconds", "revisionHistoryLimit"], errors);
    validate_immutable_fields(new, old, &["selector"], errors);
}

/// Either `maxUnavailable` or `maxSurge` moves an update on, and not both.
fn validate_daemon_update(strategy: &Value, errors: &mut Vec<FieldError>) {
    let field = "spec.updateStrategy.rollingUpdate";
    let rolling = get(strategy, "/rollingUpdate");
    if rolling.is_null() || text(strategy, "/type") == "OnDelete" {
        return;
    }
    let part = |side: &str| get(rolling, &format!("/{side}"));
    for side in ["maxUnavailable", "maxSurge"] {
        validate_int_or_percent(&format!("{field}.{side}"), part(side), errors);
    }
    let moves = |side: &str| !matches!(part(side), v if v.is_null() || *v == 0 || *v == "0%");
    match (moves("maxUnavailable"), moves("maxSurge")) {
        (true, true) => errors.push(FieldError::invalid(
            format!("{field}.maxSurge"),
            part("maxSurge"),
            "may not be set when maxUnavailable is non-zero",
        )),
        (false, false) if has(rolling, "/maxUnavailable") => errors.push(FieldError::required(
            format!("{field}.maxUnavailable"),
            "cannot be 0 when maxSurge is 0",
        )),
        _ => {}
    }
}

/// Validates what a StatefulSet has beside its template.
fn validate_stateful_fields(spec: &Value, errors: &mut Vec<FieldError>) {
    let policy = text(spec, "/podManagementPolicy");
    if !matches!(policy, "" | "OrderedReady" | "Parallel") {
        errors.push(FieldError::invalid(
            "spec.podManagementPolicy",
            &policy.into(),
            "must be 'OrderedReady' or 'Parallel'",
        ));
    }
    let strategy = get(spec, "/updateStrategy");
    let rolling = get(strategy, "/rollingUpdate");
    match text(strategy, "/type") {
        "OnDelete" if !rolling.is_null() => errors.push(FieldError::invalid(
            "spec.updateStrategy.rollingUpdate",
            rolling,
            "only allowed for updateStrategy 'RollingUpdate'",
        )),
        "" | "OnDelete" | "RollingUpdate" => {}
        other => errors.push(FieldError::invalid(
            "spec.updateStrategy",
            &other.into(),
            "must be 'RollingUpdate' or 'OnDelete'",
        )),
    }
    validate_non_negative_at(
        "spec.updateStrategy.rollingUpdate",
        rolling,
        "partition",
        errors,
    );
    validate_non_negative_at("spec.ordinals", get(spec, "/ordinals"), "start", errors);
}

pub(super) fn validate_stateful_set(
    new: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    validate_pod_template("statefulset", new, ALWAYS, errors);
    validate_stateful_fields(get(new, "/spec"), errors);
    validate_counts(
        new,
        &["replicas", "minReadySeconds", "revisionHistoryLimit"],
        errors,
    );
    let Some(old) = old else {
        return;
    };
    let fixed = |object: &Value| {
        let mut spec = get(object, "/spec")
            .as_object()
            .cloned()
            .unwrap_or_default();
        for field in [
            "replicas",
            "ordinals",
            "template",
            "updateStrategy",
            "revisionHistoryLimit",
            "persistentVolumeClaimRetentionPolicy",
            "minReadySeconds",
        ] {
            spec.remove(field);
        }
        spec
    };
    if fixed(new) != fixed(old) {
        errors.push(FieldError::forbidden("spec", "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"));
    }
}

/// Validates a ReplicationController, whose selector is a map of labels.
pub(super) fn validate_replication_controller(new: &Value, errors: &mut Vec<FieldError>) {
    validate_counts(new, &["replicas", "minReadySeconds"], errors);
    let selector = get(new, "/spec/selector");
    let pairs = selector.as_object().filter(|pairs| !pairs.is_empty());
    if let Some(pairs) = pairs {
        let labels = get(new, "/spec/template/metadata/labels");
        if has(new, "/spec/template") && !pairs.iter().all(|(k, v)| labels.get(k) == Some(v)) {
            errors.push(FieldError::invalid(
                "spec.template.metadata.labels",
                labels,
                "`selector` does not match template `labels`",
            ));
        }
    } else {
        errors.push(FieldError::required("spec.selector", ""));
    }
    if has(new, "/spec/template") {
        validate_template_metadata("spec.template", get(new, "/spec/template"), errors);
        pods::validate("spec.template.spec", new, ALWAYS, errors);
    } else {
        errors.push(FieldError::required("spec.template", ""));
    }
}

pub(super) fn validate_pod_template_object(new: &Value, errors: &mut Vec<FieldError>) {
    validate_template_metadata("template", get(new, "/template"), errors);
    pods::validate("template.spec", new, pods::RESTART_POLICIES, errors);
}

pub(super) fn validate_job(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    validate_job_spec("spec", new, errors);
    // The server generates the selector unless the user sets one.
    if has(new, "/spec/selector") {
        validate_selector("job", new, errors);
    }
    let Some(old) = old else {
        return;
    };
    validate_immutable_fields(
        new,
        Some(old),
        &["selector", "completionMode", "podFailurePolicy"],
        errors,
    );
    let elastic = text(new, "/spec/completionMode") == "Indexed"
        && get(new, "/spec/completions") == get(new, "/spec/parallelism");
    if !elastic {
        validate_immutable_fields(new, Some(old), &["completions"], errors);
    }
    // The template of a suspended job that never started may still change.
    let not_started = get(old, "/spec/suspend") == true && !has(old, "/status/startTime");
    if !not_started {
        validate_immutable_fields(new, Some(old), &["template"], errors);
    }
}

fn validate_job_spec(field: &str, object: &Value, errors: &mut Vec<FieldError>) {
    for name in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
    ] {
        validate_non_negative(object, &format!("{field}.{name}"), errors);
    }
    pods::validate(
        &format!("{field}.template.spec"),
        object,
        &["OnFailure", "Never"],
        errors,
    );
    validate_job_modes(field, get(object, &pointer(field)), errors);
}

/// Validates the fields that depend on whether the pods of a Job have indexes.
fn validate_job_modes(field: &str, spec: &Value, errors: &mut Vec<FieldError>) {
    let mode = text(spec, "/completionMode");
    let is_indexed = mode == "Indexed";
    if !matches!(mode, "" | "NonIndexed" | "Indexed") {
        errors.push(FieldError::not_supported(
            format!("{field}.completionMode"),
            &mode.into(),
            &["NonIndexed", "Indexed"],
        ));
    }
    if is_indexed && !has(spec, "/completions") {
        let why = format!("when completion mode is {mode}");
        errors.push(FieldError::required(format!("{field}.completions"), &why));
    }
    let parallelism = int(spec, "/parallelism").unwrap_or(0);
    if is_indexed && parallelism > MAX_INDEXED_PARALLELISM {
        errors.push(FieldError::invalid(
            format!("{field}.parallelism"),
            &parallelism.into(),
            format!("must be less than or equal to {MAX_INDEXED_PARALLELISM} when completion mode is {mode}"),
        ));
    }
    for name in ["backoffLimitPerIndex", "maxFailedIndexes"] {
        if has(spec, &format!("/{name}")) && !is_indexed {
            errors.push(FieldError::invalid(
                format!("{field}.{name}"),
                get(spec, &format!("/{name}")),
                "requires indexed completion mode",
            ));
        }
        validate_non_negative_at(field, spec, name, errors);
    }
    let policy = text(spec, "/template/spec/restartPolicy");
    if has(spec, "/podFailurePolicy") && policy != "Never" {
        errors.push(FieldError::invalid(
            format!("{field}.template.spec.restartPolicy"),
            &policy.into(),
            "only \"Never\" is supported when podFailurePolicy is specified",
        ));
    }
}

pub(super) fn validate_cron_job(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    // Leaves eleven characters for the suffix of a Job's name.
    let name = text(new, "/metadata/name");
    if old.is_none() && name.len() > 52 {
        errors.push(FieldError::invalid(
            "metadata.name",
            &name.into(),
            "must be no more than 52 characters",
        ));
    }
    let schedule = text(new, "/spec/schedule");
    if schedule.is_empty() {
        errors.push(FieldError::required("spec.schedule", ""));
    } else {
        validate_schedule(schedule, new, old, errors);
    }
    let zone = get(new, "/spec/timeZone");
    if let Some(zone) = zone.as_str()
        && old.is_none_or(|old| get(old, "/spec/timeZone") != zone)
        && let Err(why) = validate_time_zone(zone)
    {
        errors.push(FieldError::invalid("spec.timeZone", &zone.into(), why));
    }
    validate_counts(
        new,
        &[
            "startingDeadlineSeconds",
            "successfulJobsHistoryLimit",
            "failedJobsHistoryLimit",
        ],
        errors,
    );
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
    validate_job_spec("spec.jobTemplate.spec", new, errors);
}

/// A time zone in the schedule itself may stay, without the field for it.
fn validate_schedule(
    schedule: &str,
    new: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    let mut refuse = |why: String| {
        errors.push(FieldError::invalid("spec.schedule", &schedule.into(), why));
    };
    if let Err(why) = job_schedule::validate(schedule) {
        refuse(why);
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
    if name.eq_ignore_ascii_case("local") {
        return Err(
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
                .into(),
        );
    }
    let zone = tz::db().get(name).ok();
    match zone.as_ref().and_then(TimeZone::iana_name) {
        Some(known) if known == name => Ok(()),
        _ => Err(format!("unknown time zone {name}")),
    }
}

fn validate_counts(object: &Value, fields: &[&str], errors: &mut Vec<FieldError>) {
    for field in fields {
        validate_non_negative(object, &format!("spec.{field}"), errors);
    }
}

fn validate_immutable_fields(
    new: &Value,
    old: Option<&Value>,
    fields: &[&str],
    errors: &mut Vec<FieldError>,
) {
    if let Some(old) = old {
        for field in fields {
            validate_immutable_field(new, old, &format!("spec.{field}"), errors);
        }
    }
}

/// Validates selector and pod template of a workload.
fn validate_pod_template(
    kind: &str,
    object: &Value,
    policies: &[&str],
    errors: &mut Vec<FieldError>,
) {
    if has(object, "/spec/selector") {
        validate_selector(kind, object, errors);
    } else {
        errors.push(FieldError::required("spec.selector", ""));
    }
    validate_template_metadata("spec.template", get(object, "/spec/template"), errors);
    if let Some(seconds) = int(object, "/spec/template/spec/activeDeadlineSeconds") {
        let owner = match kind {
            "daemonset" => "DaemonSet",
            "statefulset" => "StatefulSet",
            _ => "ReplicaSet",
        };
        let field = "spec.template.spec.activeDeadlineSeconds";
        if seconds > 0 {
            let why = format!("activeDeadlineSeconds in {owner} is not Supported");
            errors.push(FieldError::forbidden(field, &why));
        }
    }
    pods::validate("spec.template.spec", object, policies, errors);
}

fn validate_template_metadata(field: &str, template: &Value, errors: &mut Vec<FieldError>) {
    let labels = get(template, "/metadata/labels");
    metadata::validate_labels(&format!("{field}.labels"), labels, errors);
    let annotations = get(template, "/metadata/annotations");
    metadata::validate_annotations(&format!("{field}.annotations"), annotations, errors);
}

fn validate_selector(kind: &str, object: &Value, errors: &mut Vec<FieldError>) {
    let value = get(object, "/spec/selector");
    let selector = match LabelSelector::from_value(value) {
        Ok(selector) => selector,
        Err(why) => {
            errors.push(FieldError::invalid("spec.selector", value, why));
            return;
        }
    };
    if selector.is_everything() {
        errors.push(FieldError::invalid(
            "spec.selector",
            value,
            format!("empty selector is invalid for {kind}"),
        ));
        return;
    }
    let labels = get(object, "/spec/template/metadata/labels");
    let empty = Map::new();
    let map = labels.as_object().unwrap_or(&empty);
    if !selector.matches(|key| map.get(key).and_then(Value::as_str)) {
        errors.push(FieldError::invalid(
            "spec.template.metadata.labels",
            labels,
            "`selector` does not match template `labels`",
        ));
    }
}
