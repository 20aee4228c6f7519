//! Adds the audit annotations of webhook calls: annotations that webhooks return, and annotations
//! that say which webhook changed the object with which patch, and whose failure was ignored.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::mutating_call::MutatingCall;
use crate::attributes::AdmissionAttributes;

const MUTATION_PREFIX: &str = "mutation.webhook.admission.k8s.io/";
const PATCH_PREFIX: &str = "patch.webhook.admission.k8s.io/";
const VALIDATION_PREFIX: &str = "validating.webhook.admission.k8s.io/";

#[derive(Serialize)]
struct MutationAnnotation<'a> {
    configuration: &'a str,
    webhook: &'a str,
    mutated: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PatchAnnotation<'a> {
    configuration: &'a str,
    webhook: &'a str,
    patch: Value,
    patch_type: &'a str,
}

impl MutatingCall<'_> {
    fn key(&self, prefix: &str) -> String {
        format!("{prefix}round_{}_index_{}", self.round, self.index)
    }
}

fn add(attributes: &AdmissionAttributes<'_>, key: String, value: String) {
    if let Some(annotations) = attributes.audit_annotations {
        annotations.add(key, value);
    }
}

/// The annotations that a webhook returned.
pub(super) fn annotate_response(
    attributes: &AdmissionAttributes<'_>,
    webhook: &str,
    returned: BTreeMap<String, String>,
) {
    for (key, value) in returned {
        add(attributes, format!("{webhook}/{key}"), value);
    }
}

pub(super) fn annotate_mutation(
    attributes: &AdmissionAttributes<'_>,
    call: &MutatingCall<'_>,
    mutated: bool,
) {
    let Some(annotations) = attributes.audit_annotations else {
        return;
    };
    let annotation = MutationAnnotation {
        configuration: &call.webhook.configuration,
        webhook: &call.webhook.name,
        mutated,
    };
    if let Ok(value) = serde_json::to_string(&annotation) {
        annotations.add(call.key(MUTATION_PREFIX), value);
    }
}

pub(super) fn annotate_patch(
    attributes: &AdmissionAttributes<'_>,
    call: &MutatingCall<'_>,
    patch: Value,
) {
    let Some(annotations) = attributes.audit_annotations else {
        return;
    };
    let annotation = PatchAnnotation {
        configuration: &call.webhook.configuration,
        webhook: &call.webhook.name,
        patch,
        patch_type: "JSONPatch",
    };
    if let Ok(value) = serde_json::to_string(&annotation) {
        annotations.add_request_content(call.key(PATCH_PREFIX), value);
    }
}

/// A mutating webhook failed, and its failures are ignored.
pub(super) fn annotate_ignored_mutating_failure(
    attributes: &AdmissionAttributes<'_>,
    call: &MutatingCall<'_>,
) {
    let key = format!("failed-open.{}", call.key(MUTATION_PREFIX));
    add(attributes, key, call.webhook.name.clone());
}

/// As [`annotate_ignored_mutating_failure`]; `index` counts the validating webhooks that were
/// called.
pub(super) fn annotate_ignored_validating_failure(
    attributes: &AdmissionAttributes<'_>,
    webhook: &str,
    index: usize,
) {
    let key = format!("failed-open.{VALIDATION_PREFIX}round_0_index_{index}");
    add(attributes, key, webhook.to_owned());
}
