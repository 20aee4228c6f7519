//! Decides whether NoExecute taints are tolerated, builds eviction tasks, and limits the
//! rate of evictions. Pure.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use karmada_api::binding::GracefulEvictionTask;
use karmada_api::cluster::Taint;
use karmada_api::failover::{FailoverBehavior, PURGE_MODE_GRACEFULLY};
use karmada_api::placement::Toleration;
use karmada_api::{FeatureGates, KarmadaFeature, Placement, ResourceBinding, well_known_keys};
use machinery::time::parse;
use tokio::time::Instant;

use crate::failover::options::NoExecuteTaintEvictionPurgeMode;
use crate::failover::state_preservation::{StatePreservationError, preserved_labels};

const NO_EXECUTE: &str = "NoExecute";
/// The interval between evictions if the rate is zero.
const ZERO_RATE_INTERVAL: Duration = Duration::from_secs(1800);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaintDecision {
    /// Tolerated without a time limit, or there is no such taint.
    Tolerated,
    TolerateUntil(Timestamp),
    Evict,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AppliedPlacementError {
    #[error("the applied placement can not be empty")]
    Missing,
    #[error("the applied placement cannot be read: {0}")]
    Invalid(String),
}

pub(super) fn has_no_execute_taint(taints: &[Taint]) -> bool {
    taints.iter().any(|t| t.effect == NO_EXECUTE)
}

/// The tolerations of the last scheduling.
pub(super) fn tolerations(
    binding: &ResourceBinding,
) -> Result<Vec<Toleration>, AppliedPlacementError> {
    let applied = binding
        .metadata
        .annotations
        .get(well_known_keys::APPLIED_PLACEMENT);
    let text = applied
        .filter(|text| !text.is_empty())
        .ok_or(AppliedPlacementError::Missing)?;
    let placement: Placement = machinery::json::from_str(text)
        .map_err(|e| AppliedPlacementError::Invalid(e.to_string()))?;
    Ok(placement.cluster_tolerations)
}

/// Every NoExecute taint must be tolerated by the first toleration that matches it. Of
/// these tolerations, each limits all the taints that it matches; the earliest end
/// counts.
pub(super) fn evaluate_taints(
    taints: &[Taint],
    tolerations: &[Toleration],
    now: Timestamp,
) -> TaintDecision {
    let taints: Vec<&Taint> = taints.iter().filter(|t| t.effect == NO_EXECUTE).collect();
    let mut used: Vec<&Toleration> = Vec::with_capacity(taints.len());
    for taint in &taints {
        match tolerations.iter().find(|t| t.tolerates(taint)) {
            Some(toleration) => used.push(toleration),
            None => return TaintDecision::Evict,
        }
    }
    let ends = used.iter().flat_map(|toleration| {
        let fits = taints.iter().filter(|taint| toleration.tolerates(taint));
        fits.filter_map(|taint| toleration_end(toleration, taint))
    });
    match ends.min() {
        None => TaintDecision::Tolerated,
        Some(end) if end <= now => TaintDecision::Evict,
        Some(end) => TaintDecision::TolerateUntil(end),
    }
}

fn toleration_end(toleration: &Toleration, taint: &Taint) -> Option<Timestamp> {
    let seconds = SignedDuration::from_secs(toleration.toleration_seconds?);
    let added = parse(taint.time_added.as_deref()?).ok()?;
    added.checked_add(seconds).ok()
}

/// Builds an eviction task. It is an error if the state to preserve was not collected
/// yet.
pub(super) fn eviction_task(
    binding: &ResourceBinding,
    cluster: &str,
    gates: FeatureGates,
    mode: NoExecuteTaintEvictionPurgeMode,
) -> Result<GracefulEvictionTask, StatePreservationError> {
    let FailoverBehavior {
        cluster: behavior, ..
    } = binding.spec.failover_behavior();
    let purge_mode = match &behavior {
        None => mode.as_str(),
        Some(behavior) if behavior.purge_mode.is_empty() => PURGE_MODE_GRACEFULLY,
        Some(behavior) => &behavior.purge_mode,
    };
    let rules = behavior
        .as_ref()
        .and_then(|t| t.state_preservation.as_ref());
    let rules = rules.filter(|_| gates.enabled(KarmadaFeature::StatefulFailoverInjection));
    Ok(GracefulEvictionTask {
        from_cluster: cluster.to_owned(),
        purge_mode: purge_mode.to_owned(),
        reason: "TaintUntolerated".to_owned(),
        producer: "TaintManager".to_owned(),
        preserved_label_state: preserved_labels(rules, &binding.status.aggregated_status, cluster)?,
        ..GracefulEvictionTask::default()
    })
}

/// Limits the rate of evictions; the first need not wait.
#[derive(Debug)]
pub(super) struct ResourceEvictionRateLimiter {
    interval: Duration,
    next_permit: Option<Instant>,
}

impl ResourceEvictionRateLimiter {
    /// `rate` is in evictions per second.
    pub(super) fn new(rate: f64) -> Self {
        let interval = Duration::try_from_secs_f64(1.0 / rate).unwrap_or(ZERO_RATE_INTERVAL);
        Self {
            interval,
            next_permit: None,
        }
    }

    /// Takes a permit for one eviction, or returns the time of the next one.
    pub(super) fn try_acquire(&mut self, now: Instant) -> Result<(), Instant> {
        if let Some(next) = self.next_permit.filter(|next| *next > now) {
            return Err(next);
        }
        self.next_permit = Some(now + self.interval);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_767_225_600 + second).unwrap()
    }

    fn taint(key: &str, effect: &str, second: i64) -> Taint {
        Taint {
            key: key.into(),
            effect: effect.into(),
            time_added: Some(machinery::time::rfc3339_seconds(at(second))),
            ..Taint::default()
        }
    }

    fn from_json<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    // proves: EVI-untolerated, EVI-toleration-time, EVI-toleration-ever
    #[test]
    fn every_taint_is_tolerated_or_evicts() {
        let exists = |key: &str, seconds: Option<i64>| json!({"key": key, "operator": "Exists", "tolerationSeconds": seconds});
        let (a, b) = (taint("a", "NoExecute", 0), taint("b", "NoExecute", 100));
        let harmless = taint("c", "NoSchedule", 0);
        let check = |taints: &[&Taint], tolerations: Value, now: i64, expected: TaintDecision| {
            let taints: Vec<Taint> = taints.iter().map(|t| (*t).clone()).collect();
            let tolerations: Vec<Toleration> = from_json(tolerations);
            let actual = evaluate_taints(&taints, &tolerations, at(now));
            assert_eq!(actual, expected, "{tolerations:?} {now}");
        };
        use TaintDecision::{Evict, TolerateUntil, Tolerated};
        check(&[], json!([]), 0, Tolerated);
        check(&[&harmless], json!([]), 0, Tolerated);
        check(&[&a], json!([]), 0, Evict);
        check(&[&a, &b], json!([exists("a", None)]), 0, Evict);
        check(&[&a, &harmless], json!([exists("a", None)]), 9, Tolerated);
        check(
            &[&a],
            json!([exists("a", Some(30))]),
            29,
            TolerateUntil(at(30)),
        );
        check(&[&a], json!([exists("a", Some(30))]), 30, Evict);
        check(&[&a], json!([exists("a", Some(0))]), 0, Evict);
        check(&[&a], json!([exists("a", Some(-5))]), 0, Evict);
        // The first matching toleration counts.
        check(
            &[&a],
            json!([exists("a", None), exists("a", Some(0))]),
            9,
            Tolerated,
        );
        check(
            &[&a],
            json!([exists("a", Some(9)), exists("a", None)]),
            9,
            Evict,
        );
        // The earliest end of all, from the time of each matching taint.
        let both = json!([exists("a", Some(500)), exists("b", Some(60))]);
        check(&[&a, &b], both, 9, TolerateUntil(at(160)));
        let wide = json!([{"operator": "Exists", "tolerationSeconds": 50}]);
        check(&[&a, &b], wide, 9, TolerateUntil(at(50)));
        let other_effect = json!([{"key": "a", "operator": "Exists", "effect": "NoSchedule"}]);
        check(&[&a], other_effect, 0, Evict);
        // A taint without `timeAdded` is tolerated without a time limit.
        let mut timeless = a;
        timeless.time_added = None;
        check(&[&timeless], json!([exists("a", Some(1))]), 99, Tolerated);
    }

    // proves: EVI-applied-placement
    #[test]
    fn tolerations_are_those_of_the_last_scheduling() {
        let check = |annotations: Value, expected: Result<usize, bool>| {
            let spec =
                json!({"placement": {"clusterTolerations": [{"key": "new"}, {"key": "newer"}]}});
            let binding: ResourceBinding =
                from_json(json!({"metadata": {"annotations": annotations}, "spec": spec}));
            let actual = tolerations(&binding).map(|t| t.len());
            assert_eq!(
                actual.map_err(|e| e == AppliedPlacementError::Missing),
                expected
            );
        };
        let key = well_known_keys::APPLIED_PLACEMENT;
        check(
            json!({key: r#"{"clusterTolerations":[{"key":"x"}]}"#}),
            Ok(1),
        );
        check(json!({key: "{}"}), Ok(0));
        check(json!({key: ""}), Err(true));
        check(json!({}), Err(true));
        check(json!({key: "{"}), Err(false));
    }

    // proves: EVI-purge-mode, EVI-task
    #[test]
    fn a_task_purges_as_the_policy_or_the_flag_says() {
        let check = |failover: Value, flag: NoExecuteTaintEvictionPurgeMode, expected: &str| {
            let binding: ResourceBinding = from_json(json!({"spec": {"failover": failover}}));
            let task = eviction_task(&binding, "a", FeatureGates::default(), flag).unwrap();
            let expected = json!({"fromCluster": "a", "purgeMode": expected, "reason": "TaintUntolerated", "producer": "TaintManager"});
            assert_eq!(json!(task), expected, "{failover}");
        };
        use NoExecuteTaintEvictionPurgeMode::{Directly, Gracefully};
        check(Value::Null, Gracefully, "Gracefully");
        check(Value::Null, Directly, "Directly");
        check(json!({"application": {}}), Directly, "Directly");
        check(json!({"cluster": {}}), Directly, "Gracefully");
        check(
            json!({"cluster": {"purgeMode": "Directly"}}),
            Gracefully,
            "Directly",
        );
    }

    // proves: EVI-state
    #[test]
    fn state_is_preserved_behind_its_gate() {
        let rules = json!([{"aliasLabelName": "id", "jsonPath": "{.id}"}]);
        let binding = |items: Value| -> ResourceBinding {
            from_json(json!({
                "spec": {"failover": {"cluster": {"purgeMode": "Directly", "statePreservation": {"rules": rules}}}},
                "status": {"aggregatedStatus": items}}))
        };
        let with_status = binding(json!([{"clusterName": "a", "status": {"id": "x"}}]));
        let (off, mode) = (
            FeatureGates::default(),
            NoExecuteTaintEvictionPurgeMode::Gracefully,
        );
        let on = off.with_feature(KarmadaFeature::StatefulFailoverInjection, true);
        let of = |binding: &ResourceBinding, gates| {
            eviction_task(binding, "a", gates, mode).map(|t| json!(t.preserved_label_state))
        };
        assert_eq!(of(&with_status, on), Ok(json!({"id": "x"})));
        assert_eq!(of(&with_status, off), Ok(json!({})));
        assert!(of(&binding(json!([])), on).is_err());
        assert_eq!(of(&binding(json!([])), off), Ok(json!({})));
    }

    // proves: EVI-rate
    #[tokio::test(start_paused = true)]
    async fn evictions_are_rate_limited() {
        for (rate, seconds) in [(0.5, 2.0), (10.0, 0.1), (0.0, 1800.0)] {
            let mut pace = ResourceEvictionRateLimiter::new(rate);
            let now = Instant::now();
            assert_eq!(pace.try_acquire(now), Ok(()));
            let next = pace.try_acquire(now).unwrap_err();
            assert_eq!((next - now).as_secs_f64(), seconds, "{rate}");
            assert_eq!(pace.try_acquire(now), Err(next));
            assert_eq!(pace.try_acquire(next), Ok(()));
            assert!(pace.try_acquire(next).is_err());
        }
    }
}
