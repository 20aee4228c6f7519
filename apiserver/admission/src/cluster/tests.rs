use serde_json::json;

use super::*;

fn cluster(change: Value) -> Value {
    let mut spec = json!({"syncMode": "Push"});
    for (k, v) in change.as_object().unwrap() {
        spec[k] = v.clone();
    }
    json!({"metadata": {"name": "m1"}, "spec": spec})
}

// proves: ADM-cluster-grades
#[test]
fn nine_grades_by_default() {
    let mut new = cluster(json!({}));
    mutate(Operation::Create, &mut new, Timestamp::UNIX_EPOCH);
    let models = &new["spec"]["resourceModels"];
    assert_eq!(models.as_array().unwrap().len(), 9);
    assert_eq!(
        models[1],
        json!({"grade": 1, "ranges": [{"name": "cpu", "min": "1", "max": "2"}, {"name": "memory", "min": "4Gi", "max": "16Gi"}]})
    );
    assert_eq!(
        models[8],
        json!({"grade": 8, "ranges": [
            {"name": "cpu", "min": "128", "max": "9223372036854775807"},
            {"name": "memory", "min": "1Ti", "max": "9223372036854775807"}]})
    );
    assert_eq!(validate(&new), []);
    let mut emptied = cluster(json!({}));
    mutate(Operation::Update, &mut emptied, Timestamp::UNIX_EPOCH);
    assert!(emptied["spec"].get("resourceModels").is_none());
}

// proves: ADM-cluster-canonical
#[test]
fn the_stored_form_is_canonical() {
    let cpu = |min: &str, max: &str| json!([{"name": "cpu", "min": min, "max": max}]);
    let mut new = cluster(json!({
        "zone": "z1",
        "taints": [{"key": "a", "effect": "NoExecute"}, {"key": "b", "effect": "NoSchedule"}],
        "resourceModels": [{"grade": 2, "ranges": cpu("4", "8")}, {"grade": 1, "ranges": cpu("1", "4")}],
    }));
    mutate(Operation::Update, &mut new, Timestamp::UNIX_EPOCH);
    assert_eq!(
        new["spec"],
        json!({"syncMode": "Push", "zones": ["z1"],
            "taints": [{"key": "a", "effect": "NoExecute", "timeAdded": "1970-01-01T00:00:00Z"}, {"key": "b", "effect": "NoSchedule"}],
            "resourceModels": [{"grade": 1, "ranges": cpu("0", "4")}, {"grade": 2, "ranges": cpu("4", "9223372036854775807")}]})
    );
    assert_eq!(validate(&new), []);
}

// proves: ADM-cluster-rules
#[test]
fn clusters_are_judged() {
    const MAX: &str = "9223372036854775807";
    let model = |grade: i64, name: &str, min: &str, max: &str| json!({"grade": grade, "ranges": [{"name": name, "min": min, "max": max}]});
    let models = |list: Vec<Value>| json!({"resourceModels": list});
    let taint = |key: &str, value: &str, effect: &str| json!({"key": key, "value": value, "effect": effect});
    let table = [
        (
            json!({"apiEndpoint": "https://a:6443", "secretRef": {"namespace": "n", "name": "s"}, "proxyURL": "socks5://p:1"}),
            vec![],
        ),
        (json!({"syncMode": "Pushy"}), vec!["spec.syncMode"]),
        (json!({"apiEndpoint": "a:6443"}), vec!["spec.apiEndpoint"]),
        (
            json!({"apiEndpoint": "https://u@a"}),
            vec!["spec.apiEndpoint"],
        ),
        (
            json!({"secretRef": {"namespace": "n"}}),
            vec!["spec.secretRef.name"],
        ),
        (
            json!({"impersonatorSecretRef": {"name": "n"}}),
            vec!["spec.impersonatorSecretRef.namespace"],
        ),
        (json!({"proxyURL": "ftp://p"}), vec!["spec.proxyURL"]),
        (json!({"provider": "a b"}), vec!["spec.provider"]),
        (json!({"region": "a b"}), vec!["spec.region"]),
        (json!({"zones": ["a", "b c"]}), vec!["spec.zones[1]"]),
        (json!({"zone": "a", "zones": ["b"]}), vec!["spec.zone"]),
        (
            json!({"taints": [taint("a", "b", "NoSchedule"), taint("a", "b", "NoExecute")]}),
            vec![],
        ),
        (
            json!({"taints": [taint("a", "b", "PreferNoSchedule")]}),
            vec!["spec.taints[0].effect"],
        ),
        (
            json!({"taints": [taint("a b", "b", "NoExecute")]}),
            vec!["spec.taints[0].key"],
        ),
        (
            json!({"taints": [taint("a", "b c", "NoExecute")]}),
            vec!["spec.taints[0].value"],
        ),
        (
            json!({"taints": [taint("a", "b", "NoExecute"), taint("a", "c", "NoExecute")]}),
            vec!["spec.taints[1]"],
        ),
        (
            models(vec![model(0, "cpu", "0", "1"), model(1, "cpu", "1", MAX)]),
            vec![],
        ),
        (
            models(vec![model(0, "cpu", "0", "1"), model(0, "cpu", "1", MAX)]),
            vec!["spec.resourceModels[1].grade"],
        ),
        (
            models(vec![
                model(0, "cpu", "0", "1"),
                model(1, "memory", "1", MAX),
            ]),
            vec!["spec.resourceModels[1].ranges"],
        ),
        (
            models(vec![model(0, "cpu", "0", "1"), model(1, "cpu", "2", MAX)]),
            vec!["spec.resourceModels[1].ranges[0].min"],
        ),
        (
            models(vec![model(0, "cpu", "1", MAX)]),
            vec!["spec.resourceModels[0].ranges[0].min"],
        ),
        (
            models(vec![model(0, "cpu", "0", "5")]),
            vec!["spec.resourceModels[0].ranges[0].max"],
        ),
        (
            models(vec![model(0, "cpu", "0", "0"), model(1, "cpu", "0", MAX)]),
            vec!["spec.resourceModels[0].ranges[0].max"],
        ),
        (
            models(vec![model(0, "cpu", "x", MAX)]),
            vec!["spec.resourceModels[0].ranges[0].min"],
        ),
    ];
    for (change, expect) in table {
        let errors = validate(&cluster(change.clone()));
        let fields: Vec<&str> = errors.iter().map(|e| e.field.as_str()).collect();
        assert_eq!(fields, expect, "{change}");
    }
    for name in ["M", "a.b", &"a".repeat(49)] {
        let mut named = cluster(json!({}));
        named["metadata"]["name"] = name.into();
        assert_eq!(validate(&named)[0].field, "metadata.name");
    }
}
