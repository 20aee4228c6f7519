//! Serves `external.metrics.k8s.io` of all members: the series of each, with a label that names the
//! cluster. Karmada's adapter has the group and answers that it is not implemented.

use async_trait::async_trait;
use flotilla_http::{
    DynamicGroupProvider, DynamicResourceRequest, DynamicResponse, MemberRead, MemberReply,
};
use karmada_api::well_known_keys::QUERY_FROM_CLUSTER;
use machinery::{Quantity, Status, UserInfo};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::discovery::MemberApiResources;
use super::member_metrics::{MemberMetricsReader, MissingMembers};
use crate::metrics_api::{
    EXTERNAL_METRICS, EXTERNAL_METRICS_VERSION, ExternalMetricPath, external_metric_list,
};

pub(super) struct MemberExternalMetrics {
    reader: MemberMetricsReader,
    api_resources: MemberApiResources,
}

impl MemberExternalMetrics {
    pub(super) fn new(reader: &MemberMetricsReader) -> Self {
        let (group, versions) = (EXTERNAL_METRICS, &[EXTERNAL_METRICS_VERSION]);
        let kind = "ExternalMetricValueList";
        Self {
            reader: reader.clone(),
            api_resources: MemberApiResources::new(reader, group, versions, kind),
        }
    }
}

/// A value of which nothing but the labels is changed.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct ExternalMetricValue {
    metric_name: String,
    #[serde(default)]
    metric_labels: Option<Map<String, Value>>,
    value: Quantity,
    #[serde(flatten)]
    other_fields: Map<String, Value>,
}

#[derive(Deserialize)]
struct ExternalMetricValueList {
    #[serde(default)]
    items: Option<Vec<ExternalMetricValue>>,
}

#[async_trait]
impl DynamicGroupProvider for MemberExternalMetrics {
    async fn api_resources(&self, user: &UserInfo, _: &str) -> Result<DynamicResponse, Status> {
        self.api_resources.get(user).await
    }

    async fn get(&self, request: &DynamicResourceRequest<'_>) -> Result<DynamicResponse, Status> {
        let path = ExternalMetricPath::parse(request)?;
        let segments = path.segments();
        let read = MemberRead {
            segments: &segments,
            query: &[("labelSelector", path.series)],
        };
        let replies = self.reader.read_from_all(request.user, &[read]).await?;
        let (items, warnings) = merge(replies, &path)?;
        Ok(DynamicResponse {
            value: external_metric_list(items),
            warnings,
        })
    }
}

/// The values of all members, in the order of their names, with the warnings.
fn merge(
    replies: Vec<MemberReply>,
    path: &ExternalMetricPath<'_>,
) -> Result<(Vec<Value>, Vec<String>), Status> {
    let mut items = Vec::new();
    let mut has_answer = false;
    let mut missing = MissingMembers::default();
    for MemberReply { cluster, outcome } in replies {
        let values = missing.check_reply(&cluster, outcome, |body| {
            machinery::json::from_slice(body).map_err(|error| error.to_string())
        });
        let Some(ExternalMetricValueList { items: values }) = values else {
            continue;
        };
        has_answer = true;
        for mut value in values.unwrap_or_default() {
            let labels = value.metric_labels.get_or_insert_default();
            labels.insert(QUERY_FROM_CLUSTER.to_owned(), cluster.as_str().into());
            items.push(json!(value));
        }
    }
    match has_answer {
        true => Ok((items, missing.into_warnings())),
        false => Err(missing.into_failure(path.not_found())),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const PATH: ExternalMetricPath<'static> = ExternalMetricPath {
        namespace: "shop",
        metric: "queue",
        series: "",
    };

    fn reply(cluster: &str, outcome: Result<Value, Status>) -> MemberReply {
        MemberReply {
            cluster: cluster.to_owned(),
            outcome: outcome.map(|value| Bytes::from(value.to_string())),
        }
    }

    #[test]
    fn values_name_their_cluster() {
        let item = |labels: Value| {
            json!({"metricName": "queue", "metricLabels": labels,
            "timestamp": "2026-01-02T03:04:05Z", "window": 30, "value": "1500m"})
        };
        let replies = vec![
            reply("m1", Ok(json!({"items": [item(json!({"topic": "a"}))]}))),
            reply("m2", Ok(json!({"items": [item(Value::Null)]}))),
            reply("m3", Ok(json!({"items": [{"metricName": "queue"}]}))),
            reply("m4", Ok(json!({}))),
        ];
        let (items, warnings) = merge(replies, &PATH).unwrap();
        assert_eq!(
            items,
            [
                item(json!({"topic": "a", QUERY_FROM_CLUSTER: "m1"})),
                item(json!({QUERY_FROM_CLUSTER: "m2"})),
            ]
        );
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert!(warnings[0].starts_with("cluster(m3): missing field `value`"));
        let empty = merge(vec![reply("m4", Ok(json!({"items": []})))], &PATH);
        assert!(empty.unwrap().0.is_empty());
        let none = merge(vec![], &PATH).unwrap_err();
        let text = "the server could not find the external metric queue";
        assert_eq!((none.code, &*none.message), (404, text));
    }
}
