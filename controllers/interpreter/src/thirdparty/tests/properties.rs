//! Properties of the third-party rules that hold for any object.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

/// Fields that rules read, so that they look inside the generated objects.
const FIELDS: [&str; 38] = [
    "spec",
    "status",
    "metadata",
    "annotations",
    "generation",
    "observedGeneration",
    "conditions",
    "type",
    "reason",
    "message",
    "template",
    "replicas",
    "parallelism",
    "suspend",
    "containers",
    "resources",
    "requests",
    "cpu",
    "memory",
    "volumes",
    "secretRef",
    "name",
    "tasks",
    "state",
    "phase",
    "taskStatusCount",
    "runningDuration",
    "containerState",
    "running",
    "jobManager",
    "resource",
    "rayClusterConfig",
    "rayClusterSpec",
    "headGroupSpec",
    "workerGroupSpecs",
    "desiredCPU",
    "driver",
    "applicationState",
];

fn json_values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        select(vec![
            "", "Ready", "True", "Failed", "1", "1.5g", "2Gi", "1h3m", "-1"
        ])
        .prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 96, 8, |inner| {
        let name = select(&FIELDS[..]).prop_map(str::to_owned);
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            btree_map(name, inner, 0..12)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn has_no_nulls(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Array(items) => items.iter().all(has_no_nulls),
        Value::Object(fields) => fields.values().all(has_no_nulls),
        _ => true,
    }
}

proptest! {
    #[test]
    fn no_object_panics_or_gives_nulls(object in json_values(), other in json_values(), status in json_values(), more in json_values()) {
        let now = NOW.parse().unwrap();
        let items = [status, more];
        let items = [0, 1].map(|at| CollectedStatus::new("a", Some(&items[at])));
        for (kind, _) in THIRD_PARTY_RULES {
            let kind = gvk(kind);
            let _ = ThirdPartyInterpreter.interpret_health(&kind, &object);
            let _ = ThirdPartyInterpreter.replicas(&kind, &object);
            let _ = ThirdPartyInterpreter.components(&kind, &object);
            let _ = ThirdPartyInterpreter.dependencies(&kind, &object);
            let reflected = ThirdPartyInterpreter.reflect_status(&kind, &object);
            prop_assert!(reflected.is_none_or(|status| has_no_nulls(&status)));
            for result in [ThirdPartyInterpreter.revise_replica(&kind, &object, i64::MIN), ThirdPartyInterpreter.retain(&kind, &object, &other)] {
                prop_assert!(result.ok().flatten().is_none_or(|result| result.is_null() || has_no_nulls(&result)));
            }
            for items in [None, Some(&items[..]), Some(&items[..1]), Some(&[])] {
                let result = ThirdPartyInterpreter.aggregate_status(&kind, &object, items, now).ok().flatten();
                prop_assert!(result.is_none_or(|result| result.is_null() || has_no_nulls(&result)));
            }
        }
    }

    #[test]
    fn sum_of_workers_is_exact(now in vec(0..1000_i64, 1..6), replicas in 1..5000_i64) {
        let groups: Vec<Value> = now.iter().map(|n| json!({"replicas": n})).collect();
        let service = namespaced_object(json!({"rayClusterConfig": {"workerGroupSpecs": groups}}));
        let kind = gvk("ray.io/v1 RayService");
        let revised = ThirdPartyInterpreter.revise_replica(&kind, &service, replicas).unwrap().unwrap();
        let groups = revised["spec"]["rayClusterConfig"]["workerGroupSpecs"].as_array().unwrap();
        let sum: i64 = groups.iter().map(|group| group["replicas"].as_i64().unwrap()).sum();
        prop_assert_eq!(sum, replicas - 1);
    }
}
