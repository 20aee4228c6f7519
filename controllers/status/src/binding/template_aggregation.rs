//! Aggregates the reported statuses of a binding into the status of its template.

use std::collections::BTreeSet;

use interpreter::{Error, ResourceInterpreter};
use jiff::Timestamp;
use karmada_api::binding::AggregatedStatusItem;
use machinery::{Gvk, Object};
use serde_json::Value;

/// An aggregation of reported statuses into that of a template.
pub(super) struct TemplateAggregation<'a> {
    pub(super) kind: &'a Gvk,
    pub(super) template: &'a Object,
    /// The clusters to which the template is scheduled.
    pub(super) scheduled: BTreeSet<&'a str>,
    pub(super) now: Timestamp,
}

impl TemplateAggregation<'_> {
    /// The status of the template. If the interpreter fails, the items that it can aggregate alone
    /// count, with the error beside: one member must not keep the others from being reported.
    pub(super) async fn run_usable(
        &self,
        interpreter: &ResourceInterpreter,
        items: &[AggregatedStatusItem],
    ) -> Result<(Option<Value>, Option<String>), Error> {
        let error = match self.run(interpreter, items).await {
            Err(error) if !error.is_retryable() => error,
            aggregated => return aggregated.map(|status| (status, None)),
        };
        let mut usable = Vec::new();
        for item in items {
            let alone = std::slice::from_ref(item);
            if self.run(interpreter, alone).await.is_ok() {
                usable.push(item.clone());
            }
        }
        if usable.is_empty() || usable.len() == items.len() {
            return Err(error);
        }
        let status = self.run(interpreter, &usable).await?;
        Ok((status, Some(error.to_string())))
    }

    async fn run(
        &self,
        interpreter: &ResourceInterpreter,
        items: &[AggregatedStatusItem],
    ) -> Result<Option<Value>, Error> {
        let (kind, template) = (self.kind, self.template);
        interpreter
            .aggregate_status(kind, template, items, &self.scheduled, self.now)
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // proves: STA-untrusted
    #[tokio::test]
    async fn a_member_that_cannot_be_aggregated_keeps_no_other_back() {
        let template = json!({"metadata": {"name": "web", "namespace": "n", "generation": 1}, "spec": {"replicas": 2}});
        let template = Object::from_value(&template).unwrap();
        let aggregation = TemplateAggregation {
            kind: &Gvk::new("apps", "v1", "Deployment"),
            template: &template,
            scheduled: BTreeSet::from(["a", "b"]),
            now: Timestamp::UNIX_EPOCH,
        };
        let item = |cluster: &str, status: Value| AggregatedStatusItem {
            cluster_name: cluster.into(),
            status: Some(status),
            applied: true,
            ..AggregatedStatusItem::default()
        };
        let lie = item("b", json!({"replicas": "many"}));
        let items = [item("a", json!({"replicas": 2})), lie.clone()];
        let interpreter = ResourceInterpreter::default();
        let aggregated = aggregation.run_usable(&interpreter, &items).await;
        let (status, left_out) = aggregated.unwrap();
        assert_eq!(status.unwrap()["replicas"], 2);
        assert!(left_out.is_some());
        let alone = aggregation.run_usable(&interpreter, &[lie]).await;
        assert!(alone.is_err());
    }
}
