//! Defaults of workloads (Kubernetes `pkg/apis/{apps,batch,core}/v1/defaults.go` and
//! `pkg/registry/batch/job/strategy.go`).

use serde_json::{Value, json};

use super::{
    JsonObjectMap, for_each_object, is_empty, is_true, is_unset, pod, set_default, storage,
    string_field, with_object, with_object_or_create,
};

pub(super) fn set_defaults_deployment(object: &mut JsonObjectMap) {
    with_object(object, "spec", |spec| {
        set_default(spec, "replicas", 1);
        with_object_or_create(spec, "strategy", |strategy| {
            set_default(strategy, "type", "RollingUpdate");
            if string_field(strategy, "type") == "RollingUpdate" {
                with_object_or_create(strategy, "rollingUpdate", |rolling| {
                    set_default(rolling, "maxUnavailable", "25%");
                    set_default(rolling, "maxSurge", "25%");
                });
            }
        });
        set_default(spec, "revisionHistoryLimit", 10);
        set_default(spec, "progressDeadlineSeconds", 600);
        with_object(spec, "template", pod::set_defaults_pod_template);
    });
}

pub(super) fn set_defaults_replica_set(object: &mut JsonObjectMap) {
    with_object(object, "spec", |spec| {
        set_default(spec, "replicas", 1);
        with_object(spec, "template", pod::set_defaults_pod_template);
    });
}

pub(super) fn set_defaults_replication_controller(object: &mut JsonObjectMap) {
    let mut labels = Value::Null;
    with_object(object, "spec", |spec| {
        set_default(spec, "replicas", 1);
        with_object(spec, "template", pod::set_defaults_pod_template);
        labels = template_labels(spec);
        if labels.is_object() && is_empty(spec, "selector") {
            spec.insert("selector".into(), labels.clone());
        }
    });
    set_default_labels(object, labels);
}

pub(super) fn set_defaults_stateful_set(object: &mut JsonObjectMap) {
    with_object(object, "spec", |spec| {
        set_default(spec, "podManagementPolicy", "OrderedReady");
        with_object_or_create(spec, "updateStrategy", |strategy| {
            set_default(strategy, "type", "RollingUpdate");
            if string_field(strategy, "type") == "RollingUpdate" {
                with_object_or_create(strategy, "rollingUpdate", |rolling| {
                    set_default(rolling, "partition", 0);
                });
            }
        });
        with_object_or_create(spec, "persistentVolumeClaimRetentionPolicy", |policy| {
            set_default(policy, "whenDeleted", "Retain");
            set_default(policy, "whenScaled", "Retain");
        });
        set_default(spec, "replicas", 1);
        set_default(spec, "revisionHistoryLimit", 10);
        with_object(spec, "template", pod::set_defaults_pod_template);
        for_each_object(spec, "volumeClaimTemplates", |claim| {
            claim.insert("apiVersion".into(), "v1".into());
            claim.insert("kind".into(), "PersistentVolumeClaim".into());
            storage::set_defaults_persistent_volume_claim(claim);
        });
    });
}

pub(super) fn set_defaults_daemon_set(object: &mut JsonObjectMap) {
    with_object(object, "spec", |spec| {
        with_object_or_create(spec, "updateStrategy", |strategy| {
            set_default(strategy, "type", "RollingUpdate");
            if string_field(strategy, "type") == "RollingUpdate" {
                with_object_or_create(strategy, "rollingUpdate", |rolling| {
                    set_default(rolling, "maxUnavailable", 1);
                    set_default(rolling, "maxSurge", 0);
                });
            }
        });
        set_default(spec, "revisionHistoryLimit", 10);
        with_object(spec, "template", pod::set_defaults_pod_template);
    });
}

pub(super) fn set_defaults_job(object: &mut JsonObjectMap) {
    let mut labels = Value::Null;
    with_object(object, "spec", |spec| {
        if is_unset(spec, "completions") && is_unset(spec, "parallelism") {
            set_default(spec, "completions", 1);
        }
        set_default(spec, "parallelism", 1);
        let limit = if is_unset(spec, "backoffLimitPerIndex") {
            6
        } else {
            i32::MAX
        };
        set_default(spec, "backoffLimit", limit);
        set_default(spec, "completionMode", "NonIndexed");
        set_default(spec, "suspend", false);
        set_default(spec, "manualSelector", false);
        let replacement = if is_unset(spec, "podFailurePolicy") {
            "TerminatingOrFailed"
        } else {
            "Failed"
        };
        set_default(spec, "podReplacementPolicy", replacement);
        set_defaults_job_spec(spec);
        labels = template_labels(spec);
    });
    set_default_labels(object, labels);
}

pub(super) fn set_defaults_cron_job(object: &mut JsonObjectMap) {
    with_object(object, "spec", |spec| {
        set_default(spec, "concurrencyPolicy", "Allow");
        set_default(spec, "suspend", false);
        set_default(spec, "successfulJobsHistoryLimit", 3);
        set_default(spec, "failedJobsHistoryLimit", 1);
        with_object(spec, "jobTemplate", |template| {
            with_object(template, "spec", set_defaults_job_spec);
        });
    });
}

/// The defaults that a Job and the job template of a CronJob share. Other defaults of a Job
/// are set when the template becomes a Job.
fn set_defaults_job_spec(spec: &mut JsonObjectMap) {
    with_object(spec, "template", pod::set_defaults_pod_template);
    with_object(spec, "podFailurePolicy", |policy| {
        for_each_object(policy, "rules", |rule| {
            for_each_object(rule, "onPodConditions", |pattern| {
                set_default(pattern, "status", "True");
            });
        });
    });
}

/// Sets the selector and the pod labels of a new Job, which distinguish its pods from those
/// of other Jobs, unless `manualSelector` is true. `uid` and `name` must be final. Keeps
/// labels that the user set: validation rejects contradictions.
pub fn generate_job_selector(object: &mut Value, name: &str, uid: &str) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    if is_true(spec, "manualSelector") {
        return;
    }
    with_object_or_create(spec, "template", |template| {
        with_object_or_create(template, "metadata", |metadata| {
            with_object_or_create(metadata, "labels", |labels| {
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
    with_object_or_create(spec, "selector", |selector| {
        if !selector.contains_key("matchLabels") {
            selector.insert("matchLabels".into(), json!({}));
        }
        with_object(selector, "matchLabels", |labels| {
            labels
                .entry("batch.kubernetes.io/controller-uid")
                .or_insert_with(|| uid.into());
        });
    });
}

fn template_labels(spec: &JsonObjectMap) -> Value {
    spec.get("template")
        .and_then(|template| template.pointer("/metadata/labels"))
        .filter(|labels| labels.as_object().is_some_and(|labels| !labels.is_empty()))
        .cloned()
        .unwrap_or_default()
}

fn set_default_labels(object: &mut JsonObjectMap, labels: Value) {
    if !labels.is_object() {
        return;
    }
    with_object_or_create(object, "metadata", |metadata| {
        if is_empty(metadata, "labels") {
            metadata.insert("labels".into(), labels);
        }
    });
}
