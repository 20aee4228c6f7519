//! A change of a propagation policy, or a new one.

use std::sync::Arc;

use anyhow::{Context, ensure};
use async_trait::async_trait;
use client::ResourcePath;
use flotilla_cli::plan::{
    PlannedPolicies, parse_policy, plan_policy, policy_kind, policy_manifest,
};
use karmada_api::resources::{CLUSTER_POLICIES, POLICIES};
use maud::{Markup, html};
use serde_json::Value;

use super::placement_table::policy_effect;
use super::planned_action::{ActionPlan, ActionSubject, PlannedAction};
use crate::console::Console;
use crate::inventory::ObjectKey;
use crate::pages::{Navigation, PageContext, policy_path};
use crate::query::{MANIFEST, QueryParameters};
use crate::session::text_digest;

/// Lines of the field for a manifest.
const MANIFEST_ROWS: usize = 24;
const NEW_POLICY: &str = "\
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata:
  name: web
  namespace: default
spec:
  resourceSelectors:
    - apiVersion: apps/v1
      kind: Deployment
      name: web
  placement:
    clusterAffinity:
      clusterNames: []
    replicaScheduling:
      replicaSchedulingType: Duplicated
";

pub(super) struct PolicyChange {
    /// `None`: a new policy.
    key: Option<ObjectKey>,
    /// The changed policy; empty until there is one.
    manifest: String,
}

impl PolicyChange {
    pub(super) fn new(key: Option<ObjectKey>, parameters: &QueryParameters) -> Self {
        Self {
            key,
            manifest: parameters.verbatim(MANIFEST).to_owned(),
        }
    }

    /// The policy of the form. That of the page of a policy is no other one.
    fn policy(&self) -> anyhow::Result<Value> {
        let policy = parse_policy(&self.manifest)?;
        let text = |pointer: &str| {
            policy
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or("")
        };
        let (kind, name) = (text("/kind"), text("/metadata/name"));
        let namespace = text("/metadata/namespace");
        ensure!(
            kind == policy_kind(namespace),
            "a PropagationPolicy has a metadata.namespace, and a ClusterPropagationPolicy has none"
        );
        if let Some(key) = &self.key {
            ensure!(
                (namespace, name) == (&*key.0, &*key.1),
                "this page changes {} only; make another policy on its own page",
                self.subject_name()
            );
        }
        Ok(policy)
    }

    fn subject_name(&self) -> String {
        match &self.key {
            None => "policies".to_owned(),
            Some((namespace, name)) => format!("{} {name}", policy_kind(namespace)),
        }
    }

    async fn current_manifest(&self, console: &Console) -> anyhow::Result<String> {
        let Some((namespace, name)) = &self.key else {
            return Ok(NEW_POLICY.to_owned());
        };
        let resource = match &**namespace {
            "" => &CLUSTER_POLICIES,
            _ => &POLICIES,
        };
        let at = ResourcePath::object(resource, namespace, name);
        policy_manifest(&console.api.get(at).await?)
    }
}

#[async_trait]
impl PlannedAction for PolicyChange {
    fn name(&self) -> &'static str {
        "change a policy"
    }

    fn title(&self, _console: &Console) -> String {
        match self.key {
            None => "New policy".to_owned(),
            Some(_) => format!("Change {}", self.subject_name()),
        }
    }

    fn verb(&self, _console: &Console) -> String {
        "Apply the policy".to_owned()
    }

    fn subject(&self, _console: &Console) -> ActionSubject {
        ActionSubject {
            navigation: Navigation::Policies,
            path: match &self.key {
                None => "/policies".to_owned(),
                Some(key) => policy_path(key, &[], &[]),
            },
            name: self.subject_name(),
        }
    }

    fn fields(&self) -> Vec<(&'static str, String)> {
        vec![(MANIFEST, self.manifest.clone())]
    }

    async fn input(&self, context: &PageContext<'_>) -> anyhow::Result<Markup> {
        let manifest = match self.manifest.is_empty() {
            true => self.current_manifest(context.console).await?,
            false => self.manifest.clone(),
        };
        Ok(html! {
            form .manifest method="post" {
                input type="hidden" name="token" value=(context.session.form_token);
                label for="manifest" { "Policy in YAML" }
                textarea #manifest name=(MANIFEST) rows=(MANIFEST_ROWS) spellcheck="false" autocomplete="off" autocapitalize="off" wrap="off" required {
                    (manifest)
                }
                p .muted { "Nothing is written until you have seen what it does." }
                button #plan-change type="submit" { "Plan" }
            }
        })
    }

    async fn plan<'a>(&'a self, console: &'a Console) -> anyhow::Result<Option<ActionPlan<'a>>> {
        if self.manifest.is_empty() {
            return Ok(None);
        }
        let policy = self.policy()?;
        let metadata = &policy["metadata"];
        let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
        let key = (text("namespace"), text("name"));
        let planned = plan_policy(Arc::clone(&console.api), policy).await?;
        policy_plan(planned, policy_path(&key, &[], &[("done", "applied")])).map(Some)
    }
}

/// The plan that applies a changed policy, and then shows the page with an address.
pub(super) fn policy_plan<'a>(
    planned: PlannedPolicies,
    done: String,
) -> anyhow::Result<ActionPlan<'a>> {
    let differences = planned.differences()?;
    let report = &planned.report;
    let mut warnings = Vec::new();
    if !report.missing_clusters.is_empty() {
        let names = report.missing_clusters.join(", ");
        warnings.push(format!("it names clusters that do not exist: {names}"));
    }
    if !report.unserved_kinds.is_empty() {
        let kinds = report.unserved_kinds.join(", ");
        warnings.push(format!("the server does not serve {kinds}"));
    }
    Ok(ActionPlan {
        version: text_digest(&planned.content()?),
        effect: html! {
            @if planned.has_new() {
                p { "The policy is new." }
            } @else if differences.is_empty() {
                p { "The policy is as it was." }
            } @else {
                p { "The policy changes:" }
                ul .differences { @for difference in &differences { li { code { (difference) } } } }
            }
            (policy_effect(report))
        },
        warnings,
        write: Box::pin(async move {
            planned.apply().await.context("the policy is not applied")?;
            Ok(())
        }),
        done,
    })
}
