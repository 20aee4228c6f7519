//! Builds the Work of a cluster from a template and its binding, without a write.

use std::fmt;

use client::InvolvedObject;
use controller_context::{DesiredWork, Error};
use flotilla_runtime::RestMapping;
use interpreter::ResourceInterpreter;
use karmada_api::rollout::REVISION;
use karmada_api::well_known_keys::{
    APPLIED_CLUSTER_OVERRIDES, APPLIED_OVERRIDES, OVERRIDDEN_FIELDS, STATUS_COLLECTION,
    STATUS_COLLECTION_DISABLED,
};
use karmada_api::{ClusterAttributes, FeatureGates, KarmadaFeature, TargetCluster, names};
use machinery::Object;
use overrides::{AppliedOverrides, CandidateOverridePolicies, OverrideFailure};
use serde_json::Value;

use crate::manifest::{PerClusterManifestPreparer, StagedRevision};

/// The inputs that the manifests of all clusters of a binding share.
pub(crate) struct SharedManifestInputs<'a> {
    pub(crate) mapping: &'a RestMapping,
    pub(crate) template: &'a Object,
    pub(crate) tree_bytes: usize,
    /// Whether the status of the kind is collected from members.
    pub(crate) collects_status: bool,
    pub(crate) builder: PerClusterManifestPreparer<'a>,
    pub(crate) overrides: CandidateOverridePolicies,
    pub(crate) revision: Option<StagedRevision<'a>>,
    pub(crate) template_reference: InvolvedObject,
}

/// The reason why the Work of a cluster cannot be built.
pub(crate) enum WorkFailure {
    Override(OverrideFailure),
    Other(String),
}

impl fmt::Display for WorkFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Override(failure) => failure.fmt(f),
            Self::Other(reason) => f.write_str(reason),
        }
    }
}

impl From<String> for WorkFailure {
    fn from(reason: String) -> Self {
        Self::Other(reason)
    }
}

/// Builds Works by the rules of the interpreter.
pub(crate) struct WorkBuilder {
    pub(crate) interpreter: ResourceInterpreter,
    pub(crate) feature_gates: FeatureGates,
}

impl WorkBuilder {
    /// Builds the Work of a target from a copy of the template, and tells which overrides were
    /// applied.
    pub(crate) async fn build(
        &self,
        source: &SharedManifestInputs<'_>,
        mut copy: Value,
        target: &TargetCluster,
        cluster: &ClusterAttributes<'_>,
    ) -> Result<(AppliedOverrides, DesiredWork), WorkFailure> {
        let common = &source.builder;
        if common.is_workload() {
            let revised = self
                .interpreter
                .revise_replica(&common.kind, copy, target.replicas)
                .await;
            copy = revised.map_err(|e| e.to_string())?;
        }
        common.set_completions(&mut copy, target)?;
        let applied = source.overrides.apply(&mut copy, &common.kind, cluster);
        let record = applied.map_err(WorkFailure::Override)?;
        let (labels, mut annotations) = common.label_manifest(&mut copy);
        if !source.collects_status {
            annotations.insert(STATUS_COLLECTION.into(), STATUS_COLLECTION_DISABLED.into());
        }
        if let Some(revision) = source.revision {
            self.stage_manifest(&common.kind, &mut copy, revision, &target.name)?;
            annotations.insert(REVISION.into(), revision.name.into());
        }
        for (key, applied) in [
            (OVERRIDDEN_FIELDS, record.retained_fields_annotation()),
            (
                APPLIED_CLUSTER_OVERRIDES,
                record.cluster_policies_annotation(),
            ),
            (APPLIED_OVERRIDES, record.policies_annotation()),
        ] {
            if let Some(text) = applied {
                annotations.insert(key.into(), text.into());
            }
        }
        if self
            .feature_gates
            .enabled(KarmadaFeature::StatefulFailoverInjection)
        {
            common.inject_preserved_labels(&mut copy, &target.name);
        }
        let draft = DesiredWork {
            namespace: names::execution_space_name(&target.name),
            name: work_name_of(&copy),
            labels,
            annotations,
            owner_references: Vec::new(),
            manifest: copy,
            suspend_dispatching: Some(common.suspends_dispatching(&target.name)),
            preserve_resources_on_deletion: Some(common.preserves_on_deletion()),
        };
        Ok((record, draft))
    }
}

/// The error of a binding whose target is no Cluster.
pub(crate) fn unknown_cluster(name: &str) -> Error {
    Error::Blocked(format!("clusters.cluster.karmada.io {name:?} not found"))
}

/// The name of the Work that holds a manifest.
fn work_name_of(manifest: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let metadata = &manifest["metadata"];
    names::work_name(
        &text(&manifest["kind"]),
        &text(&metadata["name"]),
        &text(&metadata["namespace"]),
    )
}

/// Parses a template as the base of a manifest.
pub(crate) fn parse_manifest(served: &RestMapping, template: &Object) -> Result<Value, Error> {
    let mut tree = template.value()?;
    // Objects from a list may lack `apiVersion` and `kind`.
    tree["apiVersion"] = served.api_version.as_str().into();
    tree["kind"] = served.kind().into();
    // `managedFields` is large, and overrides do not apply to it.
    if let Some(metadata) = tree["metadata"].as_object_mut() {
        metadata.remove("managedFields");
    }
    Ok(tree)
}
