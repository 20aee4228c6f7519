//! Tests of the merge of a manifest into the object that a member has.

use machinery::{Gvk, Object};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::compare::{UpdateMode, update_of};
use crate::field_managers::FieldManagers;
use crate::list_keys::schema_of;
use crate::member_merge::RemovalRule;

/// The leaves of the objects that are tested: a field, or one of an element of `list`.
const LEAVES: [&str; 9] = [
    "/a",
    "/b/x",
    "/b/y",
    "/c/m/p",
    "/c/m/q",
    "/list/1/v",
    "/list/1/w",
    "/list/2/v",
    "/list/2/w",
];

fn leaves(mask: u16) -> impl Iterator<Item = &'static str> {
    let all = LEAVES.into_iter().enumerate();
    all.filter(move |(at, _)| mask & (1 << at) != 0)
        .map(|(_, leaf)| leaf)
}

/// An object that has some of the leaves.
fn object(mask: u16, value: &str) -> Value {
    let mut tree = json!({});
    let mut list: Vec<Value> = Vec::new();
    for leaf in leaves(mask) {
        if let Some(element) = leaf.strip_prefix("/list/") {
            let (name, field) = element.split_once('/').unwrap();
            if list.last().is_none_or(|last| last["name"] != name) {
                list.push(json!({"name": name}));
            }
            list.last_mut().unwrap()[field] = value.into();
            continue;
        }
        let mut at = &mut tree;
        for part in leaf[1..].split('/') {
            at = &mut at[part];
        }
        *at = value.into();
    }
    if !list.is_empty() {
        tree["list"] = list.into();
    }
    json!({ "spec": tree })
}

/// The leaves of an object and their values.
fn leaves_of(object: &Value) -> Vec<(String, Value)> {
    let spec = &object["spec"];
    let value = |leaf: &str| match leaf.strip_prefix("/list/") {
        None => spec.pointer(leaf).cloned(),
        Some(element) => {
            let (name, field) = element.split_once('/').unwrap();
            let items = spec["list"].as_array()?;
            items
                .iter()
                .find(|i| i["name"] == name)?
                .get(field)
                .cloned()
        }
    };
    let leaves = LEAVES
        .iter()
        .filter_map(|leaf| Some(((*leaf).to_owned(), value(leaf)?)));
    leaves.collect()
}

/// The `fieldsV1` of a manager of some leaves.
fn fields(mask: u16) -> Value {
    let mut tree = json!({});
    for leaf in leaves(mask) {
        let mut at = &mut tree["f:spec"];
        for (depth, part) in leaf[1..].split('/').enumerate() {
            let is_element = depth == 1 && leaf.starts_with("/list/");
            let key = match is_element {
                true => format!("k:{{\"name\":\"{part}\"}}"),
                false => format!("f:{part}"),
            };
            at = &mut at[key];
            if is_element {
                at["f:name"] = json!({});
            }
        }
        *at = json!({});
    }
    tree
}

fn managers(entries: &[(&str, Value)]) -> FieldManagers {
    let entries: Vec<Value> = entries
        .iter()
        .map(|(manager, fields)| json!({"manager": manager, "fieldsV1": fields}))
        .collect();
    let object = json!({"metadata": {"name": "a", "managedFields": entries}}).to_string();
    let object = Object::from_json(object.into()).unwrap();
    FieldManagers::from_object(&object).unwrap()
}

fn merged(desired: &Value, observed: &Value, kind: Option<Gvk>, rule: &RemovalRule<'_>) -> Value {
    let schema = kind.and_then(|kind| schema_of(&kind));
    let update = update_of(
        desired.clone(),
        observed,
        schema.as_ref(),
        UpdateMode::Edit,
        rule,
    );
    update.body.unwrap_or_else(|| observed.clone())
}

proptest! {
    /// The fields of the manifest win, fields that only this control plane set go, all others stay.
    // proves: EXE-three-way
    #[test]
    fn an_edit_removes_only_what_this_control_plane_set(
        before in 0u16..512, after in 0u16..512, member in 0u16..512, shared in 0u16..512,
    ) {
        let observed = object(before | member, "observed");
        let (own_fields, member_fields) = (fields(before & !(member & !shared)), fields(member));
        let managers = managers(&[("flotilla", own_fields), ("member", member_fields)]);
        let rule = RemovalRule::Owned(managers.owners());
        let result = merged(&object(after, "desired"), &observed, None, &rule);
        let expected: Vec<(String, Value)> = LEAVES
            .into_iter()
            .enumerate()
            .filter_map(|(at, leaf)| {
                let has = |mask: u16| mask & (1 << at) != 0;
                let value = if has(after) { "desired" } else if has(member) { "observed" } else { return None };
                Some((leaf.to_owned(), value.into()))
            })
            .collect();
        prop_assert_eq!(leaves_of(&result), expected, "{}", result);
    }

    /// A repair removes nothing, and one without a record of managers replaces all.
    #[test]
    fn the_other_rules_keep_all_or_nothing(observed in 0u16..512, after in 0u16..512) {
        let (observed, desired) = (object(observed, "observed"), object(after, "desired"));
        let replacement = merged(&desired, &observed, None, &RemovalRule::Everything);
        prop_assert_eq!(leaves_of(&replacement), leaves_of(&desired));
        let pod = Gvk::from_static("", "v1", "Pod");
        let kept = merged(&desired, &observed, Some(pod), &RemovalRule::Nothing);
        for (leaf, value) in leaves_of(&desired) {
            prop_assert!(leaves_of(&kept).contains(&(leaf, value)));
        }
    }
}

fn deployment(spec: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": spec})
}

fn repaired(desired: Value, observed: Value) -> Value {
    let kind = Gvk::from_static("apps", "v1", "Deployment");
    let body = merged(
        &deployment(desired),
        &deployment(observed),
        Some(kind),
        &RemovalRule::Nothing,
    );
    body["spec"].clone()
}

#[test]
fn alternatives_are_replaced_together() {
    let rolling = json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}});
    let recreate = json!({"strategy": {"type": "Recreate"}});
    assert_eq!(repaired(recreate.clone(), rolling.clone()), recreate);
    let plain = json!({"strategy": {"type": "RollingUpdate"}});
    assert_eq!(repaired(plain, rolling.clone()), rolling);
    let pod = |volumes: Value| json!({"template": {"spec": {"volumes": volumes}}});
    let member_volume = json!({"name": "t", "emptyDir": {}});
    let observed = pod(json!([{"name": "v", "emptyDir": {}}, member_volume]));
    let claim = json!({"name": "v", "persistentVolumeClaim": {"claimName": "c"}});
    let desired = pod(json!([claim]));
    assert_eq!(
        repaired(desired, observed),
        pod(json!([claim, member_volume]))
    );
}

// proves: EXE-list-keys
#[test]
fn elements_that_a_member_adds_stay() {
    let pod = |containers: Value| json!({"template": {"spec": {"containers": containers}}});
    let sidecar = json!({"name": "sidecar", "image": "s"});
    let observed =
        pod(json!([sidecar, {"name": "c", "image": "old", "imagePullPolicy": "Always"}]));
    let desired = pod(json!([{"name": "c", "image": "new"}]));
    let both = json!({"name": "c", "image": "new", "imagePullPolicy": "Always"});
    assert_eq!(repaired(desired, observed), pod(json!([both, sidecar])));
}

#[test]
fn a_value_without_parts_is_replaced_or_kept_whole() {
    let role = Gvk::from_static("rbac.authorization.k8s.io", "v1", "ClusterRole");
    let object = |rules: Value| json!({"rules": rules});
    let (one, more) = (
        json!([{"verbs": ["get"]}]),
        json!([{"verbs": ["get"], "x": 1}]),
    );
    let check = |desired: &Value, observed: &Value, rule: &RemovalRule<'_>, expected: &Value| {
        let body = merged(
            &object(desired.clone()),
            &object(observed.clone()),
            Some(role.clone()),
            rule,
        );
        assert_eq!(&body["rules"], expected, "{desired} {observed}");
    };
    check(&one, &more, &RemovalRule::Nothing, &more);
    check(&one, &more, &RemovalRule::Everything, &one);
    let own_managers = managers(&[("flotilla", json!({"f:rules": {}}))]);
    check(
        &one,
        &more,
        &RemovalRule::Owned(own_managers.owners()),
        &one,
    );
    let other_managers = managers(&[("other", json!({"f:rules": {}}))]);
    check(
        &one,
        &more,
        &RemovalRule::Owned(other_managers.owners()),
        &more,
    );
    check(
        &more,
        &one,
        &RemovalRule::Owned(other_managers.owners()),
        &more,
    );
    let nothing = Value::from(Map::new());
    let keeps = update_of(
        nothing,
        &object(one),
        None,
        UpdateMode::Edit,
        &RemovalRule::Nothing,
    );
    assert!(keeps.keeps_member_fields && keeps.body.is_none());
}
