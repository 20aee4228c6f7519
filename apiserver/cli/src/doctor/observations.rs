//! The facts about a control plane from which a doctor makes its report; values only.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::metric_samples::MetricSamples;

/// An answer, or why there is none.
pub(super) type QueryResult<T> = Result<T, String>;

/// An HTTP response with the times at which it was asked for and received.
#[derive(Clone, Debug)]
pub(super) struct HttpAnswer {
    pub(super) code: u16,
    pub(super) body: String,
    /// The server's clock, in whole seconds.
    pub(super) date: Option<Timestamp>,
    pub(super) asked: Timestamp,
    pub(super) took: Duration,
}

impl HttpAnswer {
    /// How far the server's clock is ahead of ours, as little as it can be: the server may
    /// have answered at any time of the request, and its date has whole seconds.
    pub(super) fn clock_ahead(&self) -> Option<SignedDuration> {
        let earliest = self.asked;
        let took = SignedDuration::try_from(self.took).unwrap_or(SignedDuration::MAX);
        let latest = earliest.checked_add(took).unwrap_or(earliest);
        let date = self.date?;
        let end_of_second = date
            .checked_add(SignedDuration::from_secs(1))
            .unwrap_or(date);
        if date > latest {
            return Some(date.duration_since(latest));
        }
        if end_of_second < earliest {
            return Some(end_of_second.duration_since(earliest));
        }
        Some(SignedDuration::ZERO)
    }
}

/// A Cluster and what its API server answered through the cluster proxy.
#[derive(Clone, Debug)]
pub(super) struct ObservedMember {
    pub(super) name: String,
    pub(super) cluster: Value,
    pub(super) answer: QueryResult<HttpAnswer>,
}

impl ObservedMember {
    pub(super) fn is_pull(&self) -> bool {
        self.cluster["spec"]["syncMode"] == "Pull"
    }

    pub(super) fn kubernetes_version(&self) -> Option<&str> {
        self.cluster["status"]["kubernetesVersion"].as_str()
    }

    /// The condition of this type.
    pub(super) fn condition(&self, kind: &str) -> Option<&Value> {
        let conditions = self.cluster["status"]["conditions"].as_array()?;
        conditions.iter().find(|c| c["type"] == kind)
    }
}

/// The Lease by which the agent of a cluster shows that it lives.
#[derive(Clone, Debug, Default)]
pub(super) struct AgentLeaseState {
    pub(super) renewed: Option<Timestamp>,
    pub(super) lasts: Option<SignedDuration>,
    pub(super) agent_version: Option<String>,
}

/// A Work whose objects the member has not got.
#[derive(Clone, Debug, Default)]
pub(super) struct FailedWork {
    pub(super) namespace: String,
    pub(super) name: String,
    /// Of its condition Applied; empty if it was not read.
    pub(super) message: String,
}

/// A credential in the kubeconfig that expires.
#[derive(Clone, Debug)]
pub(super) struct UserCredential {
    pub(super) kind: &'static str,
    pub(super) expires: Timestamp,
}

#[derive(Clone, Debug)]
pub(super) struct ControlPlaneObservations {
    /// The address of the server.
    pub(super) server: String,
    pub(super) now: Timestamp,
    pub(super) client_version: String,
    /// `/readyz?verbose`.
    pub(super) readiness: QueryResult<HttpAnswer>,
    /// The discovery of `cluster.karmada.io/v1alpha1`.
    pub(super) karmada_api: QueryResult<HttpAnswer>,
    /// `gitVersion` of `/version`.
    pub(super) server_version: QueryResult<String>,
    pub(super) metrics: QueryResult<MetricSamples>,
    pub(super) members: QueryResult<Vec<ObservedMember>>,
    /// The agents' leases by the name of the cluster.
    pub(super) leases: QueryResult<BTreeMap<String, AgentLeaseState>>,
    /// The Works that are not applied.
    pub(super) failed_works: QueryResult<Vec<FailedWork>>,
    pub(super) user_credentials: Vec<UserCredential>,
}

impl ControlPlaneObservations {
    /// The time by the server's clock.
    pub(super) fn server_time(&self) -> Timestamp {
        let ahead = self
            .readiness
            .as_ref()
            .ok()
            .and_then(HttpAnswer::clock_ahead);
        let ahead = ahead.unwrap_or(SignedDuration::ZERO);
        self.now.checked_add(ahead).unwrap_or(self.now)
    }
}

impl ControlPlaneObservations {
    /// Whether the server is no control plane. One whose Flotilla is away answers 503.
    pub(super) fn lacks_karmada_api(&self) -> bool {
        self.karmada_api
            .as_ref()
            .is_ok_and(|answer| answer.code == 404)
    }
}
