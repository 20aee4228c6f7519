//! Native rules of PersistentVolume and PersistentVolumeClaim, which each cluster binds by itself.

use jiff::Timestamp;
use machinery::Object;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::native::{ClusterStatus, Error, Rules, keep_added, keep_in_spec, member, parse};

pub(crate) struct Volume;
pub(crate) struct Claim;

/// The aggregated phase is the first of these that any cluster reports.
const PHASES: [&str; 5] = ["Failed", "Pending", "Available", "Bound", "Released"];

#[derive(Default, Deserialize)]
#[serde(default)]
struct Observed {
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: String,
}

/// A status that has only a phase.
fn phase(phase: &str) -> Value {
    if phase.is_empty() {
        json!({})
    } else {
        json!({ "phase": phase })
    }
}

impl Rules for Volume {
    fn retain(&self, desired: &mut Value, observed: &Value) -> Result<(), Error> {
        if let Some(claim) = observed["spec"].get("claimRef") {
            keep_in_spec(desired, "claimRef", Some(claim));
        }
        Ok(())
    }

    fn aggregate(
        &self,
        _template: &Object,
        items: &[ClusterStatus<'_>],
        _now: Timestamp,
    ) -> Result<Option<Value>, Error> {
        let mut phases = Vec::with_capacity(items.len());
        for item in items {
            phases.push(match item.status {
                // No status was collected yet.
                None => "Pending".to_owned(),
                Some(reported) => member::<Status>(item, reported)?.phase,
            });
        }
        let first = PHASES.into_iter().find(|p| phases.iter().any(|q| q == p));
        Ok(Some(phase(first.unwrap_or_default())))
    }
}

impl Rules for Claim {
    /// Retains the bound volume and every field that the member added, because the spec is
    /// immutable. Karmada fails to update a claim to which the member added a storage class.
    fn retain(&self, desired: &mut Value, observed: &Value) -> Result<(), Error> {
        let volume = &observed["spec"]["volumeName"];
        if volume.as_str().is_some_and(|v| !v.is_empty()) {
            keep_in_spec(desired, "volumeName", Some(volume));
        }
        keep_added(desired, observed);
        Ok(())
    }

    fn healthy(&self, observed: &Object) -> Result<Option<bool>, Error> {
        let claim: Observed = parse(observed, "health")?;
        Ok(Some(claim.status.phase == "Bound"))
    }

    /// Lost if the claim is lost in any cluster, else the last phase other than Bound.
    fn aggregate(
        &self,
        _template: &Object,
        items: &[ClusterStatus<'_>],
        _now: Timestamp,
    ) -> Result<Option<Value>, Error> {
        let mut all = "Bound".to_owned();
        for item in items {
            let Some(reported) = item.status else {
                continue;
            };
            let one = member::<Status>(item, reported)?.phase;
            if one != "Bound" {
                all = one;
            }
            if all == "Lost" {
                break;
            }
        }
        Ok(Some(phase(&all)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::tests::{aggregated, object};

    fn phases(rules: &dyn Rules, all: &[&str]) -> Option<Value> {
        let status = |p: &&str| match *p {
            "-" => Value::Null,
            p => json!({"phase": p, "capacity": {}}),
        };
        let items: Vec<Value> = all.iter().map(status).collect();
        aggregated(rules, &json!({"metadata": {"name": "v"}}), &items)
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
            assert_eq!(phases(&Volume, all), Some(json!({"phase": one})), "{all:?}");
        }
        assert_eq!(phases(&Volume, &[]), Some(json!({})));
    }

    // proves: NAT-claim
    #[test]
    fn phases_of_claims() {
        for (all, one) in [
            (&[][..], "Bound"),
            (&["Bound", "-"], "Bound"),
            (&["Bound", "Pending"], "Pending"),
            (&["Pending", "Bound"], "Pending"),
            (&["Lost", "Pending"], "Lost"),
            (&["Pending", "Lost"], "Lost"),
        ] {
            assert_eq!(phases(&Claim, all), Some(json!({"phase": one})), "{all:?}");
        }
        for (status, healthy) in [
            (json!({"phase": "Bound"}), true),
            (json!({"phase": "Pending"}), false),
            (json!({}), false),
        ] {
            let claim = object(json!({"metadata": {"name": "c"}, "status": status}));
            assert_eq!(Claim.healthy(&claim).unwrap(), Some(healthy), "{status}");
        }
    }

    // proves: NAT-bound
    #[test]
    fn bound_volumes_and_claims_are_retained() {
        let mut desired = json!({"spec": {"a": 1}});
        Claim
            .retain(
                &mut desired,
                &json!({"spec": {"volumeName": "v1", "a": 2, "storageClassName": "fast"}}),
            )
            .unwrap();
        assert_eq!(
            desired,
            json!({"spec": {"a": 1, "volumeName": "v1", "storageClassName": "fast"}})
        );
        Claim
            .retain(&mut desired, &json!({"spec": {"volumeName": ""}}))
            .unwrap();
        assert_eq!(desired["spec"]["volumeName"], "v1");
        let mut desired = json!({"spec": {}});
        Volume
            .retain(&mut desired, &json!({"spec": {"claimRef": {"name": "c"}}}))
            .unwrap();
        assert_eq!(desired, json!({"spec": {"claimRef": {"name": "c"}}}));
        Volume.retain(&mut desired, &json!({"spec": {}})).unwrap();
        assert_eq!(desired, json!({"spec": {"claimRef": {"name": "c"}}}));
    }
}
