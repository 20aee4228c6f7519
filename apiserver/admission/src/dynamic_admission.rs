//! Runs the admission that users configure: policies and webhooks, in the order of kube-apiserver's
//! plugins.

use std::sync::Arc;

use machinery::{Gvr, Status};
use serde_json::Value;

use crate::attributes::AdmissionAttributes;
use crate::equivalent_versions::EquivalentVersions;
use crate::policies::PolicyDispatcher;
use crate::webhooks::WebhookDispatcher;

/// Runs the policies and webhooks in force.
pub struct DynamicAdmission {
    webhooks: Arc<WebhookDispatcher>,
    policies: Arc<PolicyDispatcher>,
}

impl DynamicAdmission {
    pub fn new(webhooks: Arc<WebhookDispatcher>, policies: Arc<PolicyDispatcher>) -> Arc<Self> {
        Arc::new(Self { webhooks, policies })
    }

    /// Whether any policy or webhook has a rule for a resource, for any operation; does no I/O.
    pub fn has_rule_for(&self, resource: &Gvr, subresource: &str) -> bool {
        self.policies.has_policy_for(resource, subresource)
            || self.webhooks.has_webhook_for(resource, subresource)
    }

    /// Runs the mutating policies and then the mutating webhooks on `new` (null in a deletion). If
    /// the object changed afterwards, those with a reinvocation policy run a second time. Returns
    /// whether the object changed; adds the warnings for the client.
    pub async fn mutate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        versions: &EquivalentVersions<'_>,
        new: &mut Value,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<bool, Status> {
        let policies = &self.policies;
        let mutations = policies
            .mutate(attributes, versions, new, old, None)
            .await?;
        let mut calls = self
            .webhooks
            .mutate(attributes, versions, new, old, warnings)
            .await?;
        if !mutations.changed && !calls.changed() {
            return Ok(false);
        }
        if mutations.may_reinvoke() {
            let reinvocation = policies
                .mutate(attributes, versions, new, old, Some(&mutations))
                .await?;
            if reinvocation.changed {
                calls.require_all();
            }
        }
        self.webhooks
            .reinvoke(&calls, attributes, versions, new, old, warnings)
            .await?;
        Ok(true)
    }

    /// Validates: policies first, then webhooks.
    pub async fn validate(
        &self,
        attributes: &AdmissionAttributes<'_>,
        versions: &EquivalentVersions<'_>,
        new: &Value,
        old: Option<&Value>,
        warnings: &mut Vec<String>,
    ) -> Result<(), Status> {
        self.policies
            .validate(attributes, versions, new, old, warnings)
            .await?;
        let webhooks = &self.webhooks;
        webhooks
            .validate(attributes, versions, new, old, warnings)
            .await
    }
}
