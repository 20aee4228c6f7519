//! Third-party rules of Kyverno's Policy and ClusterPolicy.

use serde_json::Map;

use super::collected_statuses::{has_true_condition, merged_conditions};
use super::json_map::{
    Error, JsonMap, field_error, json_number, required_number, set_or_remove, value_at,
};
use super::observed_generation::copy_status_fields;
use super::{AggregationInput, StatusAggregation, ThirdPartyKindRules};

const RULE_TYPES: [&str; 4] = ["validate", "generate", "mutate", "verifyimages"];

pub(super) static POLICY: ThirdPartyKindRules = ThirdPartyKindRules {
    interpret_health: Some(|observed| match value_at(observed, "/status/ready") {
        Some(ready) => {
            let ready = ready.as_bool();
            ready.ok_or_else(|| field_error("/status/ready", "a boolean"))
        }
        None => Ok(has_true_condition(observed, "Ready", &["Succeeded"])),
    }),
    reflect_status: Some(|observed| {
        copy_status_fields(
            observed,
            &[&["ready", "conditions", "autogen", "rulecount"]],
        )
    }),
    aggregate_status: Some(StatusAggregation::new(aggregate)),
    ..ThirdPartyKindRules::NONE
};

fn aggregate(status: &mut JsonMap, input: &AggregationInput<'_>) -> Result<(), Error> {
    status.clear();
    for field in ["autogen", "ready"] {
        set_or_remove(
            status,
            field,
            input.items.last(&format!("/{field}")).cloned(),
        );
    }
    let mut counts = Map::new();
    for rule in RULE_TYPES {
        let mut sum = 0.0;
        for (_, reported) in input.items.reported() {
            if value_at(reported, "/rulecount").is_some() {
                sum += required_number(reported, &format!("/rulecount/{rule}"))?;
            }
        }
        counts.insert(rule.into(), json_number(sum));
    }
    status.insert("rulecount".into(), counts.into());
    status.insert("conditions".into(), merged_conditions(&input.items)?);
    Ok(())
}
