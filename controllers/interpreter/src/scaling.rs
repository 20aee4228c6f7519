//! Native rules of PodDisruptionBudget and HorizontalPodAutoscaler, whose status consists of counters
//! that are summed over clusters.

use jiff::Timestamp;
use machinery::Object;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::native::{ClusterStatus, Error, Rules, count, counter, member, parse};

pub(crate) struct Budget;
pub(crate) struct Autoscaler;

const BUDGET: [&str; 4] = [
    "disruptionsAllowed",
    "currentHealthy",
    "desiredHealthy",
    "expectedPods",
];

#[derive(Deserialize)]
struct Observed {
    status: Option<Map<String, Value>>,
}

fn sum<'a>(all: impl Iterator<Item = &'a Map<String, Value>>, field: &str) -> i64 {
    all.map(|status| counter(status, field))
        .fold(0, i64::saturating_add)
}

/// The statuses that clusters reported, with the names of the clusters.
type Reported<'a> = Vec<(&'a str, Map<String, Value>)>;

/// Fails when a counter is not an integer; the error names the cluster.
fn reported<'a>(items: &[ClusterStatus<'a>], counters: &[&str]) -> Result<Reported<'a>, Error> {
    let mut all = Vec::with_capacity(items.len());
    for item in items {
        if let Some(status) = item.status {
            let status = member(item, status)?;
            for counter in counters {
                count(item, &status, counter)?;
            }
            all.push((item.cluster, status));
        }
    }
    Ok(all)
}

/// The summed counters of a budget. The Go type encodes them even when they are zero.
fn budget<'a>(all: impl Iterator<Item = &'a Map<String, Value>> + Clone) -> Map<String, Value> {
    let summed = |field: &str| (field.to_owned(), sum(all.clone(), field).into());
    BUDGET.into_iter().map(summed).collect()
}

fn disrupted(status: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    let pods = status.get("disruptedPods").and_then(Value::as_object);
    pods.into_iter().flatten()
}

impl Rules for Budget {
    fn healthy(&self, observed: &Object) -> Result<Option<bool>, Error> {
        let budget: Observed = parse(observed, "health")?;
        let status = budget.status.unwrap_or_default();
        let healthy = counter(&status, "currentHealthy") >= counter(&status, "desiredHealthy");
        Ok(Some(healthy))
    }

    fn reflect(&self, observed: &Object) -> Result<Option<Value>, Error> {
        let observed: Observed = parse(observed, "status")?;
        Ok(observed.status.map(|status| {
            let mut out = budget(std::iter::once(&status));
            let pods: Map<_, _> = disrupted(&status)
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect();
            if !pods.is_empty() {
                out.insert("disruptedPods".into(), pods.into());
            }
            Value::Object(out)
        }))
    }

    fn aggregate(
        &self,
        _template: &Object,
        items: &[ClusterStatus<'_>],
        _now: Timestamp,
    ) -> Result<Option<Value>, Error> {
        let all = reported(items, &BUDGET)?;
        let mut out = budget(all.iter().map(|(_, status)| status));
        let mut pods = Map::new();
        for (cluster, status) in &all {
            // Pods in different clusters may have the same name.
            let named =
                disrupted(status).map(|(pod, time)| (format!("{cluster}/{pod}"), time.clone()));
            pods.extend(named);
        }
        if !pods.is_empty() {
            out.insert("disruptedPods".into(), pods.into());
        }
        Ok(Some(Value::Object(out)))
    }
}

/// Encoded like the Go type: `currentMetrics` is present (null) although it is not collected.
fn autoscaler<'a>(all: impl Iterator<Item = &'a Map<String, Value>> + Clone) -> Value {
    let mut out = Map::new();
    let current = sum(all.clone(), "currentReplicas");
    if current != 0 {
        out.insert("currentReplicas".into(), current.into());
    }
    out.insert("desiredReplicas".into(), sum(all, "desiredReplicas").into());
    out.insert("currentMetrics".into(), Value::Null);
    Value::Object(out)
}

impl Rules for Autoscaler {
    fn reflect(&self, observed: &Object) -> Result<Option<Value>, Error> {
        let observed: Observed = parse(observed, "status")?;
        Ok(observed.status.map(|s| autoscaler(std::iter::once(&s))))
    }

    fn aggregate(
        &self,
        _template: &Object,
        items: &[ClusterStatus<'_>],
        _now: Timestamp,
    ) -> Result<Option<Value>, Error> {
        let all = reported(items, &["currentReplicas", "desiredReplicas"])?;
        Ok(Some(autoscaler(all.iter().map(|(_, status)| status))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::tests::{aggregated, object};
    use serde_json::json;

    fn budget(current: i64, desired: i64, pods: Value) -> Value {
        json!({"disruptionsAllowed": 1, "currentHealthy": current, "desiredHealthy": desired,
               "expectedPods": 3, "disruptedPods": pods})
    }

    // proves: NAT-budget
    #[test]
    fn budgets_add_up() {
        let bare = json!({"metadata": {"name": "b"}});
        let observed = json!({"metadata": {"name": "b"}, "status": {"observedGeneration": 2,
            "currentHealthy": 2, "desiredHealthy": 2, "conditions": [], "disruptedPods": {}}});
        assert_eq!(
            Budget.reflect(&object(observed.clone())).unwrap(),
            Some(
                json!({"disruptionsAllowed": 0, "currentHealthy": 2, "desiredHealthy": 2, "expectedPods": 0})
            )
        );
        assert_eq!(Budget.reflect(&object(bare.clone())).unwrap(), None);
        assert_eq!(Budget.healthy(&object(observed)).unwrap(), Some(true));
        let short = json!({"metadata": {"name": "b"}, "status": {"currentHealthy": 1, "desiredHealthy": 2}});
        assert_eq!(Budget.healthy(&object(short)).unwrap(), Some(false));
        let items = [
            budget(2, 1, json!({"p": "t1"})),
            Value::Null,
            budget(3, 2, json!({"p": "t2"})),
        ];
        assert_eq!(
            aggregated(&Budget, &bare, &items),
            Some(
                json!({"disruptionsAllowed": 2, "currentHealthy": 5, "desiredHealthy": 3, "expectedPods": 6,
                "disruptedPods": {"a/p": "t1", "c/p": "t2"}})
            )
        );
        assert_eq!(
            aggregated(&Budget, &bare, &[]),
            Some(
                json!({"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0})
            )
        );
    }

    // proves: NAT-hpa
    #[test]
    fn replicas_of_autoscalers_add_up() {
        let observed = json!({"metadata": {"name": "h"}, "status": {"currentReplicas": 2, "desiredReplicas": 3,
            "currentMetrics": [{"type": "Resource"}], "conditions": [{"type": "AbleToScale"}]}});
        let one = Autoscaler.reflect(&object(observed)).unwrap().unwrap();
        assert_eq!(
            one,
            json!({"currentReplicas": 2, "desiredReplicas": 3, "currentMetrics": null})
        );
        let bare = json!({"metadata": {"name": "h"}});
        assert_eq!(Autoscaler.reflect(&object(bare.clone())).unwrap(), None);
        assert_eq!(
            aggregated(&Autoscaler, &bare, &[one.clone(), Value::Null, one]),
            Some(json!({"currentReplicas": 4, "desiredReplicas": 6, "currentMetrics": null}))
        );
        assert_eq!(
            aggregated(&Autoscaler, &bare, &[]),
            Some(json!({"desiredReplicas": 0, "currentMetrics": null}))
        );
    }
}
