//! The input of one decision: the binding to schedule and its context.

use karmada_api::replica_preference::RecordedReplicaPreference;
use karmada_api::{
    ResourceBindingSpec,
    placement::{ClusterAffinityTerm, Placement},
};

use super::accurate_estimates::AccurateEstimates;
use super::reservations::OptionalReservationsRef;
use super::scheduling_settings::SchedulingSettings;
use super::snapshot::ClusterSnapshot;
use super::workload_affinity::AffinityPeerClusters;

/// A binding's spec to schedule, with the affinity term to try if it has terms.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleRequest<'a> {
    pub spec: &'a ResourceBindingSpec,
    pub placement: &'a Placement,
    pub term: Option<&'a ClusterAffinityTerm>,
    /// Ignore the present assignment, because a reschedule was triggered.
    pub fresh: bool,
}

/// The inputs of a decision besides the request.
#[derive(Clone, Copy, Debug)]
pub struct SchedulingContext<'a> {
    pub snapshot: &'a ClusterSnapshot,
    pub settings: SchedulingSettings,
    /// Where the other bindings of its affinity groups are.
    pub peers: &'a AffinityPeerClusters,
    /// Capacity reserved by recent decisions.
    pub reservations: OptionalReservationsRef<'a>,
    /// The accurate estimates so far, if estimators are used.
    pub accurate_estimates: Option<&'a AccurateEstimates>,
    /// The ReplicaSchedulingPreference that divides the replicas, if the binding records one.
    pub replica_preference: Option<&'a RecordedReplicaPreference>,
}

impl<'a> SchedulingContext<'a> {
    /// A context of clusters alone.
    pub fn from_snapshot(snapshot: &'a ClusterSnapshot) -> Self {
        Self {
            snapshot,
            settings: snapshot.settings(),
            peers: AffinityPeerClusters::NONE,
            reservations: OptionalReservationsRef::EMPTY,
            accurate_estimates: None,
            replica_preference: None,
        }
    }
}
