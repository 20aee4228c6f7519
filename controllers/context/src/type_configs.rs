//! Switches kinds on and off at run time, as KubeFed's FederatedTypeConfigs say. A kind without
//! one is propagated unless a flag of the start skips it, and its status is collected.

use std::sync::Arc;

use client::{ApiResource, Informer, InformerEvent};
use karmada_api::{FederatedTypeConfig, TYPE_CONFIG_NAMESPACE};
use machinery::{Gvk, Object};

use crate::template_filter::SkippedResourceConfig;

const BY_TARGET: &str = "target";

/// The kinds that FederatedTypeConfigs and the flag switch on and off. Clones share their state.
#[derive(Clone)]
pub struct TypeConfigs {
    informer: Informer,
    skipped_resources: SkippedResourceConfig,
}

impl TypeConfigs {
    pub fn new(informer: Informer, skipped_resources: SkippedResourceConfig) -> Self {
        informer.add_index(BY_TARGET, |config| target_key(config).into_iter().collect());
        Self {
            informer,
            skipped_resources,
        }
    }

    pub fn informer(&self) -> &Informer {
        &self.informer
    }

    /// Calls `handler` with the targets of each configuration that is created, edited or deleted
    /// after the start, on the informer's task.
    pub fn on_change(&self, handler: impl Fn(&[TypeConfigTarget]) + Send + Sync + 'static) {
        self.informer.add_event_handler(move |change| {
            if is_spec_change(change) {
                let versions = [change.old, change.new].into_iter().flatten();
                let targets: Vec<_> = versions.filter_map(target_key).collect();
                let targets: Vec<_> = targets.into_iter().map(TypeConfigTarget).collect();
                handler(&targets);
            }
        });
    }

    /// Whether objects of a resource may be templates, now or after a configuration has changed.
    /// `followed`: they were before.
    pub(crate) fn may_hold_templates(&self, resource: &ApiResource, followed: bool) -> bool {
        let kind = resource.resource.with_kind(resource.kind.clone());
        self.skipped_resources.can_hold_templates(resource)
            && (followed || !self.skipped_resources.skips(&kind) || self.propagates(&kind))
    }

    /// Whether objects of a kind are propagated.
    pub fn propagates(&self, kind: &Gvk) -> bool {
        match self.find(kind) {
            Some(config) => config.propagates(),
            None => !self.skipped_resources.skips(kind),
        }
    }

    /// Whether a configuration switches the propagation of a kind off.
    pub fn is_disabled(&self, kind: &Gvk) -> bool {
        self.find(kind).is_some_and(|config| !config.propagates())
    }

    /// Whether the status of a kind is collected from members.
    pub fn collects_status(&self, kind: &Gvk) -> bool {
        self.find(kind)
            .is_none_or(|config| config.collects_status())
    }

    /// The configuration of a kind. Admission lets each kind have one.
    fn find(&self, kind: &Gvk) -> Option<Arc<FederatedTypeConfig>> {
        if self.informer.is_empty() {
            return None;
        }
        let configs = self.informer.by_index(BY_TARGET, &kind_key(kind));
        configs.iter().find_map(|config| config.decode().ok())
    }
}

/// The target of a configuration, in any version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TypeConfigTarget(String);

impl TypeConfigTarget {
    pub fn is(&self, kind: &Gvk) -> bool {
        self.0 == kind_key(kind)
    }
}

fn kind_key(kind: &Gvk) -> String {
    format!("{}/{}", kind.group, kind.kind)
}

fn target_key(config: &Object) -> Option<String> {
    let view = config.decode::<FederatedTypeConfig>().ok()?;
    let counts = config.namespace() == TYPE_CONFIG_NAMESPACE && !config.meta().deleting;
    counts.then(|| format!("{}/{}", view.group(), view.kind()))
}

fn is_spec_change(change: &InformerEvent<'_>) -> bool {
    match (change.old, change.new) {
        (Some(old), Some(new)) => {
            let version = |config: &Object| (config.meta().generation, config.meta().deleting);
            version(old) != version(new)
        }
        _ => !change.in_initial_list,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::{Api, InformerFactory, ListWatchSelector, ShutdownToken, TaskGroup};
    use client_fake::FakeApi;
    use karmada_api::resources::FEDERATED_TYPE_CONFIGS;
    use machinery::Gvr;
    use serde_json::{Value, json};

    fn type_config(namespace: &str, kind: &str, spec: Value) -> Value {
        let mut spec = spec;
        spec["targetType"] = json!({"group": "apps", "version": "v1", "kind": kind});
        let name = format!("{}s.apps", kind.to_lowercase());
        json!({"apiVersion": "core.kubefed.io/v1beta1", "kind": "FederatedTypeConfig",
            "metadata": {"name": name, "namespace": namespace}, "spec": spec})
    }

    // proves: DET-type-configs, DET-type-config-namespace
    #[tokio::test]
    async fn a_configuration_comes_before_the_flag() {
        let fake = FakeApi::new();
        let enabled = json!({"propagation": "Enabled"});
        let disabled = json!({"propagation": "Disabled", "statusCollection": "Disabled"});
        let no_status = json!({"propagation": "Enabled", "statusCollection": "Disabled"});
        for (namespace, kind, spec) in [
            (TYPE_CONFIG_NAMESPACE, "Skipped", enabled),
            (TYPE_CONFIG_NAMESPACE, "Deployment", disabled.clone()),
            (TYPE_CONFIG_NAMESPACE, "StatefulSet", no_status),
            ("elsewhere", "DaemonSet", disabled),
        ] {
            fake.seed(&FEDERATED_TYPE_CONFIGS, type_config(namespace, kind, spec));
        }
        let api: Arc<dyn Api> = fake;
        let tasks = TaskGroup::new(ShutdownToken::new());
        let all = ListWatchSelector::all(&FEDERATED_TYPE_CONFIGS);
        let informers = InformerFactory::new(&tasks);
        let informer = informers.get(&api, &all);
        let skipped = SkippedResourceConfig::new(&["apps/v1/Skipped,Unlisted".into()]).unwrap();
        let configs = TypeConfigs::new(informer, skipped);
        configs.informer().wait_for_cache_sync().await;
        for (kind, propagates, disabled, collects) in [
            ("Skipped", true, false, true),
            ("Unlisted", false, false, true),
            ("Deployment", false, true, false),
            ("StatefulSet", true, false, false),
            ("DaemonSet", true, false, true),
            ("ReplicaSet", true, false, true),
        ] {
            let gvk = Gvk::new("apps", "v1", kind);
            let actual = (
                configs.propagates(&gvk),
                configs.is_disabled(&gvk),
                configs.collects_status(&gvk),
            );
            assert_eq!(actual, (propagates, disabled, collects), "{kind}");
            let resource = ApiResource {
                resource: Gvr::new("apps", "v1", "things"),
                kind: kind.into(),
                namespaced: true,
                verbs: ["list", "watch", "delete"].map(Into::into).to_vec(),
                subresources: vec![],
                categories: vec![],
                short_names: vec![],
            };
            assert!(configs.may_hold_templates(&resource, true), "{kind}");
            let is_candidate = configs.may_hold_templates(&resource, false);
            assert_eq!(is_candidate, kind != "Unlisted", "{kind}");
        }
        tasks.stop().await;
    }
}
