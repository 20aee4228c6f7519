//! Computes from ResourceRegistries and Clusters which resources of which members are cached.

use std::collections::BTreeMap;

use karmada_api::{Cluster, ResourceRegistry};
use machinery::names::split_api_version;
use machinery::{Gvk, Gvr, Object};

use crate::member_resource::NamespaceScope;

/// A resource that a ResourceRegistry selects, and where it is cached.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SelectedResource {
    pub(crate) kind: Gvk,
    pub(crate) clusters: BTreeMap<String, NamespaceScope>,
}

pub(crate) type SelectedResources = BTreeMap<Gvr, SelectedResource>;

/// The resources of all registries. A resource without a cluster that is Ready and serves it
/// is there, too.
pub(crate) fn selected_resources(registries: &[Object], clusters: &[Object]) -> SelectedResources {
    let decoded = clusters.iter().filter_map(|object| {
        let cluster = object.decode::<Cluster>().ok()?;
        Some((object, cluster))
    });
    let clusters: Vec<_> = decoded.collect();
    let mut selected = SelectedResources::new();
    for registry in registries.iter().filter(|r| !r.meta().deleting) {
        let Ok(registry) = registry.decode::<ResourceRegistry>() else {
            continue;
        };
        let matcher = registry.spec.target_cluster.matcher();
        for selector in &registry.spec.resource_selectors {
            let (group, version) = split_api_version(&selector.api_version);
            let kind = Gvk::new(group, version, &selector.kind);
            if let Some(kind_info) = openapi::catalog().kind(&kind) {
                resource_of(&mut selected, kind_info.gvr.clone(), &kind);
            }
            for (object, cluster) in &clusters {
                let Some(name) = served_name(cluster, &selector.api_version, &selector.kind) else {
                    continue;
                };
                let gvr = Gvr::new(group, version, name);
                let resource = resource_of(&mut selected, gvr, &kind);
                let is_available = cluster.is_ready() && !object.meta().deleting;
                if is_available && matcher.matches(&cluster.attributes(object)) {
                    let clusters = &mut resource.clusters;
                    let scope = clusters.entry(object.name().to_owned());
                    scope
                        .or_insert_with(NamespaceScope::empty)
                        .add(&selector.namespace);
                }
            }
        }
    }
    selected
}

fn resource_of<'a>(
    selected: &'a mut SelectedResources,
    gvr: Gvr,
    kind: &Gvk,
) -> &'a mut SelectedResource {
    selected.entry(gvr).or_insert_with(|| SelectedResource {
        kind: kind.clone(),
        clusters: BTreeMap::new(),
    })
}

/// The plural name under which a cluster serves a kind.
fn served_name<'a>(cluster: &'a Cluster, api_version: &str, kind: &str) -> Option<&'a str> {
    let enablements = cluster.status.api_enablements.iter();
    enablements
        .filter(|e| e.group_version == api_version)
        .flat_map(|e| &e.resources)
        .find(|r| r.kind == kind)
        .map(|r| r.name.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cluster(name: &str, ready: &str, region: &str, widgets: bool) -> Value {
        let mut enabled =
            vec![json!({"groupVersion": "v1", "resources": [{"name": "pods", "kind": "Pod"}]})];
        if widgets {
            enabled.push(json!({"groupVersion": "example.org/v1",
                "resources": [{"name": "widgets", "kind": "Widget"}]}));
        }
        json!({"metadata": {"name": name}, "spec": {"region": region},
            "status": {"apiEnablements": enabled,
                "conditions": [{"type": "Ready", "status": ready}]}})
    }

    fn registry(target: Value, selectors: Value) -> Value {
        json!({"metadata": {"name": "r"},
            "spec": {"targetCluster": target, "resourceSelectors": selectors}})
    }

    fn show(registries: &[Value], clusters: &[Value]) -> Vec<String> {
        let objects = |values: &[Value]| -> Vec<Object> {
            values
                .iter()
                .map(|v| Object::from_value(v).unwrap())
                .collect()
        };
        let selected = selected_resources(&objects(registries), &objects(clusters));
        let line = |(gvr, resource): (&Gvr, &SelectedResource)| {
            let clusters = resource.clusters.iter().map(|(name, scope)| match scope {
                NamespaceScope::All => name.clone(),
                NamespaceScope::Only(names) => format!("{name}:{names:?}"),
            });
            let clusters = clusters.collect::<Vec<_>>().join(" ");
            format!("{} {} [{clusters}]", gvr.resource, resource.kind.kind)
        };
        selected.iter().map(line).collect()
    }

    // proves: SRC-selected
    #[test]
    fn registries_select_kinds_in_ready_clusters() {
        let mut leaving = cluster("m4", "True", "a", false);
        leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        let clusters = [
            cluster("m1", "True", "a", true),
            cluster("m2", "True", "b", false),
            cluster("m3", "False", "a", true),
            leaving,
        ];
        let pods =
            |namespace: &str| json!({"apiVersion": "v1", "kind": "Pod", "namespace": namespace});
        let widgets = json!({"apiVersion": "example.org/v1", "kind": "Widget"});
        let table = [
            (vec![], vec![]),
            (
                vec![registry(json!({}), json!([pods(""), widgets]))],
                vec!["pods Pod [m1 m2]", "widgets Widget [m1]"],
            ),
            (
                vec![registry(
                    json!({"clusterNames": ["m2", "m3"]}),
                    json!([widgets]),
                )],
                vec!["widgets Widget []"],
            ),
            (
                vec![
                    registry(
                        json!({"clusterNames": ["m1"]}),
                        json!([pods("x"), pods("y")]),
                    ),
                    registry(json!({"clusterNames": ["m2"]}), json!([pods("x")])),
                    registry(json!({"clusterNames": ["m2"]}), json!([pods("")])),
                ],
                vec!["pods Pod [m1:{\"x\", \"y\"} m2]"],
            ),
            (
                vec![
                    registry(json!({"clusterNames": ["m1"]}), json!([pods("x")])),
                    registry(
                        json!({"clusterNames": ["m1"]}),
                        json!([pods("y"), pods("y")]),
                    ),
                ],
                vec!["pods Pod [m1:{\"x\", \"y\"}]"],
            ),
            (
                vec![
                    registry(json!({"clusterNames": ["m1"]}), json!([widgets])),
                    registry(json!({"clusterNames": ["m2"]}), json!([pods("")])),
                ],
                vec!["pods Pod [m2]", "widgets Widget [m1]"],
            ),
            (
                vec![registry(
                    json!({}),
                    json!([{"apiVersion": "v1", "kind": "Unknown"}, {"apiVersion": "a.b.c", "kind": "Pod"}]),
                )],
                vec![],
            ),
        ];
        for (registries, expected) in table {
            assert_eq!(show(&registries, &clusters), expected, "{registries:?}");
        }
        let nowhere = [registry(json!({}), json!([pods("")]))];
        assert_eq!(show(&nowhere, &[]), ["pods Pod []"]);
    }
}
