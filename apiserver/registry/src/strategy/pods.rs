//! The strategy of Pods: a new Pod is Pending and gets its quality-of-service class
//! (`pkg/apis/core/helper/qos`); one that runs on a node is deleted gracefully.

use machinery::Quantity;
use serde_json::{Value, json};

use super::{DEFAULT_STRATEGY, GenerationPolicy, RestStrategy};

pub(super) static STRATEGY: RestStrategy = RestStrategy {
    generation: GenerationPolicy::Spec,
    create,
    grace_period,
    ..DEFAULT_STRATEGY
};

fn create(new: &mut Value) {
    let class = qos_class(new);
    new["status"] = json!({"phase": "Pending", "qosClass": class});
}

/// Pods that nobody runs are deleted at once (`CheckGracefulDelete`).
fn grace_period(pod: &Value, requested: Option<i64>) -> Option<i64> {
    let is_scheduled = pod["spec"]["nodeName"]
        .as_str()
        .is_some_and(|n| !n.is_empty());
    let is_finished = matches!(
        pod["status"]["phase"].as_str(),
        Some("Failed" | "Succeeded")
    );
    if !is_scheduled || is_finished {
        return Some(0);
    }
    let default = pod["spec"]["terminationGracePeriodSeconds"].as_i64();
    let period = requested.or(default).unwrap_or(0);
    Some(if period < 0 { 1 } else { period })
}

fn non_zero_quantity(amounts: &Value, resource: &str) -> Option<Quantity> {
    Quantity::from_value(amounts.get(resource)?)
        .ok()
        .filter(|q| !q.is_zero())
}

fn qos_class(pod: &Value) -> &'static str {
    let (mut has_any, mut has_all) = (false, true);
    let containers = ["containers", "initContainers"]
        .iter()
        .flat_map(|list| pod["spec"][list].as_array().into_iter().flatten());
    for container in containers {
        let (requests, limits) = (
            &container["resources"]["requests"],
            &container["resources"]["limits"],
        );
        for resource in ["cpu", "memory"] {
            let (request, limit) = (
                non_zero_quantity(requests, resource),
                non_zero_quantity(limits, resource),
            );
            has_any |= request.is_some() || limit.is_some();
            has_all &= limit.is_some() && (request.is_none() || request == limit);
        }
    }
    match (has_any, has_all) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quality_follows_requests_and_limits() {
        let amounts = json!({"cpu": "1", "memory": "1Gi"});
        let table = [
            (json!([{}]), "BestEffort"),
            (
                json!([{"resources": {"requests": {"cpu": "1"}}}]),
                "Burstable",
            ),
            (
                json!([{"resources": {"requests": amounts, "limits": amounts}}]),
                "Guaranteed",
            ),
            (json!([{"resources": {"limits": amounts}}]), "Guaranteed"),
            (json!([{"resources": {"limits": amounts}}, {}]), "Burstable"),
        ];
        for (containers, expected) in table {
            assert_eq!(
                qos_class(&json!({"spec": {"containers": containers}})),
                expected
            );
        }
    }
}
