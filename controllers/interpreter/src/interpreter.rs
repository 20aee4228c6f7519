//! [`Interpreter`], through which all controllers interpret resources.
//!
//! A method returns `None` when no level has a rule for the kind, that is when the hook is not
//! enabled. The levels are customization, webhook, third-party rule, native rule, in the order of
//! Karmada's `pkg/resourceinterpreter/interpreter.go`. The first level that has a rule for the
//! operation decides; its error is returned and no further level is tried.

use std::sync::Arc;

use client::Api;
use jiff::Timestamp;
use machinery::{Gvk, Object};
use openapi::karmada::Dependency;
use openapi::karmada::binding::{AggregatedItem, Component};
use flotilla_runtime::Informers;
use serde_json::{Value, json};

use crate::built_in::BuiltIn;
use crate::changed::Changed;
use crate::customized::Customized;
use crate::followed::Listener;
use crate::lua::{Arg, Limits};
use crate::native::{ClusterStatus, Error, Replicas};
use crate::operation::Operation;
use crate::pods::tree;
use crate::returned::{Returned, union};
use crate::webhook::{Outside, Question, Said, Webhooks};

/// Interprets resources. Cheap to clone. The default has only the built-in rules.
#[derive(Clone, Debug, Default)]
pub struct Interpreter {
    customized: Option<Arc<Customized>>,
    webhooks: Option<Arc<Webhooks>>,
    built_in: BuiltIn,
}

impl Interpreter {
    /// Watches the customizations and webhooks of a control plane and applies every change to them.
    pub fn follow(
        informers: &Informers,
        api: &Arc<dyn Api>,
        limits: Limits,
        outside: Outside,
    ) -> Self {
        Self {
            customized: Some(Arc::new(Customized::follow(informers, api, limits))),
            webhooks: Some(Arc::new(Webhooks::follow(informers, api, outside))),
            built_in: BuiltIn,
        }
    }

    /// Uses a fixed set of customizations and no webhooks.
    pub fn under(customizations: &[Object], limits: Limits) -> Self {
        Self {
            customized: Some(Arc::new(Customized::fixed(customizations, limits))),
            ..Self::default()
        }
    }

    /// Waits until all customizations and webhooks are listed. Until then objects are
    /// interpreted as if there were none.
    pub async fn wait_synced(&self) {
        if let Some(customized) = &self.customized {
            customized.followed.wait_synced().await;
        }
        if let Some(webhooks) = &self.webhooks {
            webhooks.followed.wait_synced().await;
        }
    }

    /// Calls `listener` after each change of customizations or webhooks that changes a rule. It
    /// runs on the informer's task and must not block.
    pub fn on_change(&self, listener: impl Fn(&Changed<'_>) + Send + Sync + 'static) {
        let listener: Listener = Arc::new(listener);
        if let Some(customized) = &self.customized {
            customized.followed.on_change(Arc::clone(&listener));
        }
        if let Some(webhooks) = &self.webhooks {
            webhooks.followed.on_change(listener);
        }
    }

    /// Whether a customization has a script for an operation on a kind.
    pub fn customizes(&self, kind: &Gvk, operation: Operation) -> bool {
        let customized = self.customized.as_ref();
        customized.is_some_and(|level| level.answers(kind, operation))
    }

    /// Whether any level has a health rule for a kind.
    pub fn tells_health(&self, kind: &Gvk) -> bool {
        let operation = Operation::InterpretHealth;
        let hooks = self.webhooks.as_ref();
        self.customizes(kind, operation)
            || hooks.is_some_and(|level| level.answers(kind, operation))
            || self.built_in.tells_health(kind)
    }

    /// Runs all scripts of an operation; `None` when no customization has one.
    async fn scripts(
        &self,
        operation: Operation,
        kind: &Gvk,
        args: impl FnOnce() -> Vec<Arg>,
    ) -> Option<Result<Vec<Returned>, Error>> {
        self.customized.as_ref()?.ask(operation, kind, args).await
    }

    /// Runs the script of an operation that has at most one per kind.
    async fn script(
        &self,
        operation: Operation,
        kind: &Gvk,
        args: impl FnOnce() -> Vec<Arg>,
    ) -> Option<Result<Returned, Error>> {
        let all = self.scripts(operation, kind, args).await?;
        all.map(|all| all.into_iter().next()).transpose()
    }

    /// Calls the webhook of an operation; `None` when no webhook covers it.
    async fn hook<'a>(
        &self,
        operation: Operation,
        kind: &Gvk,
        attributes: impl FnOnce() -> Result<Question<'a>, Error>,
    ) -> Option<Result<Said, Error>> {
        self.webhooks
            .as_ref()?
            .ask(operation, kind, attributes)
            .await
    }

    /// The replicas that a template asks for.
    pub async fn replicas(&self, kind: &Gvk, template: &Object) -> Result<Option<Replicas>, Error> {
        let args = || vec![Arg::Object(template.clone(), kind.clone())];
        let operation = Operation::InterpretReplica;
        if let Some(returned) = self.script(operation, kind, args).await {
            return returned?.replicas().map(Some);
        }
        let attributes = || about(template, "replicas");
        match self.hook(operation, kind, attributes).await {
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
        let args = || vec![Arg::Object(template.clone(), kind.clone())];
        let operation = Operation::InterpretComponent;
        if let Some(returned) = self.script(operation, kind, args).await {
            return returned?.components().map(Some);
        }
        let attributes = || about(template, "components");
        match self.hook(operation, kind, attributes).await {
            Some(result) => result?.components().map(Some),
            None => self.built_in.components(kind, template),
        }
    }

    /// The objects that a template depends on.
    pub async fn dependencies(
        &self,
        kind: &Gvk,
        template: &Object,
    ) -> Result<Option<Vec<Dependency>>, Error> {
        let args = || vec![Arg::Object(template.clone(), kind.clone())];
        let operation = Operation::InterpretDependency;
        if let Some(returned) = self.scripts(operation, kind, args).await {
            return union(returned?).map(Some);
        }
        let attributes = || about(template, "dependencies");
        match self.hook(operation, kind, attributes).await {
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
    pub async fn revise(&self, kind: &Gvk, mut copy: Value, replicas: i64) -> Result<Value, Error> {
        let args = || vec![Arg::tree(&copy), Arg::Count(replicas)];
        let operation = Operation::ReviseReplica;
        if let Some(returned) = self.script(operation, kind, args).await {
            return returned?.object();
        }
        let attributes = || {
            Ok(Question {
                object: copy.take(),
                replicas,
                ..Question::default()
            })
        };
        match self.hook(operation, kind, attributes).await {
            Some(result) => result?.object(),
            None => self.built_in.revise(kind, copy, replicas),
        }
    }

    /// The desired manifest, with the fields that the member decides copied from the observed object.
    pub async fn retain(
        &self,
        kind: &Gvk,
        mut desired: Value,
        observed: &Value,
    ) -> Result<Value, Error> {
        let args = || vec![Arg::tree(&desired), Arg::tree(observed)];
        if let Some(returned) = self.script(Operation::Retain, kind, args).await {
            return returned?.object();
        }
        let attributes = || {
            Ok(Question {
                object: desired.take(),
                observed: Some(observed),
                ..Question::default()
            })
        };
        match self.hook(Operation::Retain, kind, attributes).await {
            Some(result) => result?.object(),
            None => self.built_in.retain(kind, desired, observed),
        }
    }

    /// Whether an object in a member cluster is healthy.
    pub async fn healthy(&self, kind: &Gvk, observed: &Object) -> Result<Option<bool>, Error> {
        let args = || vec![Arg::Object(observed.clone(), kind.clone())];
        let operation = Operation::InterpretHealth;
        if let Some(returned) = self.script(operation, kind, args).await {
            return returned?.verdict().map(Some);
        }
        let attributes = || about(observed, "health");
        match self.hook(operation, kind, attributes).await {
            Some(result) => Ok(result?.healthy()),
            None => self.built_in.healthy(kind, observed),
        }
    }

    /// The part of a member object's status that is collected; `None` when there is none.
    pub async fn reflect(&self, kind: &Gvk, observed: &Object) -> Result<Option<Value>, Error> {
        let args = || vec![Arg::Object(observed.clone(), kind.clone())];
        let operation = Operation::InterpretStatus;
        if let Some(returned) = self.script(operation, kind, args).await {
            return returned?.status().map(Some);
        }
        let attributes = || about(observed, "status");
        match self.hook(operation, kind, attributes).await {
            Some(result) => Ok(result?.status()),
            None => self.built_in.reflect(kind, observed),
        }
    }

    /// Aggregates the statuses of all clusters into the template's status. Also `None` when the
    /// status is final (a finished Job).
    pub async fn aggregate(
        &self,
        kind: &Gvk,
        template: &Object,
        items: &[AggregatedItem],
        now: Timestamp,
    ) -> Result<Option<Value>, Error> {
        if let Some(summed) = self.summed(kind, template, Some(items)).await {
            let status = summed?.get_mut("status").map(Value::take);
            return Ok(Some(status.unwrap_or_else(|| json!({}))));
        }
        let items = reported(items);
        self.built_in.aggregate(kind, template, &items, now)
    }

    /// The template with the status of [`Self::aggregate_status`]. Scripts and rules may
    /// distinguish an empty list of items from none.
    pub async fn aggregated(
        &self,
        kind: &Gvk,
        template: &Object,
        items: Option<&[AggregatedItem]>,
        now: Timestamp,
    ) -> Result<Option<Value>, Error> {
        if let Some(summed) = self.summed(kind, template, items).await {
            return summed.map(Some);
        }
        let items = items.map(reported);
        let built_in = self.built_in;
        built_in.aggregated(kind, template, items.as_deref(), now)
    }

    /// The template as the aggregation script or webhook returns it.
    async fn summed(
        &self,
        kind: &Gvk,
        template: &Object,
        items: Option<&[AggregatedItem]>,
    ) -> Option<Result<Value, Error>> {
        let args = || {
            let template = Arg::Object(template.clone(), kind.clone());
            vec![template, Arg::tree(&json!(items))]
        };
        let operation = Operation::AggregateStatus;
        if let Some(returned) = self.script(operation, kind, args).await {
            return Some(returned.and_then(Returned::object));
        }
        let attributes = || {
            Ok(Question {
                items: items.unwrap_or_default(),
                ..about(template, "status")?
            })
        };
        let result = self.hook(operation, kind, attributes).await?;
        Some(result.and_then(Said::object))
    }
}

/// The attributes of a request about one object.
fn about(object: &Object, what: &'static str) -> Result<Question<'static>, Error> {
    Ok(Question {
        object: tree(object, what)?,
        ..Question::default()
    })
}

fn reported(items: &[AggregatedItem]) -> Vec<ClusterStatus<'_>> {
    let each = items.iter().map(|item| ClusterStatus {
        cluster: &item.cluster_name,
        status: item.status.as_ref(),
    });
    each.collect()
}
