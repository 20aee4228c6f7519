//! Fills the rules of ClusterRoles that have an `aggregationRule` with the rules of the
//! roles it selects (Kubernetes' `clusterroleaggregation_controller.go`).

use std::sync::Arc;

use client::{Api, Error, Informer, ResourcePath, WriteOptions};
use flotilla_runtime::{ControllerContext, ReconcileAction, Workqueue, run_workers};
use machinery::{Gvr, LabelSelector, Object};
use serde_json::Value;

use crate::shutdown_waits::wait_for_cache_sync;

static CLUSTER_ROLES: Gvr = Gvr::from_static("rbac.authorization.k8s.io", "v1", "clusterroles");
const FIELD_MANAGER: &str = "clusterrole-aggregation-controller";
/// A substring of an encoded role that has an aggregation rule.
const AGGREGATION_FIELD: &[u8] = b"\"aggregationRule\"";

struct ClusterRoleAggregationController {
    api: Arc<dyn Api>,
    roles: Informer,
}

pub(crate) fn start(context: &ControllerContext) {
    let roles = context.informer(&CLUSTER_ROLES);
    let controller = Arc::new(ClusterRoleAggregationController {
        api: Arc::clone(&context.control_plane),
        roles,
    });
    let queue: Workqueue<String> = Workqueue::new();
    let (wake, of) = (queue.clone(), Arc::downgrade(&controller));
    controller.roles.add_event_handler(move |change| {
        let Some(controller) = of.upgrade() else {
            return;
        };
        // Any role may be selected by any other, before or after the change.
        for role in controller.roles.list() {
            if may_aggregate(&role) {
                wake.add_event(role.name().to_owned(), change);
            }
        }
    });
    let workers = context.tasks.clone();
    context.tasks.spawn(async move {
        if !wait_for_cache_sync(&workers, [&controller.roles]).await {
            return;
        }
        run_workers(
            &workers,
            "clusterroleaggregation",
            &queue,
            1,
            move |name: String| {
                let controller = Arc::clone(&controller);
                async move { controller.reconcile(&name).await }
            },
        );
    });
}

fn may_aggregate(role: &Object) -> bool {
    let bytes = role.bytes();
    let mut windows = bytes.windows(AGGREGATION_FIELD.len());
    windows.any(|window| window == AGGREGATION_FIELD)
}

impl ClusterRoleAggregationController {
    async fn reconcile(&self, name: &str) -> Result<ReconcileAction, Error> {
        let Some(role) = self.roles.get("", name) else {
            return Ok(ReconcileAction::Done);
        };
        let mut value = role.value()?;
        let Some(rules) = aggregated_rules(&value, &self.roles.list())? else {
            return Ok(ReconcileAction::Done);
        };
        value["rules"] = rules;
        let options = WriteOptions {
            field_manager: FIELD_MANAGER.into(),
            ..WriteOptions::default()
        };
        let at = ResourcePath::object(&CLUSTER_ROLES, "", name);
        match self.api.update(at, value.into(), &options).await {
            // The event of the other write, or of the deletion, comes.
            Err(e) if !e.is_not_found() && !e.is_conflict() => Err(e),
            _ => Ok(ReconcileAction::Done),
        }
    }
}

/// The rules of the selected roles in the order of their names, without repetitions; `None`
/// if the role has these rules already, or does not aggregate.
fn aggregated_rules(role: &Value, all: &[Object]) -> Result<Option<Value>, Error> {
    let selectors = role["aggregationRule"]["clusterRoleSelectors"].as_array();
    let Some(selectors) = selectors.filter(|_| role["metadata"]["deletionTimestamp"].is_null())
    else {
        return Ok(None);
    };
    let mut rules: Vec<Value> = Vec::new();
    for selector in selectors {
        let selector = LabelSelector::from_value(selector).map_err(Error::Protocol)?;
        let mut selected: Vec<&Object> = all
            .iter()
            .filter(|other| role["metadata"]["name"] != other.name())
            .filter(|other| selector.matches(|key| other.meta().label(key)))
            .collect();
        selected.sort_unstable_by_key(|other| other.name());
        for other in selected {
            let other = other.value()?;
            for rule in other["rules"].as_array().into_iter().flatten() {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    let current = role["rules"].as_array().map_or(&[] as &[_], Vec::as_slice);
    Ok((current != rules).then(|| rules.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rule(resource: &str) -> Value {
        json!({"apiGroups": [""], "resources": [resource], "verbs": ["get"]})
    }

    fn role(name: &str, labels: Value, rules: Value) -> Object {
        let role = json!({"metadata": {"name": name, "labels": labels}, "rules": rules});
        Object::from_value(&role).unwrap()
    }

    fn aggregated(rules: Value) -> Value {
        json!({"metadata": {"name": "sum"}, "rules": rules, "aggregationRule": {
            "clusterRoleSelectors": [{"matchLabels": {"to": "sum"}},
                {"matchExpressions": [{"key": "also", "operator": "Exists"}]}]}})
    }

    #[test]
    fn the_rules_of_selected_roles_are_gathered_in_order() {
        let all = [
            role("z", json!({"to": "sum"}), json!([rule("a"), rule("b")])),
            role("y", json!({"to": "sum"}), json!([rule("b"), rule("c")])),
            role("x", json!({"also": ""}), json!([rule("d"), rule("a")])),
            role("other", json!({"to": "another"}), json!([rule("e")])),
            role("sum", json!({"to": "sum"}), json!([rule("f")])),
            role("empty", json!({"to": "sum"}), Value::Null),
        ];
        let sum = json!([rule("b"), rule("c"), rule("a"), rule("d")]);
        for before in [Value::Null, json!([]), json!([rule("f")])] {
            let got = aggregated_rules(&aggregated(before), &all).unwrap();
            assert_eq!(got.as_ref(), Some(&sum));
        }
        assert_eq!(aggregated_rules(&aggregated(sum), &all).unwrap(), None);
        // A role that selects nothing grants nothing.
        let got = aggregated_rules(&aggregated(json!([rule("f")])), &all[3..]).unwrap();
        assert_eq!(got, Some(json!([])));
        let plain = json!({"metadata": {"name": "plain"}, "rules": [rule("f")]});
        assert_eq!(aggregated_rules(&plain, &all).unwrap(), None);
    }
}
