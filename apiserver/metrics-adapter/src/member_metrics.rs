//! Asks all member clusters for metrics, and tells which of them are missing in an answer.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use addons::AddonSwitches;
use bytes::Bytes;
use flotilla_http::{MemberRead, MemberReader, MemberReply, is_unserved_path};
use karmada_api::addons::Addon;
use machinery::{Status, UserInfo};
use members::ClusterProxyBackends;

/// How long a member may take to answer.
const MEMBER_DEADLINE: Duration = Duration::from_secs(5);
/// How long a member may take for discovery: a kube-apiserver in front waits 5 s for all.
const DISCOVERY_DEADLINE: Duration = Duration::from_secs(2);
/// How many missing members a response names: clients bound the number of headers.
pub(super) const MAX_NAMED_MEMBERS: usize = 10;

/// Reads from members, once it has backends and while the addon is enabled. Clones share them.
#[derive(Clone, Default)]
pub(super) struct MemberMetricsReader(Arc<OnceLock<(MemberReader, AddonSwitches)>>);

impl MemberMetricsReader {
    /// Sets how members are reached. Later calls have no effect.
    pub(super) fn set_backends(&self, backends: ClusterProxyBackends, addons: &AddonSwitches) {
        let reader = MemberReader::new(backends, MEMBER_DEADLINE);
        // Later ones would lead to the same members.
        let _ = self.0.set((reader, addons.clone()));
    }

    /// Whether an operator has disabled the addon.
    pub(super) fn is_disabled(&self) -> bool {
        let state = self
            .0
            .get()
            .and_then(|(_, a)| a.state(Addon::MetricsAdapter));
        state == Some(false)
    }

    /// The answers of all members, by name, to the first of the reads that each serves.
    pub(super) async fn read_from_all(
        &self,
        user: &UserInfo,
        reads: &[MemberRead<'_>],
    ) -> Result<Vec<MemberReply>, Status> {
        self.reader()?.read_from_all(user, reads).await
    }

    /// As [`Self::read_from_all`], of members that answer soon.
    pub(super) async fn discover(
        &self,
        user: &UserInfo,
        reads: &[MemberRead<'_>],
    ) -> Result<Vec<MemberReply>, Status> {
        let reader = self.reader()?.with_deadline(DISCOVERY_DEADLINE);
        reader.read_from_all(user, reads).await
    }

    fn reader(&self) -> Result<&MemberReader, Status> {
        let starting = || Status::unavailable("the server is starting");
        let (reader, addons) = self.0.get().ok_or_else(starting)?;
        addons.check_enabled(Addon::MetricsAdapter)?;
        Ok(reader)
    }
}

/// The message about a member that does not serve the group.
pub(super) const NO_METRICS_API: &str = "metrics API not available";

/// The members that are missing in an answer, and why.
#[derive(Default)]
pub(super) struct MissingMembers {
    warnings: Vec<String>,
    /// Whether one of them could have the metric that is asked for.
    could_have_metric: bool,
}

impl MissingMembers {
    pub(super) fn add(&mut self, cluster: &str, reason: &str) {
        self.warnings.push(format!("cluster({cluster}): {reason}"));
    }

    pub(super) fn count(&self) -> usize {
        self.warnings.len()
    }

    /// Parses the answer of a member; `None` if the member does not have what is asked for, or is
    /// missing.
    pub(super) fn check_reply<T>(
        &mut self,
        cluster: &str,
        outcome: Result<Bytes, Status>,
        parse: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Option<T> {
        let reason = match outcome {
            Ok(body) => match parse(&body) {
                Ok(parsed) => return Some(parsed),
                Err(reason) => reason,
            },
            Err(status) if is_unserved_path(&status) => {
                self.add(cluster, NO_METRICS_API);
                return None;
            }
            Err(status) if status.code == 404 => return None,
            Err(status) => status.message,
        };
        self.could_have_metric = true;
        self.add(cluster, &reason);
        None
    }

    /// The warnings of the response.
    pub(super) fn into_warnings(self) -> Vec<String> {
        let mut warnings = self.warnings;
        let missing = warnings.len();
        if missing > MAX_NAMED_MEMBERS {
            warnings.truncate(MAX_NAMED_MEMBERS);
            let more = missing - MAX_NAMED_MEMBERS;
            warnings.push(format!("{more} more clusters have given no metrics"));
        }
        warnings
    }

    /// The failure if no member has the metric: 503 if a missing one could have it.
    pub(super) fn into_failure(self, absent: Status) -> Status {
        let could_have_metric = self.could_have_metric;
        let warnings = self.into_warnings();
        match could_have_metric {
            true => Status::unavailable(warnings.join("; ")),
            false => absent.with_warnings(warnings),
        }
    }
}
