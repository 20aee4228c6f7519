//! Sorts documents by their role in KubeFed.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};

use anyhow::{Context, bail, ensure};
use machinery::Gvk;
use serde_json::Value;

use super::cluster_set::ClusterSet;

const TYPES_GROUP: &str = "types.kubefed.io/";
const CORE_GROUP: &str = "core.kubefed.io/";
const SCHEDULING_GROUP: &str = "scheduling.kubefed.io/";
const FEDERATED: &str = "Federated";
const FEDERATED_NAMESPACE: &str = "FederatedNamespace";

/// The documents by their role.
#[derive(Default)]
pub(super) struct Inventory {
    pub(super) clusters: Vec<Value>,
    pub(super) federated: Vec<Value>,
    /// Objects that are not KubeFed's.
    pub(super) others: Vec<Value>,
    /// Objects of KubeFed's kinds that have no equal.
    pub(super) unequaled: Vec<Value>,
    /// Whether KubeFed acts in one namespace only: what lies there needs no federated namespace.
    pub(super) one_namespace: bool,
    /// Secrets with the tokens of clusters, by namespace and name.
    secrets: HashMap<(String, String), Value>,
    /// Target types by the kind of their federated type.
    type_configs: HashMap<String, TypeConfig>,
    /// Placements of federated namespaces by name.
    namespaces: HashMap<String, ClusterSet>,
    /// By namespace, name and target kind.
    preferences: HashMap<(String, String, String), Value>,
    used_preferences: RefCell<BTreeSet<(String, String, String)>>,
}

/// What a FederatedTypeConfig says.
struct TypeConfig {
    target: Gvk,
    propagates: bool,
}

impl Inventory {
    pub(super) fn new(documents: Vec<Value>) -> anyhow::Result<Self> {
        let mut inventory = Self::default();
        let mut identities = BTreeSet::new();
        let mut secrets = Vec::new();
        for document in documents {
            let text = object_text(&document);
            let group = document["apiVersion"].as_str().unwrap_or_default();
            ensure!(
                identities.insert(format!("{group} {text}")),
                "{text} appears more than once"
            );
            ensure!(
                !name(&document).is_empty(),
                "{text}: metadata.name: must be set"
            );
            let kind = document["kind"].as_str().unwrap_or_default();
            if group.starts_with(TYPES_GROUP) && kind.starts_with(FEDERATED) {
                inventory.add_federated(document).context(text)?;
            } else if group.starts_with(CORE_GROUP) {
                inventory.add_core(document).context(text)?;
            } else if group.starts_with(SCHEDULING_GROUP) {
                inventory.add_preference(document).context(text)?;
            } else if group
                .split('/')
                .next()
                .is_some_and(|g| g.ends_with(".kubefed.io"))
            {
                inventory.unequaled.push(document);
            } else if group == "v1" && kind == "Secret" {
                secrets.push(document);
            } else {
                inventory.others.push(document);
            }
        }
        inventory.sort_secrets(secrets);
        Ok(inventory)
    }

    fn add_federated(&mut self, object: Value) -> anyhow::Result<()> {
        if object["kind"] == FEDERATED_NAMESPACE {
            ensure!(
                namespace(&object) == name(&object),
                "metadata.namespace: a federated namespace lies in the namespace of its name"
            );
            let placement = ClusterSet::of_placement(&object["spec"]["placement"])?;
            self.namespaces.insert(name(&object).to_owned(), placement);
        }
        self.federated.push(object);
        Ok(())
    }

    /// The kinds that KubeFed's own controllers write have no meaning without them.
    fn add_core(&mut self, object: Value) -> anyhow::Result<()> {
        match object["kind"].as_str().unwrap_or_default() {
            "KubeFedCluster" => self.clusters.push(object),
            "KubeFedConfig" => self.one_namespace = object["spec"]["scope"] == "Namespaced",
            "FederatedTypeConfig" => {
                let target = &object["spec"]["targetType"];
                let text = |field: &str| target[field].as_str().unwrap_or_default().to_owned();
                ensure!(
                    target["kind"].is_string(),
                    "spec.targetType.kind: must be set"
                );
                let federated = object["spec"]["federatedType"]["kind"].as_str();
                let federated = federated.context("spec.federatedType.kind: must be set")?;
                let config = TypeConfig {
                    target: Gvk {
                        group: text("group").into(),
                        version: text("version").into(),
                        kind: text("kind").into(),
                    },
                    propagates: object["spec"]["propagation"] != "Disabled",
                };
                self.type_configs.insert(federated.to_owned(), config);
            }
            "PropagatedVersion" | "ClusterPropagatedVersion" | "FederatedServiceStatus" => {}
            kind => bail!("kind: {kind} is not a kind of KubeFed"),
        }
        Ok(())
    }

    fn add_preference(&mut self, object: Value) -> anyhow::Result<()> {
        let kind = object["spec"]["targetKind"].as_str();
        let kind = kind.context("spec.targetKind: must be set")?.to_owned();
        let key = (
            namespace(&object).to_owned(),
            name(&object).to_owned(),
            kind,
        );
        self.preferences.insert(key, object);
        Ok(())
    }

    /// The Secrets that clusters name are converted with them. The others beside them are KubeFed's
    /// own; those of other namespaces stay as they are.
    fn sort_secrets(&mut self, secrets: Vec<Value>) {
        let key = |object: &Value, name: &str| (namespace(object).to_owned(), name.to_owned());
        let clusters = self.clusters.iter();
        let named: BTreeSet<_> = clusters
            .filter_map(|c| Some(key(c, c["spec"]["secretRef"]["name"].as_str()?)))
            .collect();
        let clusters = self.clusters.iter();
        let system_namespaces: BTreeSet<String> =
            clusters.map(|c| namespace(c).to_owned()).collect();
        for secret in secrets {
            let key = key(&secret, name(&secret));
            if named.contains(&key) {
                self.secrets.insert(key, secret);
            } else if !system_namespaces.contains(&key.0) {
                self.others.push(secret);
            }
        }
    }

    pub(super) fn secret(&self, namespace: &str, name: &str) -> Option<&Value> {
        self.secrets.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// The placement of a federated namespace.
    pub(super) fn namespace_placement(&self, name: &str) -> Option<&ClusterSet> {
        self.namespaces.get(name)
    }

    /// The replica preference of a federated object, which has its name.
    pub(super) fn preference(&self, object: &Value) -> Option<&Value> {
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        let key = (namespace(object).to_owned(), name(object).to_owned(), kind);
        let preference = self.preferences.get(&key)?;
        self.used_preferences.borrow_mut().insert(key);
        Some(preference)
    }

    /// The replica preferences whose targets were not converted.
    pub(super) fn unused_preferences(&self) -> Vec<&Value> {
        let used = self.used_preferences.borrow();
        let unused = self
            .preferences
            .iter()
            .filter(|(key, _)| !used.contains(key));
        unused.map(|(_, preference)| preference).collect()
    }

    /// Whether the type configuration of a federated kind lets its objects go to members.
    pub(super) fn propagates(&self, federated_kind: &str) -> bool {
        let config = self.type_configs.get(federated_kind);
        config.is_none_or(|config| config.propagates)
    }

    /// The kind of the copies of a federated kind: as its type configuration says, or else the
    /// kind of Kubernetes with that name.
    pub(super) fn target_kind(&self, federated_kind: &str) -> anyhow::Result<Gvk> {
        if let Some(config) = self.type_configs.get(federated_kind) {
            return Ok(config.target.clone());
        }
        let kind = federated_kind.strip_prefix(FEDERATED).unwrap_or_default();
        let kinds = openapi::catalog().kinds().iter();
        let target = kinds
            .filter(|k| k.gvk.kind == kind && !k.gvk.group.ends_with("karmada.io"))
            .find(|k| !k.computed && k.deprecation_warning.is_none());
        let target = target.with_context(|| {
            format!("kind: the kind of {federated_kind}'s copies is not known; pass its FederatedTypeConfig too")
        })?;
        Ok(target.gvk.clone())
    }
}

pub(super) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

pub(super) fn namespace(object: &Value) -> &str {
    object["metadata"]["namespace"].as_str().unwrap_or_default()
}

/// Names an object in messages.
pub(super) fn object_text(object: &Value) -> String {
    let kind = object["kind"].as_str().unwrap_or("an object without kind");
    match namespace(object) {
        "" => format!("{kind} {}", name(object)),
        namespace => format!("{kind} {namespace}/{}", name(object)),
    }
}
