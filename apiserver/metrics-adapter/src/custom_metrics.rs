//! Serves `custom.metrics.k8s.io` of all members (Karmada's `provider/custommetrics.go`): the metric
//! of an object is the sum over the members that have the object.

use std::collections::BTreeMap;

use async_trait::async_trait;
use flotilla_http::{
    DynamicGroupProvider, DynamicResourceRequest, DynamicResponse, MemberRead, MemberReply,
};
use machinery::{Status, UserInfo};

use super::discovery::MemberApiResources;
use super::member_metrics::{MemberMetricsReader, MissingMembers};
use crate::metrics_api::{
    CUSTOM_METRICS, CUSTOM_METRICS_VERSIONS, CustomMetricPath, CustomMetricSelectors,
    CustomMetricValue,
};

pub(super) struct MemberCustomMetrics {
    reader: MemberMetricsReader,
    /// The same in all versions.
    api_resources: MemberApiResources,
}

impl MemberCustomMetrics {
    pub(super) fn new(reader: &MemberMetricsReader) -> Self {
        let (group, versions) = (CUSTOM_METRICS, &CUSTOM_METRICS_VERSIONS);
        Self {
            reader: reader.clone(),
            api_resources: MemberApiResources::new(reader, group, versions, "MetricValueList"),
        }
    }
}

#[async_trait]
impl DynamicGroupProvider for MemberCustomMetrics {
    async fn api_resources(&self, user: &UserInfo, _: &str) -> Result<DynamicResponse, Status> {
        self.api_resources.get(user).await
    }

    async fn get(&self, request: &DynamicResourceRequest<'_>) -> Result<DynamicResponse, Status> {
        let path = CustomMetricPath::parse(request)?;
        let selectors = CustomMetricSelectors::parse(request, &path)?;
        let query = [
            ("labelSelector", selectors.objects),
            ("metricLabelSelector", selectors.series),
        ];
        let paths = CUSTOM_METRICS_VERSIONS.map(|version| path.segments(version));
        let reads = paths.each_ref().map(|segments| MemberRead {
            segments,
            query: &query,
        });
        let replies = self.reader.read_from_all(request.user, &reads).await?;
        let (values, warnings) = merge(replies, &path)?;
        Ok(DynamicResponse {
            value: CustomMetricValue::to_list(request.version, &values),
            warnings,
        })
    }
}

/// Adds the values of each object, by namespace and name; returns them with the warnings.
fn merge(
    replies: Vec<MemberReply>,
    path: &CustomMetricPath<'_>,
) -> Result<(Vec<CustomMetricValue>, Vec<String>), Status> {
    let mut sums: BTreeMap<(String, String), CustomMetricValue> = BTreeMap::new();
    let mut missing = MissingMembers::default();
    for MemberReply { cluster, outcome } in replies {
        let values = missing.check_reply(&cluster, outcome, |body| {
            CustomMetricValue::parse_list(body).map_err(|error| error.to_string())
        });
        for value in values.unwrap_or_default() {
            match sums.get_mut(&value.object_key()) {
                Some(sum) => add(sum, &value),
                None => _ = sums.insert(value.object_key(), value),
            }
        }
    }
    match sums.is_empty() {
        true => Err(missing.into_failure(path.not_found())),
        false => Ok((sums.into_values().collect(), missing.into_warnings())),
    }
}

/// A sum is as old as its oldest value, and measured over the longest window.
fn add(sum: &mut CustomMetricValue, other: &CustomMetricValue) {
    sum.value += other.value;
    sum.timestamp = match (sum.timestamp, other.timestamp) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    };
    sum.window_seconds = sum.window_seconds.max(other.window_seconds);
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::{Value, json};

    use super::*;

    const PATH: CustomMetricPath<'static> = CustomMetricPath {
        namespace: "shop",
        resource: "pods",
        name: "*",
        metric: "requests",
    };

    fn reply(cluster: &str, outcome: Result<Value, Status>) -> MemberReply {
        MemberReply {
            cluster: cluster.to_owned(),
            outcome: outcome.map(|value| Bytes::from(value.to_string())),
        }
    }

    fn object(name: &str) -> Value {
        json!({"kind": "Pod", "apiVersion": "/v1", "namespace": "shop", "name": name})
    }

    fn absent() -> Status {
        Status::failure(404, "NotFound", "the server could not find the metric")
    }

    fn unserved() -> Status {
        Status::failure(404, "", "the cluster answered with 404 Not Found")
    }

    #[test]
    fn the_values_of_an_object_are_added_in_both_versions() {
        let (a, b) = (object("a"), object("b"));
        let item = |object: &Value, value: &str, at: &str| {
            json!({"describedObject": object,
            "metric": {"name": "requests", "selector": null}, "timestamp": at, "value": value})
        };
        let first = json!({"items": [
            item(&b, "5", "2026-01-02T03:04:05Z"), item(&a, "1500m", "2026-01-02T03:04:05Z")]});
        let second = json!({"items": [{"describedObject": a, "metricName": "requests",
            "selector": null, "timestamp": "2026-01-02T03:04:00Z", "window": 30, "value": "2"}]});
        let replies = vec![
            reply("m1", Ok(first)),
            reply("m2", Ok(second)),
            reply("m3", Err(absent())),
            reply("m4", Err(unserved())),
            reply("m5", Ok(json!({"items": [{"describedObject": a}]}))),
            reply("m6", Ok(json!({"items": null}))),
        ];
        let (values, warnings) = merge(replies, &PATH).unwrap();
        assert_eq!(warnings.len(), 2, "{warnings:?}");
        assert_eq!(warnings[0], "cluster(m4): metrics API not available");
        assert!(warnings[1].starts_with("cluster(m5): missing field `value`"));
        assert_eq!(
            CustomMetricValue::to_list("v1beta2", &values),
            json!({"kind": "MetricValueList", "apiVersion": "custom.metrics.k8s.io/v1beta2",
                "metadata": {}, "items": [
                {"describedObject": a, "metric": {"name": "requests", "selector": null},
                 "timestamp": "2026-01-02T03:04:00Z", "windowSeconds": 30, "value": "3500m"},
                {"describedObject": b, "metric": {"name": "requests", "selector": null},
                 "timestamp": "2026-01-02T03:04:05Z", "value": "5"}]})
        );
        let list = CustomMetricValue::to_list("v1beta1", &values);
        assert_eq!(
            list["items"][0],
            json!({"describedObject": a, "metricName": "requests", "selector": null,
                "timestamp": "2026-01-02T03:04:00Z", "window": 30, "value": "3500m"})
        );
    }

    #[test]
    fn without_values_the_metric_is_unknown_or_absent() {
        let get = |replies| merge(replies, &PATH).unwrap_err();
        let not_found = "the server could not find the metric requests for pods";
        for replies in [
            vec![],
            vec![reply("m1", Err(absent())), reply("m2", Err(unserved()))],
        ] {
            let status = get(replies);
            assert_eq!((status.code, &*status.message), (404, not_found));
        }
        let silent = Status::unavailable("no answer within 5 s");
        let status = get(vec![reply("m1", Err(absent())), reply("m2", Err(silent))]);
        assert_eq!(
            (status.code, &*status.message),
            (503, "cluster(m2): no answer within 5 s")
        );
    }
}
