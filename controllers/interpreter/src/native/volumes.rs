//! Native rules of PersistentVolume and PersistentVolumeClaim, which each cluster binds by itself.

use jiff::Timestamp;
use machinery::Object;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::native::{
    CollectedStatus, Error, NativeRules, parse_collected_status, parse_object,
    retain_added_spec_fields, retain_spec_field,
};

pub(crate) struct NativePersistentVolumeRules;
pub(crate) struct NativePersistentVolumeClaimRules;

/// The aggregated phase is the first of these that any cluster reports.
const PHASE_PRECEDENCE: [&str; 5] = ["Failed", "Pending", "Available", "Bound", "Released"];

#[derive(Default, Deserialize)]
#[serde(default)]
struct PersistentVolumeClaimWithPhase {
    status: VolumeOrClaimStatusWithPhase,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct VolumeOrClaimStatusWithPhase {
    phase: String,
}

/// A status that has only a phase.
fn phase_status(phase: &str) -> Value {
    if phase.is_empty() {
        json!({})
    } else {
        json!({ "phase": phase })
    }
}

impl NativeRules for NativePersistentVolumeRules {
    fn retain(&self, desired: &mut Value, observed: &Value) -> Result<(), Error> {
        if let Some(claim) = observed["spec"].get("claimRef") {
            retain_spec_field(desired, "claimRef", Some(claim));
        }
        Ok(())
    }

    fn aggregate_status(
        &self,
        _template: &Object,
        items: &[CollectedStatus<'_>],
        _now: Timestamp,
    ) -> Result<Option<Value>, Error> {
        let mut phases = Vec::with_capacity(items.len());
        for item in items {
            phases.push(match item.status {
                // No status was collected yet.
                None => "Pending".to_owned(),
                Some(reported) => {
                    parse_collected_status::<VolumeOrClaimStatusWithPhase>(item, reported)?.phase
                }
            });
        }
        let first = PHASE_PRECEDENCE
            .into_iter()
            .find(|p| phases.iter().any(|q| q == p));
        Ok(Some(phase_status(first.unwrap_or_default())))
    }
}

impl NativeRules for NativePersistentVolumeClaimRules {
    /// Retains the bound volume and every field that the member added, because the spec is
    /// immutable. Karmada fails to update a claim to which the member added a storage class.
    fn retain(&self, desired: &mut Value, observed: &Value) -> Result<(), Error> {
        let volume = &observed["spec"]["volumeName"];
        if volume.as_str().is_some_and(|v| !v.is_empty()) {
            retain_spec_field(desired, "volumeName", Some(volume));
        }
        retain_added_spec_fields(desired, observed);
        Ok(())
    }

    fn interpret_health(&self, observed: &Object) -> Result<Option<bool>, Error> {
        let claim: PersistentVolumeClaimWithPhase = parse_object(observed, "health")?;
        Ok(Some(claim.status.phase == "Bound"))
    }

    /// Lost if the claim is lost in any cluster, else the last phase other than Bound. A claim that
    /// some cluster has not reported, or that is in no cluster, is Pending; in Karmada it is Bound.
    fn aggregate_status(
        &self,
        _template: &Object,
        items: &[CollectedStatus<'_>],
        _now: Timestamp,
    ) -> Result<Option<Value>, Error> {
        let first = if items.is_empty() { "Pending" } else { "Bound" };
        let mut all = first.to_owned();
        for item in items {
            let one = match item.status {
                // No status was collected yet.
                None => "Pending".to_owned(),
                Some(reported) => {
                    parse_collected_status::<VolumeOrClaimStatusWithPhase>(item, reported)?.phase
                }
            };
            if one != "Bound" {
                all = one;
            }
            if all == "Lost" {
                break;
            }
        }
        Ok(Some(phase_status(&all)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::fixtures::{aggregate_statuses, object};

    fn aggregated_phase(rules: &dyn NativeRules, all: &[&str]) -> Option<Value> {
        let status = |p: &&str| match *p {
            "-" => Value::Null,
            p => json!({"phase": p, "capacity": {}}),
        };
        let items: Vec<Value> = all.iter().map(status).collect();
        aggregate_statuses(rules, &json!({"metadata": {"name": "v"}}), &items)
    }

    // proves: NAT-volume
    #[test]
    fn phases_of_volumes() {
        for (all, one) in [
            (&["Bound", "Failed"][..], "Failed"),
            (&["Bound", "-"], "Pending"),
            (&["Available", "Bound"], "Available"),
            (&["Released", "Bound"], "Bound"),
            (&["Released"], "Released"),
        ] {
            assert_eq!(
                aggregated_phase(&NativePersistentVolumeRules, all),
                Some(json!({"phase": one})),
                "{all:?}"
            );
        }
        assert_eq!(
            aggregated_phase(&NativePersistentVolumeRules, &[]),
            Some(json!({}))
        );
    }

    // proves: NAT-claim
    #[test]
    fn phases_of_claims() {
        for (all, one) in [
            (&[][..], "Pending"),
            (&["Bound", "Bound"], "Bound"),
            (&["Bound", "-"], "Pending"),
            (&["Bound", "Pending"], "Pending"),
            (&["Pending", "Bound"], "Pending"),
            (&["Lost", "Pending"], "Lost"),
            (&["Pending", "Lost"], "Lost"),
        ] {
            assert_eq!(
                aggregated_phase(&NativePersistentVolumeClaimRules, all),
                Some(json!({"phase": one})),
                "{all:?}"
            );
        }
        for (status, healthy) in [
            (json!({"phase": "Bound"}), true),
            (json!({"phase": "Pending"}), false),
            (json!({}), false),
        ] {
            let claim = object(json!({"metadata": {"name": "c"}, "status": status}));
            assert_eq!(
                NativePersistentVolumeClaimRules
                    .interpret_health(&claim)
                    .unwrap(),
                Some(healthy),
                "{status}"
            );
        }
    }

    // proves: NAT-bound
    #[test]
    fn bound_volumes_and_claims_are_retained() {
        let mut desired = json!({"spec": {"a": 1}});
        NativePersistentVolumeClaimRules
            .retain(
                &mut desired,
                &json!({"spec": {"volumeName": "v1", "a": 2, "storageClassName": "fast"}}),
            )
            .unwrap();
        assert_eq!(
            desired,
            json!({"spec": {"a": 1, "volumeName": "v1", "storageClassName": "fast"}})
        );
        NativePersistentVolumeClaimRules
            .retain(&mut desired, &json!({"spec": {"volumeName": ""}}))
            .unwrap();
        assert_eq!(desired["spec"]["volumeName"], "v1");
        let mut desired = json!({"spec": {}});
        NativePersistentVolumeRules
            .retain(&mut desired, &json!({"spec": {"claimRef": {"name": "c"}}}))
            .unwrap();
        assert_eq!(desired, json!({"spec": {"claimRef": {"name": "c"}}}));
        NativePersistentVolumeRules
            .retain(&mut desired, &json!({"spec": {}}))
            .unwrap();
        assert_eq!(desired, json!({"spec": {"claimRef": {"name": "c"}}}));
    }
}
