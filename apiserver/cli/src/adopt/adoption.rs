//! Decides for each object of a member how it becomes a template, and writes templates and
//! policies. Each step tolerates that its work is already done, so that an interrupted adoption can
//! be repeated.

use std::fmt;

use anyhow::{Context, anyhow, ensure};
use client::{Api, Patch, ResourcePath, WriteOptions, ignore_not_found};
use karmada_api::well_known_keys::{
    CLUSTER_POLICY_NAME, POLICY_NAME, POLICY_NAMESPACE, SKIP_AUTO_PROPAGATION,
};
use karmada_api::{Cluster, ClusterAttributes};
use machinery::{Gvk, Gvr, Object};
use overrides::CandidateOverridePolicies;
use serde_json::{Value, json};

use super::candidates::CandidateObject;
use crate::field_differences::{FieldDifference, field_differences};
use crate::object_lists::policy_resource;
use crate::promote::promotion::{Promotion, PromotionOptions};

/// The clusters that a policy names.
const CLUSTER_NAMES: &str = "/spec/placement/clusterAffinity/clusterNames";

/// A namespace that exists in the control plane goes to its clusters without a policy.
#[derive(Debug)]
pub(super) struct PropagatedByItself;

impl fmt::Display for PropagatedByItself {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the control plane has a namespace of this name, which it propagates itself")
    }
}

impl std::error::Error for PropagatedByItself {}

/// The write that makes an object a template.
pub(super) enum AdoptionStep {
    /// The policy, and then the template.
    CreateTemplate,
    /// The policy of a template that no policy has claimed.
    CreatePolicy,
    /// The cluster is added to the policy of this version.
    ExtendPolicy(Object),
    /// Template and policy exist.
    Nothing,
}

/// An object that may be adopted.
pub(super) struct PlannedAdoption {
    pub(super) promotion: Promotion,
    pub(super) uid: String,
    pub(super) step: AdoptionStep,
    pub(super) differences: Vec<FieldDifference>,
}

/// The control plane, and the member whose objects are adopted.
pub(super) struct AdoptionPlanner<'a> {
    pub(super) control: &'a dyn Api,
    pub(super) cluster: &'a Object,
    pub(super) cluster_view: &'a Cluster,
    /// All override policies.
    pub(super) overrides: &'a [Object],
}

impl AdoptionPlanner<'_> {
    /// Plans the adoption of one object; the error says why it cannot be adopted.
    pub(super) async fn plan(
        &self,
        candidate: &CandidateObject,
    ) -> anyhow::Result<PlannedAdoption> {
        let options = PromotionOptions {
            cluster: self.cluster.name().to_owned(),
            policy_name: None,
            propagate_dependencies: false,
            dry_run: false,
        };
        let mut promotion = Promotion::new(&options, &candidate.resource, &candidate.object)?;
        if candidate.resource.kind == "Namespace" {
            // A namespace without the label goes to every cluster.
            promotion.template["metadata"]["labels"][SKIP_AUTO_PROPAGATION] = json!("true");
        }
        let at = template_path(&promotion);
        let template = ignore_not_found(self.control.get(at).await)?;
        let policy = ignore_not_found(self.control.get(policy_path(&promotion)?).await)?;
        let (step, desired) = match template {
            None => {
                if let Some(policy) = policy {
                    check_policy(&promotion, &policy)?;
                }
                let desired = self.dry_run_template(&promotion).await?;
                (AdoptionStep::CreateTemplate, desired)
            }
            Some(template) => {
                let step = self.step_for_template(&promotion, &template, policy)?;
                (step, template.value()?)
            }
        };
        let manifest = self.apply_overrides(&promotion, desired)?;
        Ok(PlannedAdoption {
            differences: field_differences(&candidate.object.value()?, &manifest),
            uid: candidate.object.uid().to_owned(),
            promotion,
            step,
        })
    }

    /// The template as the control plane would store it. Before its namespace exists nobody can
    /// say, and it is taken as it is.
    async fn dry_run_template(&self, promotion: &Promotion) -> anyhow::Result<Value> {
        let at = template_path(promotion);
        let options = WriteOptions {
            dry_run: true,
            ..WriteOptions::default()
        };
        let body = promotion.template.clone().into();
        let stored = self
            .control
            .create(ResourcePath { name: "", ..at }, body, &options);
        match stored.await {
            Ok(stored) => Ok(stored.value()?),
            Err(error) if error.is_not_found() => Ok(promotion.template.clone()),
            Err(error) => Err(error).context("the control plane refuses the template"),
        }
    }

    fn step_for_template(
        &self,
        promotion: &Promotion,
        template: &Object,
        policy: Option<Object>,
    ) -> anyhow::Result<AdoptionStep> {
        let policy_name = promotion.policy["metadata"]["name"].as_str();
        if let Some(claim) = claiming_policy(template) {
            ensure!(
                Some(claim.rsplit('/').next().unwrap_or_default()) == policy_name,
                "its template belongs to the policy {claim}; add the cluster to it"
            );
        }
        let Some(policy) = policy else {
            ensure!(promotion.resource.kind != "Namespace", PropagatedByItself);
            return Ok(AdoptionStep::CreatePolicy);
        };
        let clusters = check_policy(promotion, &policy)?;
        match clusters.iter().any(|name| name == self.cluster.name()) {
            true => Ok(AdoptionStep::Nothing),
            false => Ok(AdoptionStep::ExtendPolicy(policy)),
        }
    }

    fn apply_overrides(&self, promotion: &Promotion, mut desired: Value) -> anyhow::Result<Value> {
        let namespace = promotion.namespace.as_str();
        let of_object = self.overrides.iter().filter(|policy| {
            policy.namespace().is_empty()
                || (!namespace.is_empty() && policy.namespace() == namespace)
        });
        let policies: Vec<Object> = of_object.cloned().collect();
        let Gvr { group, version, .. } = promotion.resource.resource.clone();
        let kind = Gvk::new(group, version, promotion.resource.kind.clone());
        let attributes: ClusterAttributes<'_> = self.cluster_view.attributes(self.cluster);
        CandidateOverridePolicies::of_objects(&policies)
            .apply(&mut desired, &kind, &attributes)
            .map_err(|failure| anyhow!("{failure}"))?;
        Ok(desired)
    }
}

impl PlannedAdoption {
    /// Writes what the step says. The policy precedes the template, which no other policy can then
    /// claim in between.
    pub(super) async fn write(&self, control: &dyn Api, cluster: &str) -> client::Result<()> {
        match &self.step {
            AdoptionStep::CreateTemplate => {
                self.create_policy(control).await?;
                let at = ResourcePath {
                    name: "",
                    ..template_path(&self.promotion)
                };
                let body = self.promotion.template.clone().into();
                let options = WriteOptions::default();
                control.create(at, body, &options).await.map(drop)
            }
            AdoptionStep::CreatePolicy => self.create_policy(control).await,
            AdoptionStep::ExtendPolicy(policy) => extend_policy(control, policy, cluster).await,
            AdoptionStep::Nothing => Ok(()),
        }
    }

    async fn create_policy(&self, control: &dyn Api) -> client::Result<()> {
        let namespace = &self.promotion.namespace;
        let at = ResourcePath::collection(policy_resource(namespace), namespace);
        let body = self.promotion.policy.clone().into();
        match control.create(at, body, &WriteOptions::default()).await {
            // An interrupted adoption has created it.
            Err(error) if error.is_already_exists() => Ok(()),
            created => created.map(drop),
        }
    }
}

/// The clusters of a policy that an adoption has created.
fn check_policy(promotion: &Promotion, policy: &Object) -> anyhow::Result<Vec<String>> {
    let policy = policy.value()?;
    let clusters = policy.pointer(CLUSTER_NAMES).and_then(Value::as_array);
    let selectors = policy["spec"]["resourceSelectors"].as_array();
    let selector = selectors.filter(|s| s.len() == 1).and_then(|s| s.first());
    match (clusters, selector.map(|s| &s["name"])) {
        (Some(clusters), Some(name)) if *name == promotion.name => {
            let names = clusters.iter().filter_map(Value::as_str);
            Ok(names.map(str::to_owned).collect())
        }
        _ => Err(anyhow!(
            "the policy {} has another content; delete it or change it by hand",
            policy["metadata"]["name"].as_str().unwrap_or_default()
        )),
    }
}

/// Adds a cluster to the policy, unless it has changed since it was read.
async fn extend_policy(control: &dyn Api, policy: &Object, cluster: &str) -> client::Result<()> {
    let stored = policy.value()?;
    let clusters = stored.pointer(CLUSTER_NAMES).and_then(Value::as_array);
    let mut clusters = clusters.cloned().unwrap_or_default();
    clusters.push(cluster.into());
    let patch = json!({
        "metadata": {"resourceVersion": policy.revision().to_string()},
        "spec": {"placement": {"clusterAffinity": {"clusterNames": clusters}}},
    });
    let resource = policy_resource(policy.namespace());
    let at = ResourcePath::of_object(resource, policy);
    let options = WriteOptions::default();
    control.patch(at, Patch::Merge(patch), &options).await?;
    Ok(())
}

fn policy_path(promotion: &Promotion) -> anyhow::Result<ResourcePath<'_>> {
    let name = promotion.policy["metadata"]["name"].as_str();
    let name = name.context("the policy has no name")?;
    let resource = policy_resource(&promotion.namespace);
    Ok(ResourcePath::object(resource, &promotion.namespace, name))
}

fn template_path(promotion: &Promotion) -> ResourcePath<'_> {
    let resource = &promotion.resource.resource;
    ResourcePath::object(resource, &promotion.namespace, &promotion.name)
}

/// The policy that has claimed a template, as `namespace/name` or `name`.
fn claiming_policy(template: &Object) -> Option<String> {
    let annotations = template.annotations();
    let get = |key: &str| annotations.get(key).filter(|name| !name.is_empty());
    if let Some(name) = get(POLICY_NAME) {
        let namespace = get(POLICY_NAMESPACE);
        return Some(match namespace {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.clone(),
        });
    }
    get(CLUSTER_POLICY_NAME).cloned()
}
