//! Validates `spec.conversion` of a CustomResourceDefinition. Kubernetes reports its fields at
//! their paths of v1beta1.

use std::collections::HashSet;

use machinery::FieldError;
use machinery::names::validate_dns1035_label;
use serde_json::Value;

use crate::unstructured::{get, has, index_path, items, text};
use crate::webhook_fields::validate_client_config;

const STRATEGIES: &[&str] = &["None", "Webhook"];
const CLIENT_CONFIG: &str = "spec.conversion.webhookClientConfig";
const REVIEW_VERSIONS: &str = "spec.conversion.conversionReviewVersions";

pub(super) fn validate(conversion: &Value, errors: &mut Vec<FieldError>) {
    let webhook = get(conversion, "/webhook");
    let config = get(webhook, "/clientConfig");
    let versions = get(webhook, "/conversionReviewVersions");
    match text(conversion, "/strategy") {
        "Webhook" => {
            if config.is_null() {
                let detail = "required when strategy is set to Webhook";
                errors.push(FieldError::required(CLIENT_CONFIG, detail));
            } else {
                validate_client_config(CLIENT_CONFIG, config, errors);
            }
            validate_review_versions(versions, errors);
        }
        strategy => {
            if !strategy.is_empty() && strategy != "None" {
                let field = "spec.conversion.strategy";
                let error = FieldError::not_supported(field, &strategy.into(), STRATEGIES);
                errors.push(error);
            }
            let detail = "should not be set when strategy is not set to Webhook";
            if has(webhook, "/clientConfig") {
                errors.push(FieldError::forbidden(CLIENT_CONFIG, detail));
            }
            if !items(webhook, "/conversionReviewVersions").is_empty() {
                errors.push(FieldError::forbidden(REVIEW_VERSIONS, detail));
            }
        }
    }
}

fn validate_review_versions(versions: &Value, errors: &mut Vec<FieldError>) {
    let all: Vec<&str> = items(versions, "")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    if all.is_empty() {
        errors.push(FieldError::required(REVIEW_VERSIONS, ""));
        return;
    }
    let mut distinct = HashSet::new();
    for (i, version) in all.iter().enumerate() {
        let field = index_path(REVIEW_VERSIONS, i);
        if !distinct.insert(version) {
            let detail = "duplicate version";
            errors.push(FieldError::invalid(field, &(*version).into(), detail));
        } else if let Err(detail) = validate_dns1035_label(version) {
            errors.push(FieldError::invalid(field, &(*version).into(), detail));
        }
    }
    if !all
        .iter()
        .any(|version| matches!(*version, "v1" | "v1beta1"))
    {
        let detail = "must include at least one of v1, v1beta1";
        errors.push(FieldError::invalid(REVIEW_VERSIONS, versions, detail));
    }
}
