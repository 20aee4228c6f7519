//! Checks that the writer of a RolloutPolicy may run the Jobs of its gates.
//!
//! The control plane makes a Job from a CronJob, and sends it to members as a PropagationPolicy would.
//! Without this check, who may write policies of rollouts could run CronJobs in any member.

use karmada_api::resources::POLICIES;
use machinery::{Gvr, Status};
use serde_json::Value;

use crate::attributes::AdmissionAttributes;
use crate::resource_access::{AccessedResource, ResourceAuthorizer};
use crate::unstructured::{get, has, index_path, items, text};

const JOBS: Gvr = Gvr::from_static("batch", "v1", "jobs");
const CRON_JOBS: Gvr = Gvr::from_static("batch", "v1", "cronjobs");

/// The fields of a policy that name CronJobs, with the names. None if the write changes nothing by
/// which Jobs run.
fn named_cron_jobs<'a>(new: &'a Value, old: Option<&Value>) -> Vec<(String, &'a str)> {
    if old.is_some_and(|old| get(old, "/spec") == get(new, "/spec")) {
        return Vec::new();
    }
    let stages = items(new, "/spec/stages").iter().enumerate();
    let with_job = stages.filter(|(_, stage)| has(stage, "/gates/job"));
    let named = with_job.map(|(i, stage)| {
        let field = format!("{}.gates.job", index_path("spec.stages", i));
        (field, text(stage, "/gates/job/cronJob"))
    });
    named.collect()
}

/// Fails with 403 when a policy would run a Job that its writer may not run. A ClusterRolloutPolicy
/// runs Jobs in any namespace.
pub(crate) async fn check(
    authorizer: &dyn ResourceAuthorizer,
    attributes: &AdmissionAttributes<'_>,
    name: &str,
    new: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    let namespace = attributes.namespace;
    for (field, cron_job) in named_cron_jobs(new, old) {
        for (verb, resource, accessed) in [
            ("get", &CRON_JOBS, cron_job),
            ("create", &JOBS, ""),
            ("create", &POLICIES, ""),
        ] {
            let target = AccessedResource {
                resource,
                namespace,
                name: accessed,
            };
            if authorizer.may(attributes.user, verb, target).await? {
                continue;
            }
            let scope = match namespace {
                "" => "in all namespaces".to_owned(),
                namespace => format!("in the namespace {namespace:?}"),
            };
            let message = format!(
                "User {:?} cannot {verb} {} {scope}, which the Job of the gate needs",
                attributes.user.name, resource.resource
            );
            let status = Status::forbidden(attributes.gvr, name, format!("{field}: {message}"));
            return Err(status.with_cause("FieldValueForbidden", message, &field));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // proves: ROL-job-rights
    #[test]
    fn each_change_of_a_policy_that_runs_jobs_needs_the_rights() {
        let policy = |name: &str, budget: u8| {
            json!({"metadata": {"labels": {"n": name}},
            "spec": {"failureBudget": budget, "stages": [{"name": "a"}, {"name": "b", "gates": {"job": {"cronJob": "smoke"}}}]}})
        };
        let first = policy("1", 0);
        let named = [("spec.stages[1].gates.job".to_owned(), "smoke")];
        for (old, new, expected) in [
            (None, policy("1", 0), &named[..]),
            (Some(&first), policy("2", 0), &[]),
            (Some(&first), policy("1", 1), &named),
            (
                Some(&first),
                json!({"spec": {"stages": [{"name": "a"}]}}),
                &[],
            ),
        ] {
            assert_eq!(named_cron_jobs(&new, old), expected);
        }
    }
}
