//! Defaults of workloads (Kubernetes `pkg/apis/{apps,batch,core}/v1/defaults.go` and
//! `pkg/registry/batch/job/strategy.go`).

use serde_json::{Value, json};

use super::{Fields, each, fill, is_empty, is_true, pod, storage, text, unset, within, within_new};

pub(super) fn deployment(object: &mut Fields) {
    within(object, "spec", |spec| {
        fill(spec, "replicas", 1);
        within_new(spec, "strategy", |strategy| {
            fill(strategy, "type", "RollingUpdate");
            if text(strategy, "type") == "RollingUpdate" {
                within_new(strategy, "rollingUpdate", |rolling| {
                    fill(rolling, "maxUnavailable", "25%");
                    fill(rolling, "maxSurge", "25%");
                });
            }
        });
        fill(spec, "revisionHistoryLimit", 10);
        fill(spec, "progressDeadlineSeconds", 600);
        within(spec, "template", pod::template);
    });
}

pub(super) fn replica_set(object: &mut Fields) {
    within(object, "spec", |spec| {
        fill(spec, "replicas", 1);
        within(spec, "template", pod::template);
    });
}

pub(super) fn replication_controller(object: &mut Fields) {
    let mut labels = Value::Null;
    within(object, "spec", |spec| {
        fill(spec, "replicas", 1);
        within(spec, "template", pod::template);
        labels = template_labels(spec);
        if labels.is_object() && is_empty(spec, "selector") {
            spec.insert("selector".into(), labels.clone());
        }
    });
    fill_labels(object, labels);
}

pub(super) fn stateful_set(object: &mut Fields) {
    within(object, "spec", |spec| {
        fill(spec, "podManagementPolicy", "OrderedReady");
        within_new(spec, "updateStrategy", |strategy| {
            fill(strategy, "type", "RollingUpdate");
            if text(strategy, "type") == "RollingUpdate" {
                within_new(strategy, "rollingUpdate", |rolling| {
                    fill(rolling, "partition", 0);
                });
            }
        });
        within_new(spec, "persistentVolumeClaimRetentionPolicy", |policy| {
            fill(policy, "whenDeleted", "Retain");
            fill(policy, "whenScaled", "Retain");
        });
        fill(spec, "replicas", 1);
        fill(spec, "revisionHistoryLimit", 10);
        within(spec, "template", pod::template);
        each(spec, "volumeClaimTemplates", |claim| {
            claim.insert("apiVersion".into(), "v1".into());
            claim.insert("kind".into(), "PersistentVolumeClaim".into());
            storage::claim(claim);
        });
    });
}

pub(super) fn daemon_set(object: &mut Fields) {
    within(object, "spec", |spec| {
        within_new(spec, "updateStrategy", |strategy| {
            fill(strategy, "type", "RollingUpdate");
            if text(strategy, "type") == "RollingUpdate" {
                within_new(strategy, "rollingUpdate", |rolling| {
                    fill(rolling, "maxUnavailable", 1);
                    fill(rolling, "maxSurge", 0);
                });
            }
        });
        fill(spec, "revisionHistoryLimit", 10);
        within(spec, "template", pod::template);
    });
}

pub(super) fn job(object: &mut Fields) {
    let mut labels = Value::Null;
    within(object, "spec", |spec| {
        if unset(spec, "completions") && unset(spec, "parallelism") {
            fill(spec, "completions", 1);
        }
        fill(spec, "parallelism", 1);
        let limit = if unset(spec, "backoffLimitPerIndex") {
            6
        } else {
            i32::MAX
        };
        fill(spec, "backoffLimit", limit);
        fill(spec, "completionMode", "NonIndexed");
        fill(spec, "suspend", false);
        fill(spec, "manualSelector", false);
        let replacement = if unset(spec, "podFailurePolicy") {
            "TerminatingOrFailed"
        } else {
            "Failed"
        };
        fill(spec, "podReplacementPolicy", replacement);
        job_template_parts(spec);
        labels = template_labels(spec);
    });
    fill_labels(object, labels);
}

pub(super) fn cron_job(object: &mut Fields) {
    within(object, "spec", |spec| {
        fill(spec, "concurrencyPolicy", "Allow");
        fill(spec, "suspend", false);
        fill(spec, "successfulJobsHistoryLimit", 3);
        fill(spec, "failedJobsHistoryLimit", 1);
        within(spec, "jobTemplate", |template| {
            within(template, "spec", job_template_parts);
        });
    });
}

/// The defaults that a Job and the job template of a CronJob share. Other defaults of a Job
/// are set when the template becomes a Job.
fn job_template_parts(spec: &mut Fields) {
    within(spec, "template", pod::template);
    within(spec, "podFailurePolicy", |policy| {
        each(policy, "rules", |rule| {
            each(rule, "onPodConditions", |pattern| {
                fill(pattern, "status", "True");
            });
        });
    });
}

/// Sets the selector and the pod labels of a new Job, which distinguish its pods from those
/// of other Jobs, unless `manualSelector` is true. `uid` and `name` must be final. Keeps
/// labels that the user set: validation rejects contradictions.
pub fn job_selector(object: &mut Value, name: &str, uid: &str) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    if is_true(spec, "manualSelector") {
        return;
    }
    within_new(spec, "template", |template| {
        within_new(template, "metadata", |metadata| {
            within_new(metadata, "labels", |labels| {
                for (key, value) in [
                    ("batch.kubernetes.io/controller-uid", uid),
                    ("batch.kubernetes.io/job-name", name),
                    ("controller-uid", uid),
                    ("job-name", name),
                ] {
                    labels.entry(key).or_insert_with(|| value.into());
                }
            });
        });
    });
    within_new(spec, "selector", |selector| {
        if !selector.contains_key("matchLabels") {
            selector.insert("matchLabels".into(), json!({}));
        }
        within(selector, "matchLabels", |labels| {
            labels
                .entry("batch.kubernetes.io/controller-uid")
                .or_insert_with(|| uid.into());
        });
    });
}

fn template_labels(spec: &Fields) -> Value {
    spec.get("template")
        .and_then(|template| template.pointer("/metadata/labels"))
        .filter(|labels| labels.as_object().is_some_and(|labels| !labels.is_empty()))
        .cloned()
        .unwrap_or_default()
}

fn fill_labels(object: &mut Fields, labels: Value) {
    if !labels.is_object() {
        return;
    }
    within_new(object, "metadata", |metadata| {
        if is_empty(metadata, "labels") {
            metadata.insert("labels".into(), labels);
        }
    });
}
