//! Validates Deployment, ReplicaSet, DaemonSet, StatefulSet, ControllerRevision and
//! ReplicationController (`pkg/apis/apps/validation`).

use machinery::names::validate_dns1123_label;
use machinery::{FieldError, LabelSelector};
use serde_json::{Map, Value};

use super::label_selectors::{SelectorValues, validate_label_selector};
use super::numbers::{
    int_or_percent, validate_at_most_100_percent, validate_int_or_percent, validate_non_negative,
    validate_non_negative_at,
};
use super::pods;
use crate::metadata;
use crate::unstructured::{get, has, int, report_invalid, text, validate_immutable_field};

const ALWAYS: &[&str] = &["Always"];

pub(super) fn validate_deployment(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let values = SelectorValues::Strict;
    validate_selector("deployment", new, values, errors);
    validate_pod_template("ReplicaSet", new, old, errors);
    validate_counts(
        new,
        &[
            "replicas",
            "minReadySeconds",
            "revisionHistoryLimit",
            "progressDeadlineSeconds",
        ],
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
    validate_immutable_selector(new, old, errors);
}

fn validate_strategy(strategy: &Value, errors: &mut Vec<FieldError>) {
    let rolling = get(strategy, "/rollingUpdate");
    match text(strategy, "/type") {
        "Recreate" if !rolling.is_null() => {
            errors.push(FieldError::forbidden(
                "spec.strategy.rollingUpdate",
                "may not be specified when strategy `type` is 'Recreate'",
            ));
            return;
        }
        "Recreate" => return,
        "" | "RollingUpdate" => {}
        _ => {
            let supported = ["Recreate", "RollingUpdate"];
            let error = FieldError::not_supported("spec.strategy", strategy, &supported);
            errors.push(error);
            return;
        }
    }
    if rolling.is_null() {
        return;
    }
    let field = "spec.strategy.rollingUpdate";
    let part = |side: &str| get(rolling, &format!("/{side}"));
    for side in ["maxUnavailable", "maxSurge"] {
        validate_int_or_percent(&format!("{field}.{side}"), part(side), errors);
    }
    let is_zero = |side: &str| has(rolling, &format!("/{side}")) && int_or_percent(part(side)) == 0;
    let unavailable = part("maxUnavailable");
    let field = format!("{field}.maxUnavailable");
    if is_zero("maxUnavailable") && is_zero("maxSurge") {
        errors.push(FieldError::invalid(
            &field,
            unavailable,
            "may not be 0 when `maxSurge` is 0",
        ));
    }
    validate_at_most_100_percent(&field, unavailable, errors);
}

pub(super) fn validate_replica_set(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    // Kubernetes' text for an empty selector names a deployment here, too.
    validate_selector("deployment", new, SelectorValues::Strict, errors);
    validate_pod_template("ReplicaSet", new, old, errors);
    validate_counts(new, &["replicas", "minReadySeconds"], errors);
    validate_immutable_selector(new, old, errors);
}

pub(super) fn validate_daemon_set(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let values = SelectorValues::of_old(old.map(|old| get(old, "/spec/selector")));
    validate_selector("daemonset", new, values, errors);
    validate_pod_template("DaemonSet", new, old, errors);
    validate_daemon_update(get(new, "/spec/updateStrategy"), errors);
    validate_counts(new, &["minReadySeconds", "revisionHistoryLimit"], errors);
    validate_immutable_selector(new, old, errors);
}

/// Exactly one of `maxUnavailable` and `maxSurge` may be above zero, so that an update can proceed.
fn validate_daemon_update(strategy: &Value, errors: &mut Vec<FieldError>) {
    let rolling = get(strategy, "/rollingUpdate");
    match text(strategy, "/type") {
        "OnDelete" => return,
        "" | "RollingUpdate" => {}
        _ => {
            let (field, supported) = ("spec.updateStrategy", ["RollingUpdate", "OnDelete"]);
            errors.push(FieldError::not_supported(field, strategy, &supported));
            return;
        }
    }
    if rolling.is_null() {
        return;
    }
    let field = "spec.updateStrategy.rollingUpdate";
    let part = |side: &str| get(rolling, &format!("/{side}"));
    let sides = ["maxUnavailable", "maxSurge"];
    for side in sides {
        validate_int_or_percent(&format!("{field}.{side}"), part(side), errors);
    }
    for side in sides {
        validate_at_most_100_percent(&format!("{field}.{side}"), part(side), errors);
    }
    let moves = |side: &str| int_or_percent(part(side)) != 0;
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
    validate_stateful_update(get(spec, "/updateStrategy"), errors);
    let retention = get(spec, "/persistentVolumeClaimRetentionPolicy");
    for side in ["whenDeleted", "whenScaled"] {
        let policy = get(retention, &format!("/{side}"));
        if !policy.is_null() && !matches!(policy.as_str(), Some("Retain" | "Delete")) {
            errors.push(FieldError::not_supported(
                format!("spec.persistentVolumeClaimRetentionPolicy.{side}"),
                policy,
                &["Retain", "Delete"],
            ));
        }
    }
    validate_non_negative_at("spec.ordinals", get(spec, "/ordinals"), "start", errors);
}

fn validate_stateful_update(strategy: &Value, errors: &mut Vec<FieldError>) {
    let rolling = get(strategy, "/rollingUpdate");
    let field = "spec.updateStrategy.rollingUpdate";
    match text(strategy, "/type") {
        "OnDelete" if !rolling.is_null() => {
            errors.push(FieldError::invalid(
                field,
                rolling,
                "only allowed for updateStrategy 'RollingUpdate'",
            ));
            return;
        }
        "" | "OnDelete" | "RollingUpdate" => {}
        _ => {
            errors.push(FieldError::invalid(
                "spec.updateStrategy",
                strategy,
                "must be 'RollingUpdate' or 'OnDelete'",
            ));
            return;
        }
    }
    validate_non_negative_at(field, rolling, "partition", errors);
    let unavailable = get(rolling, "/maxUnavailable");
    if unavailable.is_null() {
        return;
    }
    let field = format!("{field}.maxUnavailable");
    validate_int_or_percent(&field, unavailable, errors);
    if int_or_percent(unavailable) == 0 {
        errors.push(FieldError::invalid(&field, unavailable, "cannot be 0"));
    }
    validate_at_most_100_percent(&field, unavailable, errors);
}

/// The fields of a StatefulSet's spec that an update may change.
const MUTABLE_STATEFUL_FIELDS: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

pub(super) fn validate_stateful_set(
    new: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    let spec = get(new, "/spec");
    validate_selector("statefulset", new, SelectorValues::Strict, errors);
    // An object that is stored with an invalid template can still be scaled and deleted.
    if old.is_none_or(|old| get(old, "/spec/template") != get(spec, "/template")) {
        validate_pod_template("StatefulSet", new, old, errors);
    }
    validate_stateful_fields(spec, errors);
    // A negative limit of revisions keeps all of them.
    validate_counts(new, &["replicas", "minReadySeconds"], errors);
    let Some(old) = old else {
        for (field, name) in [
            ("metadata.name", text(new, "/metadata/name")),
            ("spec.serviceName", text(spec, "/serviceName")),
        ] {
            if !name.is_empty() {
                report_invalid(field, name, validate_dns1123_label(name), errors);
            }
        }
        return;
    };
    let fixed = |spec: &Value| {
        let mut fixed = spec.as_object().cloned().unwrap_or_default();
        fixed.retain(|field, _| !MUTABLE_STATEFUL_FIELDS.contains(&field.as_str()));
        fixed
    };
    if fixed(spec) != fixed(get(old, "/spec")) {
        errors.push(FieldError::forbidden("spec", "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"));
    }
}

pub(super) fn validate_controller_revision(
    new: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    if !has(new, "/data") {
        errors.push(FieldError::required("data", "data is mandatory"));
    }
    validate_non_negative(new, "revision", errors);
    if let Some(old) = old {
        validate_immutable_field(new, old, "data", errors);
    }
}

/// Validates a ReplicationController, whose selector is a map of labels.
pub(super) fn validate_replication_controller(
    new: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
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
        validate_pod_template("ReplicationController", new, old, errors);
    } else {
        errors.push(FieldError::required("spec.template", ""));
    }
}

pub(super) fn validate_pod_template_object(
    new: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    validate_template_metadata("template", get(new, "/template"), errors);
    pods::validate("template.spec", new, old, pods::RESTART_POLICIES, errors);
}

fn validate_counts(object: &Value, fields: &[&str], errors: &mut Vec<FieldError>) {
    for field in fields {
        validate_non_negative(object, &format!("spec.{field}"), errors);
    }
}

fn validate_immutable_selector(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    if let Some(old) = old {
        validate_immutable_field(new, old, "spec.selector", errors);
    }
}

/// Validates the pod template of a workload that restarts its pods always.
fn validate_pod_template(
    owner: &str,
    object: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    let template = get(object, "/spec/template");
    validate_template_metadata("spec.template", template, errors);
    if has(template, "/spec/activeDeadlineSeconds") {
        errors.push(FieldError::forbidden(
            "spec.template.spec.activeDeadlineSeconds",
            &format!("activeDeadlineSeconds in {owner} is not Supported"),
        ));
    }
    pods::validate("spec.template.spec", object, old, ALWAYS, errors);
}

pub(super) fn validate_template_metadata(
    field: &str,
    template: &Value,
    errors: &mut Vec<FieldError>,
) {
    let labels = get(template, "/metadata/labels");
    metadata::validate_labels(&format!("{field}.labels"), labels, errors);
    let annotations = get(template, "/metadata/annotations");
    metadata::validate_annotations(&format!("{field}.annotations"), annotations, errors);
}

/// Requires a selector that selects something, and the pods of the template.
fn validate_selector(
    kind: &str,
    object: &Value,
    values: SelectorValues,
    errors: &mut Vec<FieldError>,
) {
    let field = "spec.selector";
    let selector = get(object, "/spec/selector");
    let parsed = LabelSelector::from_value(selector);
    // A DaemonSet without a selector only has pods that it does not select.
    if selector.is_null() && kind != "daemonset" {
        errors.push(FieldError::required(field, ""));
    }
    validate_label_selector(field, selector, values, errors);
    if parsed.as_ref().is_ok_and(LabelSelector::is_everything) {
        let detail = format!("empty selector is invalid for {kind}");
        errors.push(FieldError::invalid(field, selector, detail));
    }
    match (&parsed, kind) {
        (Err(_), "deployment") => {
            let detail = "invalid label selector";
            errors.push(FieldError::invalid(field, selector, detail));
        }
        (Err(_), "statefulset") => errors.push(FieldError::invalid(field, selector, "")),
        _ => validate_selector_matches_template(selector, object, errors),
    }
}

/// Requires a selector to select the pods of the template; an invalid one is reported elsewhere.
pub(super) fn validate_selector_matches_template(
    selector: &Value,
    object: &Value,
    errors: &mut Vec<FieldError>,
) {
    let labels = get(object, "/spec/template/metadata/labels");
    let empty = Map::new();
    let map = labels.as_object().unwrap_or(&empty);
    if let Ok(selector) = LabelSelector::from_value(selector)
        && !selector.matches(|key| map.get(key).and_then(Value::as_str))
    {
        errors.push(FieldError::invalid(
            "spec.template.metadata.labels",
            labels,
            "`selector` does not match template `labels`",
        ));
    }
}
