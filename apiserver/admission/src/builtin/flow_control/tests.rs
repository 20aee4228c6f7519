//! One rejected object per rule, by the field paths of the errors; the bootstrap objects
//! are valid.

use machinery::Gvk;
use serde_json::{Value, json};

use super::bootstrap_objects;
use crate::builtin::validate_builtin;

/// Changes the spec of a valid object.
type SpecChange = fn(&mut Value);

fn error_fields(object: &Value) -> Vec<String> {
    let kind = object["kind"].as_str().unwrap();
    let gvk = Gvk::from_api_version("flowcontrol.apiserver.k8s.io/v1", kind);
    let errors = validate_builtin(&gvk, object, None);
    errors.into_iter().map(|e| e.field).collect()
}

#[test]
fn bootstrap_objects_are_valid_and_have_their_defaults() {
    let objects = bootstrap_objects();
    assert_eq!(objects.len(), 19);
    for object in objects {
        assert_eq!(error_fields(&object), Vec::<String>::new(), "{object}");
        let kind = object["kind"].as_str().unwrap();
        let gvk = Gvk::from_api_version("flowcontrol.apiserver.k8s.io/v1", kind);
        let mut defaulted = object.clone();
        openapi::defaults::apply(&gvk, &mut defaulted);
        assert_eq!(defaulted["spec"], object["spec"]);
    }
}

#[test]
fn mandatory_specs_are_fixed() {
    let bootstrap_object = |kind: &str, name: &str| {
        let is_named = |o: &Value| o["kind"] == kind && o["metadata"]["name"] == name;
        bootstrap_objects().into_iter().find(is_named).unwrap()
    };
    let mut schema = bootstrap_object("FlowSchema", "catch-all");
    schema["spec"]["matchingPrecedence"] = 9999.into();
    assert_eq!(error_fields(&schema), ["spec"]);
    let mut level = bootstrap_object("PriorityLevelConfiguration", "catch-all");
    level["spec"]["limited"]["nominalConcurrencyShares"] = 6.into();
    assert_eq!(error_fields(&level), ["spec"]);
    let mut exempt = bootstrap_object("PriorityLevelConfiguration", "exempt");
    exempt["spec"]["exempt"]["lendablePercent"] = 20.into();
    assert_eq!(error_fields(&exempt), Vec::<String>::new());
    exempt["spec"]["exempt"]["lendablePercent"] = 120.into();
    assert_eq!(error_fields(&exempt), ["spec.exempt.lendablePercent"]);
}

#[test]
fn flow_schemas_are_validated() {
    let schema = |change: fn(&mut Value)| {
        let mut object = json!({"kind": "FlowSchema", "metadata": {"name": "a"}, "spec": {
            "priorityLevelConfiguration": {"name": "l"}, "matchingPrecedence": 5,
            "rules": [{"subjects": [{"kind": "User", "user": {"name": "u"}}],
                "resourceRules": [{"verbs": ["get"], "apiGroups": [""],
                    "resources": ["pods"], "namespaces": ["*"]}],
                "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/a/*"]}]}]}});
        change(&mut object["spec"]);
        error_fields(&object)
    };
    let resource = "spec.rules[0].resourceRules[0]";
    let url = "spec.rules[0].nonResourceRules[0]";
    let subject = "spec.rules[0].subjects[0]";
    let table: [(SpecChange, &str); 14] = [
        (
            |s| s["matchingPrecedence"] = 1.into(),
            "spec.matchingPrecedence",
        ),
        (
            |s| s["matchingPrecedence"] = 10_001.into(),
            "spec.matchingPrecedence",
        ),
        (
            |s| s["distinguisherMethod"] = json!({"type": "X"}),
            "spec.distinguisherMethod.type",
        ),
        (
            |s| s["priorityLevelConfiguration"]["name"] = "".into(),
            "spec.priorityLevelConfiguration.name",
        ),
        (
            |s| s["rules"][0]["subjects"] = json!([]),
            "spec.rules[0].subjects",
        ),
        (
            |s| s["rules"][0]["subjects"][0] = json!({"kind": "Group", "group": {}}),
            &format!("{subject}.group.name"),
        ),
        (
            |s| s["rules"][0]["subjects"][0]["group"] = json!({"name": "g"}),
            &format!("{subject}.group"),
        ),
        (
            |s| s["rules"][0]["subjects"][0]["kind"] = "X".into(),
            &format!("{subject}.kind"),
        ),
        (
            |s| s["rules"][0]["resourceRules"][0]["verbs"] = json!(["*", "get"]),
            &format!("{resource}.verbs"),
        ),
        (
            |s| s["rules"][0]["resourceRules"][0]["verbs"] = json!(["fly"]),
            &format!("{resource}.verbs"),
        ),
        (
            |s| s["rules"][0]["resourceRules"][0]["namespaces"] = json!([]),
            &format!("{resource}.namespaces"),
        ),
        (
            |s| s["rules"][0]["resourceRules"][0]["resources"] = json!([]),
            &format!("{resource}.resources"),
        ),
        (
            |s| s["rules"][0]["nonResourceRules"][0]["nonResourceURLs"] = json!(["/a*"]),
            &format!("{url}.nonResourceURLs[0]"),
        ),
        (
            |s| s["rules"][0] = json!({"subjects": s["rules"][0]["subjects"]}),
            "spec.rules[0]",
        ),
    ];
    assert_eq!(schema(|_| ()), Vec::<String>::new());
    for (change, field) in table {
        assert_eq!(schema(change), [field]);
    }
}

#[test]
fn priority_levels_are_validated() {
    let level = |change: fn(&mut Value)| {
        let mut object = json!({"kind": "PriorityLevelConfiguration", "metadata": {"name": "a"},
            "spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 0,
                "limitResponse": {"type": "Queue", "queuing": {
                    "queues": 64, "handSize": 6, "queueLengthLimit": 50}}}}});
        change(&mut object["spec"]);
        error_fields(&object)
    };
    let response = "spec.limited.limitResponse";
    let table: [(SpecChange, &str); 9] = [
        (|s| s["limited"] = Value::Null, "spec.limited"),
        (|s| s["exempt"] = json!({}), "spec.exempt"),
        (|s| s["type"] = "X".into(), "spec.type"),
        (
            |s| s["limited"]["nominalConcurrencyShares"] = (-1).into(),
            "spec.limited.nominalConcurrencyShares",
        ),
        (
            |s| s["limited"]["borrowingLimitPercent"] = (-1).into(),
            "spec.limited.borrowingLimitPercent",
        ),
        (
            |s| s["limited"]["limitResponse"]["type"] = "Reject".into(),
            &format!("{response}.queuing"),
        ),
        (
            |s| s["limited"]["limitResponse"]["queuing"]["handSize"] = 65.into(),
            &format!("{response}.queuing.handSize"),
        ),
        (
            |s| s["limited"]["limitResponse"]["queuing"]["handSize"] = 11.into(),
            &format!("{response}.queuing.handSize"),
        ),
        (
            |s| s["limited"]["limitResponse"]["queuing"]["queues"] = 0.into(),
            &format!("{response}.queuing.queues"),
        ),
    ];
    assert_eq!(level(|_| ()), Vec::<String>::new());
    for (change, field) in table {
        assert!(
            level(change).iter().any(|f| f == field),
            "{field}: {:?}",
            level(change)
        );
    }
}
