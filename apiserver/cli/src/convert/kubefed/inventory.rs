//! Sorts documents by their role in KubeFed.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};

use anyhow::{Context, bail, ensure};
use machinery::Gvk;
use serde_json::Value;

use super::cluster_set::ClusterSet;
use super::fields;
use super::malformed_objects::MalformedObjects;

/// The group of federated types whose type configuration names none.
const TYPES_GROUP: &str = "types.kubefed.io";
const CORE_GROUP: &str = "core.kubefed.io";
const SCHEDULING_GROUP: &str = "scheduling.kubefed.io";
const GROUP_SUFFIX: &str = ".kubefed.io";
const DISABLED: &str = "Disabled";
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
    /// Target types by the group and kind of their federated type.
    type_configs: HashMap<(String, String), TypeConfig>,
    /// Placements of federated namespaces by name.
    namespaces: HashMap<String, ClusterSet>,
    /// The FederatedTypeConfigs that switch something off.
    pub(super) switches: Vec<Value>,
    /// By namespace, name and target kind.
    preferences: HashMap<(String, String, String), Value>,
    used_preferences: RefCell<BTreeSet<(String, String, String)>>,
}

/// The target type of a FederatedTypeConfig, and whether its objects go to members.
struct TypeConfig {
    target: Gvk,
    propagates: bool,
}

/// Fails if a document has no name, or the identity of an earlier one.
fn check_identity(document: &Value, identities: &mut BTreeSet<String>) -> anyhow::Result<()> {
    let text = object_text(document);
    let api_version = document["apiVersion"].as_str().unwrap_or_default();
    ensure!(
        identities.insert(format!("{api_version} {text}")),
        "{text} appears more than once"
    );
    ensure!(
        !name(document).is_empty(),
        "{text}: metadata.name: must be set"
    );
    let namespace = &document["metadata"]["namespace"];
    fields::text(namespace, "metadata.namespace").context(text)?;
    Ok(())
}

impl Inventory {
    pub(super) fn new(documents: Vec<Value>) -> anyhow::Result<Self> {
        let mut malformed = MalformedObjects::default();
        let mut identities = BTreeSet::new();
        for document in &documents {
            malformed.check(check_identity(document, &mut identities));
        }
        let mut inventory = Self::default();
        // Type configurations decide which of the other objects are federated ones.
        let (core, rest): (Vec<Value>, Vec<Value>) = documents
            .into_iter()
            .partition(|document| group(document) == CORE_GROUP);
        for object in core {
            let text = object_text(&object);
            malformed.check(inventory.add_core(object).context(text));
        }
        let mut secrets = Vec::new();
        for document in rest {
            let text = object_text(&document);
            if inventory.is_federated(&document) {
                malformed.check(inventory.add_federated(document).context(text));
            } else if group(&document) == SCHEDULING_GROUP {
                malformed.check(inventory.add_preference(document).context(text));
            } else if group(&document).ends_with(GROUP_SUFFIX) {
                inventory.unequaled.push(document);
            } else if document["apiVersion"] == "v1" && document["kind"] == "Secret" {
                secrets.push(document);
            } else {
                inventory.others.push(document);
            }
        }
        inventory.sort_secrets(secrets);
        malformed.into_result()?;
        Ok(inventory)
    }

    /// Whether an object is of a federated type: one with a type configuration, or one of those
    /// that KubeFed generates for the kinds of Kubernetes.
    fn is_federated(&self, object: &Value) -> bool {
        let is_generated = group(object) == TYPES_GROUP && kind(object).starts_with(FEDERATED);
        is_generated || self.type_config(object).is_some()
    }

    fn is_federated_namespace(&self, object: &Value) -> bool {
        match self.type_config(object) {
            Some(config) => config.target.group.is_empty() && config.target.kind == "Namespace",
            None => kind(object) == FEDERATED_NAMESPACE,
        }
    }

    /// The type configuration of a federated object.
    fn type_config(&self, object: &Value) -> Option<&TypeConfig> {
        let key = (group(object).to_owned(), kind(object).to_owned());
        self.type_configs.get(&key)
    }

    fn add_federated(&mut self, object: Value) -> anyhow::Result<()> {
        fields::object(&object["spec"], "spec")?;
        if self.is_federated_namespace(&object) {
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
        fields::object(&object["spec"], "spec")?;
        match kind(&object) {
            "KubeFedCluster" => self.clusters.push(object),
            "KubeFedConfig" => {
                let scope = fields::text(&object["spec"]["scope"], "spec.scope")?;
                self.one_namespace = scope == Some("Namespaced");
            }
            "FederatedTypeConfig" => {
                self.add_type_config(&object["spec"])?;
                let spec = &object["spec"];
                if [&spec["propagation"], &spec["statusCollection"]].contains(&&DISABLED.into()) {
                    self.switches.push(object);
                }
            }
            "PropagatedVersion" | "ClusterPropagatedVersion" | "FederatedServiceStatus" => {}
            kind => bail!("kind: {kind} is not a kind of KubeFed"),
        }
        Ok(())
    }

    fn add_type_config(&mut self, spec: &Value) -> anyhow::Result<()> {
        let text = |parent: &str, key: &str| -> anyhow::Result<String> {
            let text = fields::text(&spec[parent][key], &format!("spec.{parent}.{key}"))?;
            Ok(text.unwrap_or_default().to_owned())
        };
        let target = Gvk {
            group: text("targetType", "group")?.into(),
            version: text("targetType", "version")?.into(),
            kind: text("targetType", "kind")?.into(),
        };
        ensure!(!target.kind.is_empty(), "spec.targetType.kind: must be set");
        let mut group = text("federatedType", "group")?;
        if group.is_empty() {
            TYPES_GROUP.clone_into(&mut group);
        }
        let kind = text("federatedType", "kind")?;
        ensure!(!kind.is_empty(), "spec.federatedType.kind: must be set");
        let propagates = match fields::text(&spec["propagation"], "spec.propagation")? {
            None | Some("" | "Enabled") => true,
            Some(DISABLED) => false,
            Some(propagation) => {
                bail!("spec.propagation: {propagation} is neither Enabled nor Disabled")
            }
        };
        let collection = fields::text(&spec["statusCollection"], "spec.statusCollection")?;
        if let Some(collection) = collection
            && !["", "Enabled", DISABLED].contains(&collection)
        {
            bail!("spec.statusCollection: {collection} is neither Enabled nor Disabled");
        }
        let config = TypeConfig { target, propagates };
        self.type_configs.insert((group, kind), config);
        Ok(())
    }

    fn add_preference(&mut self, object: Value) -> anyhow::Result<()> {
        fields::object(&object["spec"], "spec")?;
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
        let key = (
            namespace(object).to_owned(),
            name(object).to_owned(),
            kind(object).to_owned(),
        );
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

    /// Whether the type configuration of a federated object lets it go to members.
    pub(super) fn propagates(&self, object: &Value) -> bool {
        let config = self.type_config(object);
        config.is_none_or(|config| config.propagates)
    }

    /// Whether the type configuration of namespaces lets them go to members.
    pub(super) fn propagates_namespaces(&self) -> bool {
        let mut configs = self.type_configs.values();
        let is_namespace = |target: &Gvk| target.group.is_empty() && target.kind == "Namespace";
        configs.all(|config| config.propagates || !is_namespace(&config.target))
    }

    /// The kind of the copies of a federated object: as its type configuration says, or else the
    /// kind of Kubernetes with that name.
    pub(super) fn target_kind(&self, object: &Value) -> anyhow::Result<Gvk> {
        if let Some(config) = self.type_config(object) {
            return Ok(config.target.clone());
        }
        let federated_kind = kind(object);
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

/// The API group of an object.
fn group(object: &Value) -> &str {
    let api_version = object["apiVersion"].as_str().unwrap_or_default();
    api_version.split_once('/').map_or("", |(group, _)| group)
}

fn kind(object: &Value) -> &str {
    object["kind"].as_str().unwrap_or_default()
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
