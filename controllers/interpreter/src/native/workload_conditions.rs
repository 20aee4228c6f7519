//! Conditions of Deployments and ReplicaSets: `Available`, `Progressing` and `ReplicaFailure`, which
//! clients read to know whether a rollout is done.

use serde_json::{Map, Value, json};

use crate::native::CollectedStatus;
use crate::native::conditions::{
    MemberCondition, TemplateCondition, bounded_message, bounded_reason, cluster_names,
    message_of_cluster,
};
use crate::native::rules::counter;

const AVAILABLE: &str = "Available";
const PROGRESSING: &str = "Progressing";
const REPLICA_FAILURE: &str = "ReplicaFailure";
const NEW_REPLICA_SET_AVAILABLE: &str = "NewReplicaSetAvailable";
const PROGRESS_DEADLINE_EXCEEDED: &str = "ProgressDeadlineExceeded";
const REPLICA_SET_UPDATED: &str = "ReplicaSetUpdated";

/// The copy of a workload in one cluster that the template is scheduled to.
pub(crate) struct WorkloadCopy<'a> {
    pub(crate) cluster: &'a str,
    /// Absent until a status was collected.
    pub(crate) status: Option<&'a Map<String, Value>>,
    /// Whether the cluster interprets the copy as healthy.
    pub(crate) healthy: bool,
    /// Whether the copy has the template's generation and its controller has observed it.
    pub(crate) up_to_date: bool,
    /// Whether the binding no longer places the template in this cluster.
    pub(crate) leaving: bool,
}

impl<'a> WorkloadCopy<'a> {
    pub(crate) fn new(item: &CollectedStatus<'a>, status: Option<&'a Map<String, Value>>) -> Self {
        Self {
            cluster: item.cluster,
            status,
            healthy: item.healthy,
            up_to_date: false,
            leaving: item.leaving,
        }
    }

    fn condition(&self, kind: &str) -> Option<MemberCondition<'a>> {
        MemberCondition::find(self.status?, kind)
    }

    /// A healthy copy is available; one that a rollout still changes may say that it is.
    fn is_available(&self) -> bool {
        self.status.is_some()
            && self
                .condition(AVAILABLE)
                .map_or(self.healthy, |c| c.is_true())
    }

    /// Whether the rollout in the cluster is done. It stays done when a pod fails later.
    fn is_complete(&self) -> bool {
        let Some(status) = self.status else {
            return false;
        };
        let done = |c: MemberCondition<'_>| c.is_true() && c.reason == NEW_REPLICA_SET_AVAILABLE;
        self.up_to_date
            && counter(status, "replicas") == counter(status, "updatedReplicas")
            && self.condition(PROGRESSING).map_or(self.healthy, done)
    }

    fn exceeded_deadline(&self) -> Option<&'a str> {
        let progressing = self.condition(PROGRESSING)?;
        let exceeded = self.up_to_date && progressing.reason == PROGRESS_DEADLINE_EXCEEDED;
        exceeded.then_some(progressing.message)
    }
}

/// The conditions of a Deployment that a cluster reports besides the counters: those that say more
/// than the counters do. A Deployment that runs as it should reports none.
pub(crate) fn reflected_deployment_conditions(
    status: &Map<String, Value>,
    healthy: bool,
) -> Vec<Value> {
    let mut reflected = reflected_failure(status);
    if let Some(available) = MemberCondition::find(status, AVAILABLE)
        && available.is_true() != healthy
    {
        reflected.push(json!({"type": AVAILABLE, "status": available.status_word()}));
    }
    if let Some(progressing) = MemberCondition::find(status, PROGRESSING) {
        if progressing.status == "False" {
            reflected.push(reflected_condition(PROGRESSING, progressing));
        } else if progressing.reason == NEW_REPLICA_SET_AVAILABLE && !healthy {
            reflected.push(
                json!({"type": PROGRESSING, "status": progressing.status_word(),
                "reason": NEW_REPLICA_SET_AVAILABLE}),
            );
        }
    }
    reflected
}

/// The condition that replicas cannot be created, where it holds.
pub(crate) fn reflected_failure(status: &Map<String, Value>) -> Vec<Value> {
    let failure = MemberCondition::find(status, REPLICA_FAILURE);
    let failure = failure.filter(MemberCondition::is_true);
    failure
        .map(|failure| reflected_condition(REPLICA_FAILURE, failure))
        .into_iter()
        .collect()
}

fn reflected_condition(kind: &str, condition: MemberCondition<'_>) -> Value {
    json!({"type": kind, "status": condition.status_word(),
        "reason": bounded_reason(condition.reason, "Unknown"),
        "message": bounded_message(condition.message)})
}

/// The facts that decide the conditions of a Deployment besides its copies.
pub(crate) struct DeploymentTemplate<'a> {
    pub(crate) name: &'a str,
    pub(crate) paused: bool,
    /// Whether it has a condition Progressing that is not False.
    pub(crate) is_progressing: bool,
}

/// The conditions of a Deployment. Available tells of the present, whatever generation the copies
/// have; Progressing tells of the rollout of the newest generation that all clusters observed.
pub(crate) fn deployment_conditions(
    template: &DeploymentTemplate<'_>,
    copies: &[WorkloadCopy<'_>],
) -> Vec<TemplateCondition> {
    let mut conditions = vec![available(copies)];
    conditions.extend(progressing(template, copies));
    conditions.extend(replica_failure(copies));
    conditions
}

/// The types of conditions that workloads have only while they hold.
pub(crate) const OPTIONAL_CONDITIONS: &[&str] = &[REPLICA_FAILURE];

fn available(copies: &[WorkloadCopy<'_>]) -> TemplateCondition {
    if copies.is_empty() {
        return TemplateCondition::new(
            AVAILABLE,
            "False",
            "MinimumReplicasUnavailable",
            "Deployment is not scheduled to any cluster.".to_owned(),
        );
    }
    let unavailable = copies.iter().filter(|copy| !copy.is_available());
    let names = cluster_names(unavailable.map(|copy| copy.cluster));
    if names.is_empty() {
        return TemplateCondition::new(
            AVAILABLE,
            "True",
            "MinimumReplicasAvailable",
            "Deployment has minimum availability.".to_owned(),
        );
    }
    TemplateCondition::new(
        AVAILABLE,
        "False",
        "MinimumReplicasUnavailable",
        format!("Deployment does not have minimum availability in clusters: {names}"),
    )
}

/// `None` leaves the condition as it is, until all clusters have observed the newest generation.
fn progressing(
    template: &DeploymentTemplate<'_>,
    copies: &[WorkloadCopy<'_>],
) -> Option<TemplateCondition> {
    let name = template.name;
    let exceeded = copies
        .iter()
        .find_map(|copy| Some((copy.cluster, copy.exceeded_deadline()?)));
    if let Some((cluster, message)) = exceeded {
        let message = message_of_cluster(cluster, message);
        let reason = PROGRESS_DEADLINE_EXCEEDED;
        return Some(TemplateCondition::new(
            PROGRESSING,
            "False",
            reason,
            message,
        ));
    }
    if template.paused {
        let message = "Deployment is paused".to_owned();
        let reason = "DeploymentPaused";
        return Some(TemplateCondition::new(
            PROGRESSING,
            "Unknown",
            reason,
            message,
        ));
    }
    if !copies.is_empty() && copies.iter().all(WorkloadCopy::is_complete) {
        return Some(TemplateCondition::new(
            PROGRESSING,
            "True",
            NEW_REPLICA_SET_AVAILABLE,
            format!("Deployment {name:?} has successfully progressed."),
        ));
    }
    let observed = copies.iter().all(|copy| copy.up_to_date);
    if template.is_progressing && !observed {
        return None;
    }
    Some(TemplateCondition::new(
        PROGRESSING,
        "True",
        REPLICA_SET_UPDATED,
        format!("Deployment {name:?} is progressing."),
    ))
}

/// The first failure to create replicas that a cluster reports.
pub(crate) fn replica_failure(copies: &[WorkloadCopy<'_>]) -> Option<TemplateCondition> {
    let failures = copies.iter().filter_map(|copy| {
        let failure = copy.condition(REPLICA_FAILURE)?;
        failure.is_true().then_some((copy.cluster, failure))
    });
    let (cluster, failure) = failures.into_iter().next()?;
    let reason = bounded_reason(failure.reason, "FailedCreate");
    let message = message_of_cluster(cluster, failure.message);
    Some(TemplateCondition::new(
        REPLICA_FAILURE,
        "True",
        reason,
        message,
    ))
}

/// Whether a template has a condition Progressing that is not False.
pub(crate) fn is_progressing(old: &[Value]) -> bool {
    let progressing = |c: &&Value| c["type"] == PROGRESSING;
    let condition = old.iter().find(progressing);
    condition.is_some_and(|c| c["status"] != "False")
}
