//! Third-party rules of OpenKruise's workloads, which count replicas like the native workloads.

use serde_json::Value;

use super::collected_statuses::CollectedStatuses;
use super::json_map::{
    Error, JsonMap, list_at, required_number, required_value, set_spec_field, string_at, value_at,
    values_equal,
};
use super::observed_generation::{
    MissingStatusPolicy, copy_status_fields_with_generations, update_observed_generation,
};
use super::pod_templates::{pod_template_dependencies_at, replicas_at};
use super::{AggregationInput, StatusAggregation, ThirdPartyKindRules, reset_status};

const OBSERVED_GENERATION: &[&str] = &["observedGeneration"];

const CLONE_SET_COUNTERS: &[&str] = &[
    "replicas",
    "updatedReplicas",
    "readyReplicas",
    "availableReplicas",
    "updatedReadyReplicas",
    "expectedUpdatedReplicas",
];
const CLONE_SET_STRING_FIELDS: &[&str] = &["updateRevision", "currentRevision", "labelSelector"];

pub(super) static CLONE_SET: ThirdPartyKindRules = ThirdPartyKindRules {
    interpret_health: Some(is_healthy),
    reflect_status: Some(|observed| {
        copy_status_fields_with_generations(
            observed,
            &[
                CLONE_SET_COUNTERS,
                CLONE_SET_STRING_FIELDS,
                OBSERVED_GENERATION,
            ],
        )
    }),
    aggregate_status: Some(StatusAggregation {
        defaults_generations: true,
        without_items: |status, generation| {
            reset_status(status, generation, CLONE_SET_COUNTERS, &[])
        },
        ..StatusAggregation::new(|status, input| {
            update_observed_generation(
                status,
                input.generation,
                &input.items,
                MissingStatusPolicy::CountsAsZero,
            );
            sum_counters(status, &input.items, CLONE_SET_COUNTERS)?;
            set_last_strings(status, &input.items, CLONE_SET_STRING_FIELDS);
            Ok(())
        })
    }),
    ..REPLICATED_RULES
};

const STATEFUL_SET_COUNTERS: &[&str] = &[
    "replicas",
    "readyReplicas",
    "currentReplicas",
    "updatedReplicas",
    "availableReplicas",
    "updatedReadyReplicas",
];
const REVISIONS: &[&str] = &["updateRevision", "currentRevision"];

pub(super) static STATEFUL_SET: ThirdPartyKindRules = ThirdPartyKindRules {
    interpret_health: Some(is_healthy),
    reflect_status: Some(|observed| {
        copy_status_fields_with_generations(
            observed,
            &[STATEFUL_SET_COUNTERS, REVISIONS, OBSERVED_GENERATION],
        )
    }),
    aggregate_status: Some(StatusAggregation {
        defaults_generations: true,
        without_items: |status, generation| {
            reset_status(status, generation, STATEFUL_SET_COUNTERS, REVISIONS);
        },
        ..StatusAggregation::new(|status, input| {
            update_observed_generation(
                status,
                input.generation,
                &input.items,
                MissingStatusPolicy::CountsAsZero,
            );
            sum_counters(status, &input.items, STATEFUL_SET_COUNTERS)?;
            set_last_strings(status, &input.items, REVISIONS);
            Ok(())
        })
    }),
    ..REPLICATED_RULES
};

const UNITED_COUNTERS: &[&str] = &[
    "replicas",
    "updatedReplicas",
    "readyReplicas",
    "availableReplicas",
    "unavailableReplicas",
];

pub(super) static UNITED_DEPLOYMENT: ThirdPartyKindRules = ThirdPartyKindRules {
    interpret_health: Some(|observed| {
        let parts = ["/status", "/metadata", "/spec"];
        let complete = parts.iter().all(|part| value_at(observed, part).is_some());
        Ok(complete && is_healthy(observed)?)
    }),
    reflect_status: Some(|observed| {
        copy_status_fields_with_generations(
            observed,
            &[UNITED_COUNTERS, OBSERVED_GENERATION, &["conditions"]],
        )
    }),
    aggregate_status: Some(StatusAggregation {
        defaults_generations: true,
        without_items: |status, generation| reset_status(status, generation, UNITED_COUNTERS, &[]),
        ..StatusAggregation::new(aggregate_united_deployment)
    }),
    ..REPLICATED_RULES
};

const DAEMON_COUNTERS: &[&str] = &[
    "currentNumberScheduled",
    "numberMisscheduled",
    "desiredNumberScheduled",
    "numberReady",
    "updatedNumberScheduled",
    "numberAvailable",
    "numberUnavailable",
];
const DAEMON_SET_HASH: &str = "daemonSetHash";

pub(super) static DAEMON_SET: ThirdPartyKindRules = ThirdPartyKindRules {
    interpret_health: Some(|observed| {
        Ok(is_generation_observed(observed)?
            && is_at_least(
                observed,
                "/status/updatedNumberScheduled",
                "/status/desiredNumberScheduled",
            )?
            && is_at_least(
                observed,
                "/status/numberAvailable",
                "/status/updatedNumberScheduled",
            )?)
    }),
    reflect_status: Some(|observed| {
        copy_status_fields_with_generations(
            observed,
            &[DAEMON_COUNTERS, OBSERVED_GENERATION, &[DAEMON_SET_HASH]],
        )
    }),
    aggregate_status: Some(StatusAggregation {
        defaults_generations: true,
        without_items: |status, generation| {
            reset_status(status, generation, DAEMON_COUNTERS, &[]);
            status.insert(DAEMON_SET_HASH.into(), 0.into());
        },
        ..StatusAggregation::new(|status, input| {
            update_observed_generation(
                status,
                input.generation,
                &input.items,
                MissingStatusPolicy::CountsAsZero,
            );
            sum_counters(status, &input.items, DAEMON_COUNTERS)?;
            let hash = input.items.last_non_empty("/daemonSetHash").cloned();
            // The number 0 where no cluster reports a hash, as in Karmada's rule.
            status.insert(DAEMON_SET_HASH.into(), hash.unwrap_or_else(|| 0.into()));
            Ok(())
        })
    }),
    dependencies: Some(|object| pod_template_dependencies_at(object, "/spec/template")),
    ..ThirdPartyKindRules::NONE
};

/// The rules that all kinds with `spec.replicas` share.
const REPLICATED_RULES: ThirdPartyKindRules = ThirdPartyKindRules {
    replicas: Some(|object| replicas_at(object, "/spec/replicas", None)),
    revise_replica: Some(|copy, replicas| set_spec_field(copy, "replicas", replicas.into())),
    dependencies: Some(|object| pod_template_dependencies_at(object, "/spec/template")),
    ..ThirdPartyKindRules::NONE
};

pub(super) fn sum_counters(
    status: &mut JsonMap,
    items: &CollectedStatuses<'_>,
    fields: &[&str],
) -> Result<(), Error> {
    for field in fields {
        status.insert((*field).to_owned(), items.sum(&format!("/{field}"))?);
    }
    Ok(())
}

pub(super) fn set_last_strings(
    status: &mut JsonMap,
    items: &CollectedStatuses<'_>,
    fields: &[&str],
) {
    for field in fields {
        let last = items.last_non_empty(&format!("/{field}")).cloned();
        status.insert((*field).to_owned(), last.unwrap_or_else(|| "".into()));
    }
}

fn is_generation_observed(observed: &Value) -> Result<bool, Error> {
    required_value(observed, "/status", "an object")?;
    let observed_generation = value_at(observed, "/status/observedGeneration");
    Ok(values_equal(
        observed_generation,
        value_at(observed, "/metadata/generation"),
    ))
}

fn is_at_least(observed: &Value, these: &str, those: &str) -> Result<bool, Error> {
    Ok(required_number(observed, these)? >= required_number(observed, those)?)
}

fn is_healthy(observed: &Value) -> Result<bool, Error> {
    let updated = "/status/updatedReplicas";
    if !is_generation_observed(observed)? {
        return Ok(false);
    }
    if value_at(observed, "/spec/replicas").is_some()
        && !is_at_least(observed, updated, "/spec/replicas")?
    {
        return Ok(false);
    }
    is_at_least(observed, "/status/availableReplicas", updated)
}

fn aggregate_united_deployment(
    status: &mut JsonMap,
    input: &AggregationInput<'_>,
) -> Result<(), Error> {
    update_observed_generation(
        status,
        input.generation,
        &input.items,
        MissingStatusPolicy::NeverUpToDate,
    );
    sum_counters(status, &input.items, UNITED_COUNTERS)?;
    let mut latest: Vec<&Value> = Vec::new();
    for (_, reported) in input.items.reported() {
        for condition in list_at(reported, "/conditions") {
            let kind = string_at(condition, "/type");
            match latest.iter_mut().find(|c| string_at(c, "/type") == kind) {
                Some(older) => *older = condition,
                None => latest.push(condition),
            }
        }
    }
    if !latest.is_empty() {
        let latest: Vec<Value> = latest.into_iter().cloned().collect();
        status.insert("conditions".into(), latest.into());
    }
    Ok(())
}
