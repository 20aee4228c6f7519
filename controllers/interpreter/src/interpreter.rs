//! [`ResourceInterpreter`], through which all controllers interpret resources.
//!
//! A method returns `None` when no level has a rule for the kind, that is when the hook is not
//! enabled. The levels are customization, webhook, third-party rule, native rule, in the order of
//! Karmada's `pkg/resourceinterpreter/interpreter.go`. The first level that has a rule for the
//! operation decides; its error is returned and no further level is tried.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use client::{Api, InformerFactory};
use jiff::Timestamp;
use karmada_api::binding::{AggregatedStatusItem, Component};
use karmada_api::{DependentObjectReference, IdentityFields};
use machinery::{Gvk, Object};
use serde_json::{Value, json};

use crate::built_in::BuiltInInterpreter;
use crate::config_manager::InterpreterRuleChangeListener;
use crate::declarative::DeclarativeInterpreter;
use crate::lua::{LuaArg, LuaLimits};
use crate::native::pod_template::object_json;
use crate::native::{CollectedStatus, Error, TemplateReplicas};
use crate::operation::InterpreterOperation;
use crate::partition::set_partition;
use crate::rule_change::InterpreterRuleChange;
use crate::script_result::{ScriptResult, union_dependencies};
use crate::webhook::{
    InterpreterRequestAttributes, InterpreterWebhookResult, WebhookInterpreter,
    WebhookInterpreterOptions,
};

/// How errors call the built-in rules.
const BUILT_IN_SOURCE: &str = "built-in rule";

/// Interprets resources. Cheap to clone. The default has only the built-in rules.
#[derive(Clone, Debug, Default)]
pub struct ResourceInterpreter {
    declarative: Option<Arc<DeclarativeInterpreter>>,
    webhooks: Option<Arc<WebhookInterpreter>>,
    built_in: BuiltInInterpreter,
}

impl ResourceInterpreter {
    /// Watches the customizations and webhooks of a control plane and applies every change to them.
    pub fn watch(
        informers: &InformerFactory,
        api: &Arc<dyn Api>,
        limits: LuaLimits,
        outside: WebhookInterpreterOptions,
    ) -> Self {
        Self {
            declarative: Some(Arc::new(DeclarativeInterpreter::watch(
                informers, api, limits,
            ))),
            webhooks: Some(Arc::new(WebhookInterpreter::watch(informers, api, outside))),
            built_in: BuiltInInterpreter,
        }
    }

    /// Uses a fixed set of customizations and no webhooks.
    pub fn from_customizations(customizations: &[Object], limits: LuaLimits) -> Self {
        Self {
            declarative: Some(Arc::new(DeclarativeInterpreter::from_customizations(
                customizations,
                limits,
            ))),
            ..Self::default()
        }
    }

    /// Waits until all customizations and webhooks are listed. Until then objects are
    /// interpreted as if there were none.
    pub async fn wait_for_cache_sync(&self) {
        if let Some(customized) = &self.declarative {
            customized.config.wait_for_cache_sync().await;
        }
        if let Some(webhooks) = &self.webhooks {
            webhooks.config.wait_for_cache_sync().await;
        }
    }

    /// Calls `listener` after each change of customizations or webhooks that changes a rule. It
    /// runs on the informer's task and must not block.
    pub fn add_change_listener(
        &self,
        listener: impl Fn(&InterpreterRuleChange<'_>) + Send + Sync + 'static,
    ) {
        let listener: InterpreterRuleChangeListener = Arc::new(listener);
        if let Some(customized) = &self.declarative {
            customized.config.add_listener(Arc::clone(&listener));
        }
        if let Some(webhooks) = &self.webhooks {
            webhooks.config.add_listener(listener);
        }
    }

    /// Whether a customization has a script for an operation on a kind.
    pub fn has_customization(&self, kind: &Gvk, operation: InterpreterOperation) -> bool {
        let customized = self.declarative.as_ref();
        customized.is_some_and(|level| level.hook_enabled(kind, operation))
    }

    /// Whether any level has a health rule for a kind.
    pub fn has_health_rule(&self, kind: &Gvk) -> bool {
        let operation = InterpreterOperation::InterpretHealth;
        let hooks = self.webhooks.as_ref();
        self.has_customization(kind, operation)
            || hooks.is_some_and(|level| level.hook_enabled(kind, operation))
            || self.built_in.has_health_rule(kind)
    }

    /// Runs all scripts of an operation; `None` when no customization has one.
    async fn run_scripts(
        &self,
        operation: InterpreterOperation,
        kind: &Gvk,
        args: impl FnOnce() -> Vec<LuaArg>,
    ) -> Option<Result<Vec<ScriptResult>, Error>> {
        self.declarative
            .as_ref()?
            .run_scripts(operation, kind, args)
            .await
    }

    /// Runs the script of an operation that has at most one per kind.
    async fn run_script(
        &self,
        operation: InterpreterOperation,
        kind: &Gvk,
        args: impl FnOnce() -> Vec<LuaArg>,
    ) -> Option<Result<ScriptResult, Error>> {
        let all = self.run_scripts(operation, kind, args).await?;
        all.map(|all| all.into_iter().next()).transpose()
    }

    /// Calls the webhook of an operation; `None` when no webhook covers it.
    async fn call_webhook<'a>(
        &self,
        operation: InterpreterOperation,
        kind: &Gvk,
        attributes: impl FnOnce() -> Result<InterpreterRequestAttributes<'a>, Error>,
    ) -> Option<Result<InterpreterWebhookResult, Error>> {
        self.webhooks
            .as_ref()?
            .interpret(operation, kind, attributes)
            .await
    }

    /// The replicas that a template asks for.
    pub async fn replicas(
        &self,
        kind: &Gvk,
        template: &Object,
    ) -> Result<Option<TemplateReplicas>, Error> {
        let args = || vec![LuaArg::Object(template.clone(), kind.clone())];
        let operation = InterpreterOperation::InterpretReplica;
        if let Some(returned) = self.run_script(operation, kind, args).await {
            return returned?.replicas().map(Some);
        }
        let attributes = || request_attributes(template, "replicas");
        match self.call_webhook(operation, kind, attributes).await {
            Some(result) => result?.replicas().map(Some),
            None => self.built_in.replicas(kind, template),
        }
    }

    /// The components of a template: the parts that have a pod template each.
    pub async fn components(
        &self,
        kind: &Gvk,
        template: &Object,
    ) -> Result<Option<Vec<Component>>, Error> {
        let args = || vec![LuaArg::Object(template.clone(), kind.clone())];
        let operation = InterpreterOperation::InterpretComponent;
        if let Some(returned) = self.run_script(operation, kind, args).await {
            return returned?.components().map(Some);
        }
        let attributes = || request_attributes(template, "components");
        match self.call_webhook(operation, kind, attributes).await {
            Some(result) => result?.components().map(Some),
            None => self.built_in.components(kind, template),
        }
    }

    /// The objects that a template depends on.
    pub async fn dependencies(
        &self,
        kind: &Gvk,
        template: &Object,
    ) -> Result<Option<Vec<DependentObjectReference>>, Error> {
        let args = || vec![LuaArg::Object(template.clone(), kind.clone())];
        let operation = InterpreterOperation::InterpretDependency;
        if let Some(returned) = self.run_scripts(operation, kind, args).await {
            return union_dependencies(returned?).map(Some);
        }
        let attributes = || request_attributes(template, "dependencies");
        match self.call_webhook(operation, kind, attributes).await {
            Some(result) => Ok(Some(result?.dependencies())),
            None => self.built_in.dependencies(kind, template),
        }
    }

    /// The name of the PriorityClass in the pod template.
    pub fn priority_class(&self, kind: &Gvk, template: &Object) -> Result<Option<String>, Error> {
        self.built_in.priority_class(kind, template)
    }

    /// Writes the replicas of one cluster into the manifest for it. The manifest is returned
    /// unchanged when no rule covers its kind.
    pub async fn revise_replica(
        &self,
        kind: &Gvk,
        mut copy: Value,
        replicas: i64,
    ) -> Result<Value, Error> {
        let args = || vec![LuaArg::from_value(&copy), LuaArg::Count(replicas)];
        let operation = InterpreterOperation::ReviseReplica;
        let identity = IdentityFields::of(&copy);
        if let Some(returned) = self.run_script(operation, kind, args).await {
            let returned = returned?;
            return same_object(&identity, operation, returned.source(), returned.object());
        }
        let attributes = || {
            Ok(InterpreterRequestAttributes {
                object: copy.take(),
                replicas,
                ..InterpreterRequestAttributes::default()
            })
        };
        match self.call_webhook(operation, kind, attributes).await {
            Some(result) => {
                let result = result?;
                same_object(&identity, operation, result.source(), result.object())
            }
            None => {
                let revised = self.built_in.revise_replica(kind, copy, replicas);
                same_object(&identity, operation, BUILT_IN_SOURCE.to_owned(), revised)
            }
        }
    }

    /// Lets a percentage of the replicas of a manifest have its revision, and the others keep the
    /// one before. The manifest stays as it is when its kind has no partition.
    pub fn set_partition(
        &self,
        kind: &Gvk,
        manifest: &mut Value,
        percent: u64,
    ) -> Result<(), Error> {
        set_partition(kind, manifest, percent)
    }

    /// The desired manifest, with the fields that the member decides copied from the observed object.
    pub async fn retain(
        &self,
        kind: &Gvk,
        mut desired: Value,
        observed: &Value,
    ) -> Result<Value, Error> {
        let args = || vec![LuaArg::from_value(&desired), LuaArg::from_value(observed)];
        let operation = InterpreterOperation::Retain;
        let identity = IdentityFields::of(&desired);
        if let Some(returned) = self.run_script(operation, kind, args).await {
            let returned = returned?;
            return same_object(&identity, operation, returned.source(), returned.object());
        }
        let attributes = || {
            Ok(InterpreterRequestAttributes {
                object: desired.take(),
                observed: Some(observed),
                ..InterpreterRequestAttributes::default()
            })
        };
        match self.call_webhook(operation, kind, attributes).await {
            Some(result) => {
                let result = result?;
                same_object(&identity, operation, result.source(), result.object())
            }
            None => {
                let retained = self.built_in.retain(kind, desired, observed);
                same_object(&identity, operation, BUILT_IN_SOURCE.to_owned(), retained)
            }
        }
    }

    /// Whether an object in a member cluster is healthy.
    pub async fn interpret_health(
        &self,
        kind: &Gvk,
        observed: &Object,
    ) -> Result<Option<bool>, Error> {
        let args = || vec![LuaArg::Object(observed.clone(), kind.clone())];
        let operation = InterpreterOperation::InterpretHealth;
        if let Some(returned) = self.run_script(operation, kind, args).await {
            return returned?.health().map(Some);
        }
        let attributes = || request_attributes(observed, "health");
        match self.call_webhook(operation, kind, attributes).await {
            Some(result) => Ok(result?.healthy()),
            None => self.built_in.interpret_health(kind, observed),
        }
    }

    /// The part of a member object's status that is collected; `None` when there is none.
    pub async fn reflect_status(
        &self,
        kind: &Gvk,
        observed: &Object,
    ) -> Result<Option<Value>, Error> {
        let args = || vec![LuaArg::Object(observed.clone(), kind.clone())];
        let operation = InterpreterOperation::InterpretStatus;
        if let Some(returned) = self.run_script(operation, kind, args).await {
            return returned?.status().map(Some);
        }
        let attributes = || request_attributes(observed, "status");
        match self.call_webhook(operation, kind, attributes).await {
            Some(result) => Ok(result?.status()),
            None => self.built_in.reflect_status(kind, observed),
        }
    }

    /// Aggregates the statuses of all clusters into the template's status, which waits for every
    /// cluster in `scheduled`. Also `None` when the status is final (a finished Job).
    pub async fn aggregate_status(
        &self,
        kind: &Gvk,
        template: &Object,
        items: &[AggregatedStatusItem],
        scheduled: &BTreeSet<&str>,
        now: Timestamp,
    ) -> Result<Option<Value>, Error> {
        if let Some(summed) = self.aggregate_customized(kind, template, Some(items)).await {
            let status = summed?.get_mut("status").map(Value::take);
            return Ok(Some(status.unwrap_or_else(|| json!({}))));
        }
        let items = statuses_of_scheduled(items, scheduled);
        self.built_in.aggregate_status(kind, template, &items, now)
    }

    /// The template with the status of [`Self::aggregate_status`], for the clusters of the items. Scripts and rules may
    /// distinguish an empty list of items from none.
    pub async fn with_aggregated_status(
        &self,
        kind: &Gvk,
        template: &Object,
        items: Option<&[AggregatedStatusItem]>,
        now: Timestamp,
    ) -> Result<Option<Value>, Error> {
        if let Some(summed) = self.aggregate_customized(kind, template, items).await {
            return summed.map(Some);
        }
        let items = items.map(collected_statuses);
        let built_in = self.built_in;
        built_in.with_aggregated_status(kind, template, items.as_deref(), now)
    }

    /// The template as the aggregation script or webhook returns it.
    async fn aggregate_customized(
        &self,
        kind: &Gvk,
        template: &Object,
        items: Option<&[AggregatedStatusItem]>,
    ) -> Option<Result<Value, Error>> {
        let args = || {
            let template = LuaArg::Object(template.clone(), kind.clone());
            vec![template, LuaArg::from_value(&json!(items))]
        };
        let operation = InterpreterOperation::AggregateStatus;
        if let Some(returned) = self.run_script(operation, kind, args).await {
            return Some(returned.and_then(ScriptResult::object));
        }
        let attributes = || {
            Ok(InterpreterRequestAttributes {
                items: items.unwrap_or_default(),
                ..request_attributes(template, "status")?
            })
        };
        let result = self.call_webhook(operation, kind, attributes).await?;
        Some(result.and_then(InterpreterWebhookResult::object))
    }
}

/// The manifest that an operation returned, if it is the object that the operation was given.
fn same_object(
    identity: &IdentityFields,
    operation: InterpreterOperation,
    source: String,
    returned: Result<Value, Error>,
) -> Result<Value, Error> {
    let manifest = returned?;
    identity
        .check(&manifest)
        .map_err(|change| Error::Identity {
            rule: format!("{source}: {}", operation.name()),
            change,
        })?;
    Ok(manifest)
}

/// The attributes of a request about one object.
fn request_attributes(
    object: &Object,
    what: &'static str,
) -> Result<InterpreterRequestAttributes<'static>, Error> {
    Ok(InterpreterRequestAttributes {
        object: object_json(object, what)?,
        ..InterpreterRequestAttributes::default()
    })
}

fn collected_status(item: &AggregatedStatusItem) -> CollectedStatus<'_> {
    CollectedStatus {
        cluster: &item.cluster_name,
        status: item.status.as_ref(),
        healthy: item.health == "Healthy",
        leaving: false,
    }
}

fn collected_statuses(items: &[AggregatedStatusItem]) -> Vec<CollectedStatus<'_>> {
    items.iter().map(collected_status).collect()
}

/// The collected statuses, and an empty one for each scheduled cluster that has none, ordered by
/// cluster.
fn statuses_of_scheduled<'a>(
    items: &'a [AggregatedStatusItem],
    scheduled: &BTreeSet<&'a str>,
) -> Vec<CollectedStatus<'a>> {
    let missing = |cluster: &&'a str| {
        let status = CollectedStatus {
            cluster,
            ..CollectedStatus::default()
        };
        (*cluster, status)
    };
    let mut all: BTreeMap<&str, CollectedStatus<'_>> = scheduled.iter().map(missing).collect();
    for item in items {
        let mut status = collected_status(item);
        status.leaving = !scheduled.contains(status.cluster);
        all.insert(status.cluster, status);
    }
    all.into_values().collect()
}
