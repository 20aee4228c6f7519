//! Serves `metrics.k8s.io` of all members: the metrics of their nodes and pods, each with an
//! annotation that names its cluster (Karmada's `provider/resourcemetrics.go`).
//!
//! An object is only returned if no other member has one of its name.

use std::sync::Arc;

use async_trait::async_trait;
use flotilla_http::{MemberRead, MemberReply};
use karmada_api::well_known_keys::QUERY_FROM_CLUSTER;
use machinery::{Gvr, Object, Status};
use registry::{
    ComputedListRequest, ComputedObjects, ComputedResourceProvider, ComputedResourceProviders,
    RegistryReader,
};
use serde::Deserialize;
use serde_json::Value;

use super::member_metrics::{MemberMetricsReader, MissingMembers, NO_METRICS_API};
use crate::metrics_api::RESOURCE_METRICS;

const VERSION: &str = "v1beta1";

/// One of the kinds of metrics.
struct MetricsKind {
    kind: &'static str,
    resource: &'static str,
    /// The measured resource.
    measured: Gvr,
    /// The kind of the measured object as Karmada's error names it.
    noun: &'static str,
}

const KINDS: [MetricsKind; 2] = [
    MetricsKind {
        kind: "PodMetrics",
        resource: "pods",
        measured: Gvr::from_static("", "v1", "pods"),
        noun: "pod",
    },
    MetricsKind {
        kind: "NodeMetrics",
        resource: "nodes",
        measured: Gvr::from_static("", "v1", "nodes"),
        noun: "node",
    },
];

/// Provides one of the kinds.
pub(super) struct MemberResourceMetrics {
    reader: MemberMetricsReader,
    kind: MetricsKind,
}

#[derive(Deserialize)]
struct ItemList {
    items: Option<Vec<Value>>,
}

#[async_trait]
impl ComputedResourceProvider for MemberResourceMetrics {
    async fn list(
        &self,
        _: &dyn RegistryReader,
        request: &ComputedListRequest<'_>,
    ) -> Result<ComputedObjects, Status> {
        let mut segments = vec!["apis", RESOURCE_METRICS, VERSION];
        if !request.namespace.is_empty() {
            segments.extend(["namespaces", request.namespace]);
        }
        segments.push(self.kind.resource);
        if !request.name.is_empty() {
            segments.push(request.name);
        }
        let read = MemberRead {
            segments: &segments,
            query: &[("labelSelector", request.label_selector)],
        };
        let user = &request.context.user;
        let replies = self.reader.read_from_all(user, &[read]).await?;
        self.merge(replies, request.name)
    }
}

impl MemberResourceMetrics {
    /// The providers of all kinds.
    pub(super) fn providers(reader: &MemberMetricsReader) -> ComputedResourceProviders {
        let provider = |kind: MetricsKind| {
            let resource = Gvr::new(RESOURCE_METRICS, VERSION, kind.resource);
            let reader = reader.clone();
            let provider = Self { reader, kind };
            (
                resource,
                Arc::new(provider) as Arc<dyn ComputedResourceProvider>,
            )
        };
        KINDS.map(provider).into()
    }

    /// Merges the objects of all members; `name` is empty for a list.
    fn merge(&self, replies: Vec<MemberReply>, name: &str) -> Result<ComputedObjects, Status> {
        let member_count = replies.len();
        let mut entries: Vec<(Object, String)> = Vec::new();
        let mut missing = MissingMembers::default();
        for MemberReply { cluster, outcome } in replies {
            match outcome {
                Ok(body) => match self.objects(&body, &cluster, name) {
                    Ok(objects) => {
                        entries.extend(objects.into_iter().map(|o| (o, cluster.clone())));
                    }
                    Err(reason) => missing.add(&cluster, &reason),
                },
                Err(status) if !name.is_empty() && is_absent(&status) => {}
                Err(status) => {
                    let reason = match status.code {
                        404 => NO_METRICS_API,
                        _ => &status.message,
                    };
                    missing.add(&cluster, reason);
                }
            }
        }
        let is_known = missing.count() < member_count;
        let warnings = missing.into_warnings();
        if !name.is_empty() {
            self.check_single(&entries, &warnings, name)?;
        } else if member_count > 0 && !is_known {
            return Err(Status::unavailable(warnings.join("; ")));
        }
        entries.sort_by(|(a, a_cluster), (b, b_cluster)| {
            let key = |object: &Object| (object.namespace().to_owned(), object.name().to_owned());
            (key(a), a_cluster).cmp(&(key(b), b_cluster))
        });
        Ok(ComputedObjects {
            objects: entries.into_iter().map(|(object, _)| object).collect(),
            warnings,
        })
    }

    /// An object must be in one member; its absence is known only if all have answered.
    fn check_single(
        &self,
        entries: &[(Object, String)],
        warnings: &[String],
        name: &str,
    ) -> Result<(), Status> {
        let MetricsKind { measured, noun, .. } = &self.kind;
        match (entries.len(), warnings) {
            (0, []) => Err(Status::not_found(measured, name)),
            (0, _) => Err(Status::unavailable(warnings.join("; "))),
            (1, _) => Ok(()),
            _ => {
                let reason = format!("the {noun}({name}) found in more than one clusters");
                Err(Status::conflict(measured, name, reason))
            }
        }
    }

    /// The objects of an answer, with the annotation that names the cluster.
    fn objects(&self, body: &[u8], cluster: &str, name: &str) -> Result<Vec<Object>, String> {
        let values = match name {
            "" => {
                let list: ItemList =
                    machinery::json::from_slice(body).map_err(|e| e.to_string())?;
                list.items.unwrap_or_default()
            }
            _ => vec![machinery::json::from_slice(body).map_err(|e| e.to_string())?],
        };
        let object = |mut value: Value| {
            if !value["metadata"].is_object() {
                return Err("an object without metadata".to_owned());
            }
            value["apiVersion"] = format!("{RESOURCE_METRICS}/{VERSION}").into();
            value["kind"] = self.kind.kind.into();
            if !value["metadata"]["annotations"].is_object() {
                value["metadata"]["annotations"] = Value::Object(Default::default());
            }
            value["metadata"]["annotations"][QUERY_FROM_CLUSTER] = cluster.into();
            Object::from_value(&value).map_err(|e| e.to_string())
        };
        values.into_iter().map(object).collect()
    }
}

/// Whether a member has said that it has no such object, and not that it has no metrics.
fn is_absent(status: &Status) -> bool {
    let named = status.details.as_ref();
    status.code == 404 && named.is_some_and(|details| !details.name.is_empty())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::json;

    use super::super::member_metrics::MAX_NAMED_MEMBERS;
    use super::*;

    fn provider() -> MemberResourceMetrics {
        let [kind, _] = KINDS;
        MemberResourceMetrics {
            reader: MemberMetricsReader::default(),
            kind,
        }
    }

    fn reply(cluster: &str, outcome: Result<Value, Status>) -> MemberReply {
        MemberReply {
            cluster: cluster.to_owned(),
            outcome: outcome.map(|value| Bytes::from(value.to_string())),
        }
    }

    fn pod(name: &str) -> Value {
        json!({"metadata": {"name": name, "namespace": "default"}, "containers": []})
    }

    fn no_metrics() -> Status {
        Status::failure(404, "NotFound", "404 page not found")
    }

    #[test]
    fn lists_are_merged_and_what_is_missing_is_said() {
        let list =
            |names: &[&str]| Ok(json!({"items": names.iter().map(|n| pod(n)).collect::<Vec<_>>()}));
        let merged = provider().merge(
            vec![
                reply("m1", list(&["b", "a"])),
                reply("m2", Err(no_metrics())),
                reply("m3", list(&["a"])),
                reply("m4", Err(Status::unavailable("no answer within 5 s"))),
                reply("m5", Ok(json!({"items": null}))),
                reply("m6", Ok(json!({"items": [{}]}))),
            ],
            "",
        );
        let merged = merged.unwrap();
        let names = merged.objects.iter().map(|object| {
            let value = object.value().unwrap();
            assert_eq!(value["kind"], "PodMetrics");
            let cluster = &value["metadata"]["annotations"][QUERY_FROM_CLUSTER];
            format!("{} {}", object.name(), cluster.as_str().unwrap())
        });
        assert_eq!(names.collect::<Vec<_>>(), ["a m1", "a m3", "b m1"]);
        assert_eq!(
            merged.warnings,
            [
                "cluster(m2): metrics API not available",
                "cluster(m4): no answer within 5 s",
                "cluster(m6): an object without metadata",
            ]
        );
        let mut many: Vec<MemberReply> = (0..200)
            .map(|n| reply(&format!("m{n}"), Err(no_metrics())))
            .collect();
        many.push(reply("has", list(&["a"])));
        let warnings = provider().merge(many, "").unwrap().warnings;
        assert_eq!(warnings.len(), MAX_NAMED_MEMBERS + 1);
        assert_eq!(warnings[10], "190 more clusters have given no metrics");
        assert!(provider().merge(vec![], "").unwrap().objects.is_empty());
        let all_failed = provider().merge(vec![reply("m2", Err(no_metrics()))], "");
        let status = all_failed.err().unwrap();
        assert_eq!(
            (status.code, &*status.message),
            (503, "cluster(m2): metrics API not available")
        );
    }

    #[test]
    fn an_object_must_be_in_one_member() {
        let absent = || {
            let gvr = Gvr::from_static("", "v1", "pods");
            reply("m2", Err(Status::not_found(&gvr, "a")))
        };
        let has = |cluster: &str| reply(cluster, Ok(pod("a")));
        let get = |replies| {
            provider()
                .merge(replies, "a")
                .map(|result| result.objects.len())
        };
        assert_eq!(get(vec![has("m1"), absent()]).unwrap(), 1);
        let failed = || reply("m3", Err(no_metrics()));
        assert_eq!(get(vec![has("m1"), failed()]).unwrap(), 1);
        for (replies, code, message) in [
            (vec![absent()], 404, "pods \"a\" not found"),
            (
                vec![absent(), failed()],
                503,
                "cluster(m3): metrics API not available",
            ),
            (
                vec![has("m1"), has("m2")],
                409,
                "Operation cannot be fulfilled on pods \"a\": the pod(a) found in more than one clusters",
            ),
        ] {
            let status = get(replies).unwrap_err();
            assert_eq!((status.code, &*status.message), (code, message));
        }
    }
}
