//! Third-party rules of Flux: HelmRelease, Kustomization, and the sources they are built from.

use karmada_api::DependentObjectReference;
use serde_json::Value;

use super::collected_statuses::{has_true_condition, merged_conditions};
use super::json_map::{
    Error, JsonMap, field_error, json_number, list_at, non_empty_string_at, number_or_zero,
    retain_spec_field, set_or_remove, string_at, value_at,
};
use super::kruise::set_last_strings;
use super::observed_generation::{
    MissingStatusPolicy, copy_status_fields_with_generations, update_observed_generation,
};
use super::pod_templates::core_dependency;
use super::{AggregationInput, StatusAggregation, ThirdPartyKindRules};

const REVISIONS: [&str; 2] = ["lastAttemptedRevision", "lastAppliedRevision"];
const RELEASE_STRING_FIELDS: [&str; 4] = [
    "lastAttemptedRevision",
    "lastAppliedRevision",
    "lastAttemptedValuesChecksum",
    "helmChart",
];
const LAST_RELEASE_REVISION: &str = "lastReleaseRevision";
const FAILURE_COUNTERS: [&str; 3] = ["failures", "upgradeFailures", "installFailures"];
const COMMON_FIELDS: &[&str] = &["conditions", "observedGeneration"];

pub(super) static HELM_RELEASE: ThirdPartyKindRules = ThirdPartyKindRules {
    reflect_status: Some(|observed| {
        copy_status_fields_with_generations(
            observed,
            &[
                COMMON_FIELDS,
                &RELEASE_STRING_FIELDS,
                &[LAST_RELEASE_REVISION],
                &FAILURE_COUNTERS,
            ],
        )
    }),
    aggregate_status: Some(StatusAggregation {
        defaults_generations: true,
        without_items: |status, generation| {
            reset_flux_status(status, generation, &RELEASE_STRING_FIELDS);
            status.insert(LAST_RELEASE_REVISION.into(), "".into());
            for count in FAILURE_COUNTERS {
                status.insert(count.into(), 0.into());
            }
        },
        ..StatusAggregation::new(|status, input| {
            aggregate_conditions(status, input)?;
            copy_last_reported(status, input, &RELEASE_STRING_FIELDS);
            if let Some(last) = input.items.last("/lastReleaseRevision") {
                status.insert(LAST_RELEASE_REVISION.into(), last.clone());
            }
            add_failures(status, input)
        })
    }),
    dependencies: Some(|release| {
        let mut references = service_account_dependencies(release);
        for values in list_at(release, "/spec/valuesFrom") {
            let kind = string_at(values, "/kind").unwrap_or_default();
            if ["Secret", "ConfigMap"].contains(&kind) {
                let name = string_at(values, "/name")
                    .ok_or_else(|| field_error("/spec/valuesFrom", NAMES_EXPECTED))?;
                references.push(core_dependency(release, kind, name));
            }
        }
        add_secret_dependencies(
            release,
            &mut references,
            &["/spec/chart/spec/verify/secretRef", KUBE_CONFIG_SECRET],
        )?;
        Ok(references)
    }),
    ..RECONCILED_RULES
};

pub(super) static KUSTOMIZATION: ThirdPartyKindRules = ThirdPartyKindRules {
    reflect_status: Some(|observed| {
        copy_status_fields_with_generations(observed, &[COMMON_FIELDS, &REVISIONS])
    }),
    aggregate_status: Some(StatusAggregation {
        defaults_generations: true,
        without_items: |status, generation| reset_flux_status(status, generation, &REVISIONS),
        ..StatusAggregation::new(|status, input| {
            aggregate_conditions(status, input)?;
            copy_last_reported(status, input, &REVISIONS);
            Ok(())
        })
    }),
    dependencies: Some(|kustomization| {
        let mut references = service_account_dependencies(kustomization);
        add_secret_dependencies(
            kustomization,
            &mut references,
            &["/spec/decryption/secretRef", KUBE_CONFIG_SECRET],
        )?;
        Ok(references)
    }),
    ..RECONCILED_RULES
};

const KUBE_CONFIG_SECRET: &str = "/spec/kubeConfig/secretRef";
const NAMES_EXPECTED: &str = "a name in each of them";

/// The rules that HelmRelease and Kustomization share.
const RECONCILED_RULES: ThirdPartyKindRules = ThirdPartyKindRules {
    interpret_health: Some(|observed| {
        Ok(has_true_condition(
            observed,
            "Ready",
            &["ReconciliationSucceeded"],
        ))
    }),
    retain: Some(|desired, observed| retain_spec_field(desired, observed, "suspend")),
    ..ThirdPartyKindRules::NONE
};

/// The rules that all sources share.
const SOURCE_RULES: ThirdPartyKindRules = ThirdPartyKindRules {
    interpret_health: Some(|observed| Ok(has_true_condition(observed, "Ready", &["Succeeded"]))),
    ..RECONCILED_RULES
};

const SOURCE_FIELDS: &[&str] = &["conditions", "observedGeneration", "artifact"];
const URL: [&str; 1] = ["url"];
const CHART_STRING_FIELDS: [&str; 3] =
    ["observedChartName", "observedSourceArtifactRevision", "url"];

const SECRET_REF: &str = "/spec/secretRef";
const VERIFY_SECRET_REF: &str = "/spec/verify/secretRef";

const SOURCE_AGGREGATION: StatusAggregation = StatusAggregation {
    defaults_generations: true,
    without_items: |status, generation| reset_source_status(status, generation, &URL),
    ..StatusAggregation::new(|status, input| aggregate_source(status, input, &URL))
};

pub(super) static GIT_REPOSITORY: ThirdPartyKindRules = ThirdPartyKindRules {
    reflect_status: Some(|observed| {
        let own = ["observedIgnore", "observedRecurseSubmodules"];
        copy_status_fields_with_generations(observed, &[SOURCE_FIELDS, &own])
    }),
    aggregate_status: Some(StatusAggregation {
        defaults_generations: true,
        without_items: |status, generation| reset_source_status(status, generation, &[]),
        ..StatusAggregation::new(|status, input| aggregate_source(status, input, &[]))
    }),
    dependencies: Some(|source| secret_dependencies(source, &[SECRET_REF, VERIFY_SECRET_REF])),
    ..SOURCE_RULES
};

pub(super) static BUCKET: ThirdPartyKindRules = ThirdPartyKindRules {
    reflect_status: Some(|observed| {
        copy_status_fields_with_generations(observed, &[SOURCE_FIELDS, &URL, &["observedIgnore"]])
    }),
    aggregate_status: Some(SOURCE_AGGREGATION),
    dependencies: Some(|source| secret_dependencies(source, &[SECRET_REF])),
    ..SOURCE_RULES
};

pub(super) static HELM_REPOSITORY: ThirdPartyKindRules = ThirdPartyKindRules {
    reflect_status: Some(|observed| {
        copy_status_fields_with_generations(observed, &[SOURCE_FIELDS, &URL])
    }),
    aggregate_status: Some(SOURCE_AGGREGATION),
    dependencies: Some(|source| secret_dependencies(source, &[SECRET_REF])),
    ..SOURCE_RULES
};

pub(super) static OCI_REPOSITORY: ThirdPartyKindRules = ThirdPartyKindRules {
    reflect_status: Some(|observed| {
        let own = ["observedIgnore", "observedLayerSelector"];
        copy_status_fields_with_generations(observed, &[SOURCE_FIELDS, &URL, &own])
    }),
    aggregate_status: Some(SOURCE_AGGREGATION),
    dependencies: Some(|source| {
        let mut references = service_account_dependencies(source);
        add_secret_dependencies(
            source,
            &mut references,
            &[SECRET_REF, VERIFY_SECRET_REF, "/spec/certSecretRef"],
        )?;
        Ok(references)
    }),
    ..SOURCE_RULES
};

pub(super) static HELM_CHART: ThirdPartyKindRules = ThirdPartyKindRules {
    interpret_health: Some(|observed| {
        Ok(has_true_condition(
            observed,
            "Ready",
            &["Succeeded", "ChartPullSucceeded"],
        ))
    }),
    // Without observedGeneration, as in Karmada's rule.
    reflect_status: Some(|observed| {
        copy_status_fields_with_generations(
            observed,
            &[&["conditions", "artifact"], &CHART_STRING_FIELDS],
        )
    }),
    aggregate_status: Some(StatusAggregation {
        defaults_generations: true,
        without_items: |status, generation| {
            reset_source_status(status, generation, &CHART_STRING_FIELDS)
        },
        ..StatusAggregation::new(|status, input| {
            aggregate_source(status, input, &CHART_STRING_FIELDS)
        })
    }),
    dependencies: Some(|source| secret_dependencies(source, &[VERIFY_SECRET_REF])),
    ..SOURCE_RULES
};

fn reset_flux_status(status: &mut JsonMap, generation: &Value, texts: &[&str]) {
    super::reset_status(status, generation, &[], texts);
    status.remove("conditions");
}

fn reset_source_status(status: &mut JsonMap, generation: &Value, texts: &[&str]) {
    reset_flux_status(status, generation, texts);
    status.remove("artifact");
}

fn aggregate_source(
    status: &mut JsonMap,
    input: &AggregationInput<'_>,
    texts: &[&str],
) -> Result<(), Error> {
    aggregate_conditions(status, input)?;
    set_or_remove(status, "artifact", input.items.last("/artifact").cloned());
    set_last_strings(status, &input.items, texts);
    Ok(())
}

fn aggregate_conditions(status: &mut JsonMap, input: &AggregationInput<'_>) -> Result<(), Error> {
    update_observed_generation(
        status,
        input.generation,
        &input.items,
        MissingStatusPolicy::CountsAsZero,
    );
    status.insert("conditions".into(), merged_conditions(&input.items)?);
    Ok(())
}

/// Each field as the last cluster reports it; unchanged when none does.
fn copy_last_reported(status: &mut JsonMap, input: &AggregationInput<'_>, fields: &[&str]) {
    for field in fields {
        if let Some(last) = input.items.last_non_empty(&format!("/{field}")) {
            status.insert((*field).to_owned(), last.clone());
        }
    }
}

/// Adds the failures to those already in the template's status, if it has the counter, as Karmada's
/// rule does.
fn add_failures(status: &mut JsonMap, input: &AggregationInput<'_>) -> Result<(), Error> {
    for count in FAILURE_COUNTERS {
        let Some(so_far) = status.get(count).filter(|n| !n.is_null()) else {
            continue;
        };
        let so_far = so_far
            .as_f64()
            .ok_or_else(|| field_error(count, "a number"))?;
        let mut sum = so_far;
        for (_, reported) in input.items.reported() {
            sum += number_or_zero(reported, &format!("/{count}"))?;
        }
        status.insert(count.into(), json_number(sum));
    }
    Ok(())
}

fn service_account_dependencies(object: &Value) -> Vec<DependentObjectReference> {
    let account = non_empty_string_at(object, "/spec/serviceAccountName");
    let account = account.map(|name| core_dependency(object, "ServiceAccount", name));
    account.into_iter().collect()
}

fn secret_dependencies(
    object: &Value,
    pointers: &[&str],
) -> Result<Vec<DependentObjectReference>, Error> {
    let mut dependencies = Vec::new();
    add_secret_dependencies(object, &mut dependencies, pointers)?;
    Ok(dependencies)
}

fn add_secret_dependencies(
    object: &Value,
    dependencies: &mut Vec<DependentObjectReference>,
    pointers: &[&str],
) -> Result<(), Error> {
    for pointer in pointers {
        let Some(reference) = value_at(object, pointer) else {
            continue;
        };
        let name = string_at(reference, "/name").ok_or_else(|| field_error(pointer, "a name"))?;
        if !name.is_empty() {
            dependencies.push(core_dependency(object, "Secret", name));
        }
    }
    Ok(())
}
