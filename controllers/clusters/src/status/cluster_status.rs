//! Builds the status of a Cluster from what was collected. Pure.

use std::collections::BTreeMap;

use client::{ApiResource, ServerResources};
use karmada_api::cluster::{
    AllocatableModeling, ApiEnablement, ClusterApiResource as Served, ResourceModel,
};
use machinery::Quantity;
use members::{ClusterResourceSummary, ResourceModelGradeMinimums};
use serde_json::{Map, Value, json};

use crate::condition::ConditionUpdate;

/// The most kinds of a member that its Cluster lists: what is above would not fit into one object.
const MAX_LISTED_RESOURCES: usize = 10_000;
/// The length of names in a group version, and of a version.
const MAX_NAME_BYTES: usize = 253;

/// The version and the APIs of a member.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MemberApiInfo {
    /// `gitVersion`; empty if it could not be read.
    pub(super) version: String,
    pub(super) enablements: Vec<ApiEnablement>,
    pub(super) completeness: ConditionUpdate,
}

/// The nodes and resources of a member.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct MemberResources {
    pub(super) summary: ClusterResourceSummary,
    /// The number of nodes by grade.
    pub(super) modelings: Vec<AllocatableModeling>,
}

/// The fields to write into the status; `None` leaves the current value.
#[derive(Default)]
pub(super) struct ClusterStatusUpdate<'a> {
    pub(super) ready_condition: Option<&'a ConditionUpdate>,
    pub(super) api_info: Option<&'a MemberApiInfo>,
    pub(super) resources: Option<&'a MemberResources>,
}

impl MemberApiInfo {
    /// `found` is `None` if discovery failed entirely.
    pub(super) fn new(version: Option<String>, discovered: Option<&ServerResources>) -> Self {
        let served = discovered.map_or(&[][..], |f| &f.resources);
        let listed = listed_resources(served);
        let all_listed = listed.len() == served.iter().filter(|r| !is_subresource(r)).count();
        let enablements = api_enablements(&listed);
        let completeness = match discovered {
            Some(discovered)
                if !enablements.is_empty()
                    && discovered.failed_group_versions.is_empty()
                    && all_listed =>
            {
                ConditionUpdate::new(
                    "True",
                    "Complete",
                    "collected complete APIEnablements from the cluster",
                )
            }
            Some(_) if !enablements.is_empty() => {
                let n = enablements.len();
                let text = format!("might collect partial APIEnablements({n}) from the cluster");
                ConditionUpdate::new("False", "Partial", text)
            }
            _ => ConditionUpdate::new(
                "False",
                "Empty",
                "collected empty APIEnablements from the cluster",
            ),
        };
        Self {
            version: version
                .filter(|version| version.len() <= MAX_NAME_BYTES)
                .unwrap_or_default(),
            enablements,
            completeness,
        }
    }
}

fn is_subresource(served: &ApiResource) -> bool {
    served.resource.resource.contains('/')
}

/// The resources of a member with names of a usual length, as many as a Cluster lists.
fn listed_resources(served: &[ApiResource]) -> Vec<&ApiResource> {
    let is_short = |served: &ApiResource| {
        let gvr = &served.resource;
        [&*gvr.group, &*gvr.version, &*gvr.resource, &*served.kind]
            .iter()
            .all(|name| name.len() <= MAX_NAME_BYTES)
    };
    let listed = served
        .iter()
        .filter(|served| !is_subresource(served) && is_short(served));
    listed.take(MAX_LISTED_RESOURCES).collect()
}

/// API enablements sorted by group version, resources by name.
fn api_enablements(listed: &[&ApiResource]) -> Vec<ApiEnablement> {
    let mut groups: BTreeMap<String, BTreeMap<&str, &str>> = BTreeMap::new();
    for served in listed {
        groups
            .entry(served.resource.api_version())
            .or_default()
            .insert(&served.resource.resource, &served.kind);
    }
    let resources = |all: BTreeMap<&str, &str>| {
        all.into_iter()
            .map(|(name, kind)| Served {
                name: name.to_owned(),
                kind: kind.to_owned(),
            })
            .collect()
    };
    groups
        .into_iter()
        .map(|(group_version, all)| ApiEnablement {
            group_version,
            resources: resources(all),
        })
        .collect()
}

/// The minimums of each grade.
pub(super) fn model_grades(of: &[ResourceModel]) -> Vec<ResourceModelGradeMinimums> {
    of.iter()
        .map(|model| ResourceModelGradeMinimums {
            minimums: model
                .ranges
                .iter()
                .map(|r| (r.name.clone(), r.min))
                .collect(),
        })
        .collect()
}

/// Grades with their node counts.
pub(super) fn grade_counts(of: &[ResourceModel], counts: &[i64]) -> Vec<AllocatableModeling> {
    of.iter()
        .zip(counts)
        .map(|(model, count)| AllocatableModeling {
            grade: model.grade,
            count: *count,
        })
        .collect()
}

/// The updated status; `None` if nothing changes.
pub(super) fn updated_status(
    old: &Value,
    findings: &ClusterStatusUpdate<'_>,
    now: &str,
) -> Option<Value> {
    let mut next = match old {
        Value::Object(_) => old.clone(),
        _ => json!({}),
    };
    if let Some(facts) = findings.api_info {
        set_or_remove(
            &mut next,
            "kubernetesVersion",
            facts.version.as_str().into(),
        );
        set_or_remove(&mut next, "apiEnablements", json!(facts.enablements));
        let conditions = &mut next["conditions"];
        facts
            .completeness
            .set_in(conditions, "CompleteAPIEnablements", now);
    }
    if let Some(ready) = findings.ready_condition {
        ready.set_in(&mut next["conditions"], "Ready", now);
    }
    if let Some(MemberResources { summary, modelings }) = findings.resources {
        next["nodeSummary"] =
            json!({"totalNum": summary.total_nodes, "readyNum": summary.ready_nodes});
        let mut sums = json!({});
        for (field, amounts) in [
            ("allocatable", &summary.allocatable),
            ("allocating", &summary.allocating),
            ("allocated", &summary.allocated),
        ] {
            set_or_remove(&mut sums, field, quantities(amounts));
        }
        set_or_remove(&mut sums, "allocatableModelings", json!(modelings));
        next["resourceSummary"] = sums;
    }
    (next != *old).then_some(next)
}

/// Sets a field, or removes it if the value is empty.
fn set_or_remove(object: &mut Value, field: &str, value: Value) {
    let empty = match &value {
        Value::String(s) => s.is_empty(),
        Value::Array(a) => a.is_empty(),
        Value::Object(o) => o.is_empty(),
        _ => false,
    };
    if !empty {
        object[field] = value;
    } else if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}

fn quantities(amounts: &BTreeMap<String, Quantity>) -> Value {
    let texts: Map<String, Value> = amounts
        .iter()
        .map(|(name, amount)| (name.clone(), amount.to_string().into()))
        .collect();
    texts.into()
}

#[cfg(test)]
mod tests {
    use machinery::Gvr;

    use super::*;

    fn api_resource(group: &str, version: &str, name: &str, kind: &str) -> ApiResource {
        ApiResource {
            resource: Gvr::new(group, version, name),
            kind: kind.into(),
            namespaced: true,
            verbs: Vec::new(),
            subresources: Vec::new(),
            categories: Vec::new(),
            short_names: Vec::new(),
        }
    }

    // proves: CST-untrusted
    #[test]
    fn a_member_lists_as_much_as_a_cluster_holds() {
        let name = |i: usize| api_resource("a.example.com", "v1", &format!("r{i}"), "R");
        let mut resources: Vec<_> = (0..=MAX_LISTED_RESOURCES).map(name).collect();
        let long = "x".repeat(MAX_NAME_BYTES + 1);
        resources.insert(0, api_resource("", "v1", &long, "Long"));
        let discovery = ServerResources {
            resources,
            failed_group_versions: Vec::new(),
        };
        let info = MemberApiInfo::new(Some(long.clone()), Some(&discovery));
        assert_eq!(info.version, "");
        assert_eq!(info.completeness.reason, "Partial");
        let listed: usize = info.enablements.iter().map(|e| e.resources.len()).sum();
        assert_eq!(listed, MAX_LISTED_RESOURCES);
        assert!(!json!(info.enablements).to_string().contains(&long));
    }

    // proves: CST-apis, CST-partial
    #[test]
    fn enablements_are_sorted_and_their_completeness_is_reported() {
        let resources = vec![
            api_resource("", "v1", "services", "Service"),
            api_resource("", "v1", "pods/log", "Pod"),
            api_resource("apps", "v1", "deployments", "Deployment"),
            api_resource("", "v1", "pods", "Pod"),
        ];
        let mut discovery = ServerResources {
            resources,
            failed_group_versions: Vec::new(),
        };
        let facts = MemberApiInfo::new(Some("v1.36.0".into()), Some(&discovery));
        assert_eq!(
            json!(facts.enablements),
            json!([
                {"groupVersion": "apps/v1", "resources": [{"name": "deployments", "kind": "Deployment"}]},
                {"groupVersion": "v1", "resources": [{"name": "pods", "kind": "Pod"}, {"name": "services", "kind": "Service"}]},
            ])
        );
        let completeness =
            |facts: &MemberApiInfo| (facts.completeness.status, facts.completeness.reason);
        assert_eq!(completeness(&facts), ("True", "Complete"));
        discovery
            .failed_group_versions
            .push(("metrics.k8s.io/v1".into(), "down".into()));
        let partial = MemberApiInfo::new(None, Some(&discovery));
        assert_eq!(completeness(&partial), ("False", "Partial"));
        assert!(partial.completeness.message.contains("(2)"));
        assert_eq!(
            completeness(&MemberApiInfo::new(None, None)),
            ("False", "Empty")
        );
        let nothing = MemberApiInfo::new(None, Some(&ServerResources::default()));
        assert_eq!(completeness(&nothing), ("False", "Empty"));
    }

    fn quantities_by_name(of: &[(&str, &str)]) -> BTreeMap<String, Quantity> {
        of.iter()
            .map(|(name, text)| ((*name).to_owned(), Quantity::parse(text).unwrap()))
            .collect()
    }

    // proves: CST-foreign, CST-unchanged, CST-lost-apis
    #[test]
    fn only_own_fields_change_and_only_if_they_differ() {
        let old = json!({
            "remedyActions": ["TrafficControl"], "kubernetesVersion": "v1.30.0",
            "conditions": [{"type": "Foreign", "status": "True", "lastTransitionTime": "t0", "reason": "", "message": ""}],
            "resourceSummary": {"allocatable": {"gone": "1"}},
        });
        let facts = MemberApiInfo::new(None, None);
        let ready = ConditionUpdate::new("True", "ClusterReady", "fine");
        let models = [
            ResourceModel {
                grade: 0,
                ranges: Vec::new(),
            },
            ResourceModel {
                grade: 3,
                ranges: Vec::new(),
            },
        ];
        let resources = MemberResources {
            summary: ClusterResourceSummary {
                total_nodes: 2,
                ready_nodes: 1,
                allocatable: quantities_by_name(&[
                    ("cpu", "1500m"),
                    ("memory", "2Gi"),
                    ("pods", "220"),
                ]),
                allocating: BTreeMap::new(),
                allocated: quantities_by_name(&[("pods", "7")]),
            },
            modelings: grade_counts(&models, &[2, 0]),
        };
        let findings = ClusterStatusUpdate {
            ready_condition: Some(&ready),
            api_info: Some(&facts),
            resources: Some(&resources),
        };
        let next = updated_status(&old, &findings, "t1").unwrap();
        assert_eq!(next["remedyActions"], old["remedyActions"]);
        assert_eq!(next["conditions"][0], old["conditions"][0]);
        assert_eq!(next["conditions"][1]["type"], "CompleteAPIEnablements");
        assert_eq!(next["conditions"][2]["lastTransitionTime"], "t1");
        assert_eq!(next.get("kubernetesVersion"), None);
        assert_eq!(next["nodeSummary"], json!({"totalNum": 2, "readyNum": 1}));
        assert_eq!(
            next["resourceSummary"],
            json!({
                "allocatable": {"cpu": "1500m", "memory": "2Gi", "pods": "220"}, "allocated": {"pods": "7"},
                "allocatableModelings": [{"grade": 0, "count": 2}, {"grade": 3, "count": 0}],
            })
        );
        assert_eq!(updated_status(&next, &findings, "t2"), None);
        assert_eq!(
            updated_status(&next, &ClusterStatusUpdate::default(), "t2"),
            None
        );
        assert_eq!(
            updated_status(
                &Value::Null,
                &ClusterStatusUpdate {
                    ready_condition: Some(&ready),
                    ..ClusterStatusUpdate::default()
                },
                "t1"
            )
            .unwrap()["conditions"][0]["status"],
            "True"
        );
    }
}
