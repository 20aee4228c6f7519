//! Rules for the CRDs of other projects, as specified in TABLE.md beside this file.
//!
//! Rules read and edit objects as JSON values. Each kind has rules for exactly one version. `None`
//! means that the kind has no rule for an operation. Source: the customizations in Karmada's
//! `pkg/resourceinterpreter/default/thirdparty/resourcecustomizations`.

mod argo;
mod collected_statuses;
mod flink;
mod flux;
mod json_map;
mod kruise;
mod kruise_jobs;
mod kubeflow;
mod kyverno;
mod mpi;
mod notebook;
mod observed_generation;
mod pod_templates;
mod ray;
mod ray_service;
mod readiness;
mod rules;
mod spark;
mod status_aggregation;
mod volcano;
mod zero_values;

use jiff::Timestamp;
use karmada_api::DependentObjectReference;
use karmada_api::binding::Component;
use machinery::Gvk;
use serde_json::Value;

use crate::empty_values::prune_empty;
use crate::native::{CollectedStatus, Error, TemplateReplicas};
use collected_statuses::CollectedStatuses;
use readiness::settle_conditions;
use rules::ThirdPartyKindRules;
use status_aggregation::{AggregationInput, StatusAggregation, reset_status};

fn rules_for(kind: &Gvk) -> Option<&'static ThirdPartyKindRules> {
    Some(match (&*kind.group, &*kind.version, &*kind.kind) {
        ("apps.kruise.io", "v1alpha1", "AdvancedCronJob") => &kruise_jobs::ADVANCED_CRON_JOB,
        ("apps.kruise.io", "v1alpha1", "BroadcastJob") => &kruise_jobs::BROADCAST_JOB,
        ("apps.kruise.io", "v1alpha1", "CloneSet") => &kruise::CLONE_SET,
        ("apps.kruise.io", "v1alpha1", "DaemonSet") => &kruise::DAEMON_SET,
        ("apps.kruise.io", "v1alpha1", "SidecarSet") => &kruise_jobs::SIDECAR_SET,
        ("apps.kruise.io", "v1alpha1", "UnitedDeployment") => &kruise::UNITED_DEPLOYMENT,
        ("apps.kruise.io", "v1beta1", "StatefulSet") => &kruise::STATEFUL_SET,
        ("argoproj.io", "v1alpha1", "Workflow") => &argo::WORKFLOW,
        ("batch.volcano.sh", "v1alpha1", "Job") => &volcano::VOLCANO_JOB,
        ("flink.apache.org", "v1beta1", "FlinkDeployment") => &flink::FLINK_DEPLOYMENT,
        ("helm.toolkit.fluxcd.io", "v2beta1", "HelmRelease") => &flux::HELM_RELEASE,
        ("kubeflow.org", "v1", "Notebook") => &notebook::NOTEBOOK,
        ("kubeflow.org", "v1", "PyTorchJob") => &kubeflow::PYTORCH_JOB,
        ("kubeflow.org", "v1", "TFJob") => &kubeflow::TF_JOB,
        ("kubeflow.org", "v2beta1", "MPIJob") => &mpi::MPI_JOB,
        ("kustomize.toolkit.fluxcd.io", "v1", "Kustomization") => &flux::KUSTOMIZATION,
        ("kyverno.io", "v1", "ClusterPolicy" | "Policy") => &kyverno::POLICY,
        ("ray.io", "v1", "RayCluster") => &ray::RAY_CLUSTER,
        ("ray.io", "v1", "RayJob") => &ray::RAY_JOB,
        ("ray.io", "v1", "RayService") => &ray_service::RAY_SERVICE,
        ("source.toolkit.fluxcd.io", "v1", "GitRepository") => &flux::GIT_REPOSITORY,
        ("source.toolkit.fluxcd.io", "v1beta2", "Bucket") => &flux::BUCKET,
        ("source.toolkit.fluxcd.io", "v1beta2", "HelmChart") => &flux::HELM_CHART,
        ("source.toolkit.fluxcd.io", "v1beta2", "HelmRepository") => &flux::HELM_REPOSITORY,
        ("source.toolkit.fluxcd.io", "v1beta2", "OCIRepository") => &flux::OCI_REPOSITORY,
        ("sparkoperator.k8s.io", "v1beta2", "SparkApplication") => &spark::SPARK_APPLICATION,
        _ => return None,
    })
}

/// The level between webhooks and native rules.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ThirdPartyInterpreter;

impl ThirdPartyInterpreter {
    /// Whether a kind has any rules.
    pub(crate) fn has_rules(&self, kind: &Gvk) -> bool {
        rules_for(kind).is_some()
    }

    /// The replicas that a template asks for.
    pub(crate) fn replicas(
        &self,
        kind: &Gvk,
        template: &Value,
    ) -> Result<Option<TemplateReplicas>, Error> {
        let rule = rules_for(kind).and_then(|rules| rules.replicas);
        rule.map(|rule| rule(template)).transpose()
    }

    /// The components of a template.
    pub(crate) fn components(
        &self,
        kind: &Gvk,
        template: &Value,
    ) -> Result<Option<Vec<Component>>, Error> {
        let rule = rules_for(kind).and_then(|rules| rules.components);
        rule.map(|rule| rule(template)).transpose()
    }

    /// The manifest with the replicas of one cluster.
    pub(crate) fn revise_replica(
        &self,
        kind: &Gvk,
        copy: &Value,
        replicas: i64,
    ) -> Result<Option<Value>, Error> {
        let Some(rule) = rules_for(kind).and_then(|rules| rules.revise_replica) else {
            return Ok(None);
        };
        let mut revised = copy.clone();
        rule(&mut revised, replicas)?;
        prune_empty(&mut revised, &[copy]);
        Ok(Some(revised))
    }

    /// The desired manifest, with the fields that the member decides.
    pub(crate) fn retain(
        &self,
        kind: &Gvk,
        desired: &Value,
        observed: &Value,
    ) -> Result<Option<Value>, Error> {
        let Some(rule) = rules_for(kind).and_then(|rules| rules.retain) else {
            return Ok(None);
        };
        let mut retained = desired.clone();
        rule(&mut retained, observed)?;
        prune_empty(&mut retained, &[desired, observed]);
        Ok(Some(retained))
    }

    /// Whether a kind has a health rule.
    pub(crate) fn has_health_rule(&self, kind: &Gvk) -> bool {
        rules_for(kind).is_some_and(|rules| rules.interpret_health.is_some())
    }

    /// Whether an object in a member cluster is healthy.
    pub(crate) fn interpret_health(
        &self,
        kind: &Gvk,
        observed: &Value,
    ) -> Result<Option<bool>, Error> {
        let rule = rules_for(kind).and_then(|rules| rules.interpret_health);
        rule.map(|rule| rule(observed)).transpose()
    }

    /// The part of a status that is collected; empty if there is none.
    pub(crate) fn reflect_status(&self, kind: &Gvk, observed: &Value) -> Option<Value> {
        let rule = rules_for(kind)?.reflect_status?;
        let mut status = Value::Object(rule(observed));
        prune_empty(&mut status, &[]);
        Some(status)
    }

    /// The dependencies of a template, sorted.
    pub(crate) fn dependencies(
        &self,
        kind: &Gvk,
        template: &Value,
    ) -> Result<Option<Vec<DependentObjectReference>>, Error> {
        let Some(rule) = rules_for(kind).and_then(|rules| rules.dependencies) else {
            return Ok(None);
        };
        Ok(Some(pod_templates::sorted_dependencies(rule(template)?)?))
    }

    /// The template with the aggregated status. `items` is `None` when the statuses are unknown, and
    /// empty when there are none.
    pub(crate) fn aggregate_status(
        &self,
        kind: &Gvk,
        template: &Value,
        items: Option<&[CollectedStatus<'_>]>,
        now: Timestamp,
    ) -> Result<Option<Value>, Error> {
        let Some(rule) = rules_for(kind).and_then(|rules| rules.aggregate_status.as_ref()) else {
            return Ok(None);
        };
        let mut result = template.clone();
        rule.apply(&mut result, items.map(CollectedStatuses), now)?;
        settle_conditions(&mut result, template, items.unwrap_or_default());
        prune_empty(&mut result, &[]);
        Ok(Some(result))
    }
}

#[cfg(test)]
pub(crate) mod tests;
