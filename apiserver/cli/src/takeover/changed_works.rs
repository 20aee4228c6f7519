//! Compares the Works of a Karmada with what Flotilla's binding controller would write for the same
//! bindings, before anything is moved.
//!
//! bindings, templates, overrides ──[`WorkSimulation`]──► Works that would be written ──► lines
//!
//! A Work with the same meaning counts as equal: empty and absent fields are the same, and records
//! of keys are sets.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use anyhow::Context;
use binding::{SimulatedBinding, SimulatedWork, WorkChange, WorkSimulation, WorkSimulationOptions};
use client::{Api, ApiResource, ResourcePath, ignore_not_found};
use flotilla_runtime::RestMapping;
use futures_util::{StreamExt, TryStreamExt, stream};
use interpreter::{LuaLimits, ResourceInterpreter};
use karmada_api::resources::{
    BINDINGS, CLUSTER_BINDINGS, CLUSTERS, CUSTOMIZATIONS, WEBHOOK_CONFIGURATIONS, WORKS,
};
use karmada_api::well_known_keys::{MANAGED_ANNOTATIONS, MANAGED_LABELS};
use karmada_api::{FeatureGates, ResourceBinding};
use machinery::Object;
use serde_json::Value;

use super::summary::first_lines;
use crate::field_differences::differing_paths;
use crate::namespace_gate::read_gate;
use crate::object_lists::{ListedPolicyNamespaces, list_all, list_overrides};
use crate::type_configs::{DisablingConfigs, find_disabling_configs};

/// The bindings that are simulated at once; each reads its template.
const CONCURRENT_BINDINGS: usize = 16;
/// The fields of a Work that are named, and the characters of each.
const MAX_FIELDS: usize = 5;
const MAX_PATH_CHARS: usize = 120;
/// The switches of a Work that are off where they are absent.
const SWITCHES: [&str; 2] = ["suspendDispatching", "preserveResourcesOnDeletion"];

/// The Works that Flotilla would write.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ChangedWorks {
    /// The Works whose content would change, one line each.
    pub(super) changes: Vec<String>,
    pub(super) notes: Vec<String>,
}

/// Finds the Works that Flotilla would write. Works of kinds that the host does not serve, or whose
/// propagation is switched off, stay as they are.
pub(super) async fn changed_works(
    host: &dyn Api,
    gates: FeatureGates,
) -> anyhow::Result<ChangedWorks> {
    let mut bindings = list_all(host, &BINDINGS, "").await?;
    bindings.extend(list_all(host, &CLUSTER_BINDINGS, "").await?);
    let customizations = list_all(host, &CUSTOMIZATIONS, "").await?;
    let simulation = WorkSimulation::new(WorkSimulationOptions {
        interpreter: ResourceInterpreter::from_customizations(
            &customizations,
            LuaLimits::default(),
        ),
        feature_gates: gates,
        clusters: &list_all(host, &CLUSTERS, "").await?,
        overrides: list_overrides(host, ListedPolicyNamespaces::AllNamespaces).await?,
        works: list_all(host, &WORKS, "").await?,
    });
    let kinds = KindSettings::read(host, &bindings).await?;
    let results = stream::iter(&bindings)
        .map(|binding| simulate(host, &simulation, &kinds, binding))
        .buffered(CONCURRENT_BINDINGS);
    let mut report = WorkReport::default();
    let mut results = std::pin::pin!(results);
    while let Some((template, works)) = results.try_next().await? {
        for work in works {
            report.add(&template, work);
        }
    }
    let mut changed = report.finish();
    let webhooks = list_all(host, &WEBHOOK_CONFIGURATIONS, "").await?;
    if !webhooks.is_empty() {
        changed.notes.push(
            "interpreter webhooks are not called here: a kind whose replicas one revises may \
             appear as changed"
                .to_owned(),
        );
    }
    Ok(changed)
}

/// The kinds of the bindings as the host serves them, with what is switched off, and the gates of
/// namespaces.
struct KindSettings {
    /// By `apiVersion` and kind.
    kinds: BTreeMap<(String, String), (RestMapping, DisablingConfigs)>,
    namespace_gates: BTreeMap<String, Option<Vec<String>>>,
}

impl KindSettings {
    async fn read(host: &dyn Api, bindings: &[Object]) -> anyhow::Result<Self> {
        let discovered = host.discover().await?.resources;
        let mut settings = Self {
            kinds: BTreeMap::new(),
            namespace_gates: BTreeMap::new(),
        };
        for binding in bindings {
            let namespace = binding.namespace();
            if let Entry::Vacant(vacant) = settings.namespace_gates.entry(namespace.to_owned()) {
                vacant.insert(read_gate(host, namespace).await?);
            }
            let key = kind_of(&*binding.decode::<ResourceBinding>()?);
            if settings.kinds.contains_key(&key) {
                continue;
            }
            let is_kind = |served: &&ApiResource| {
                served.kind == key.1 && served.resource.api_version() == key.0
            };
            let Some(served) = discovered.iter().find(is_kind) else {
                continue;
            };
            let configs = find_disabling_configs(host, served).await;
            let mapping = RestMapping::from_api_resource(served);
            settings.kinds.insert(key, (mapping, configs));
        }
        Ok(settings)
    }
}

fn kind_of(binding: &ResourceBinding) -> (String, String) {
    let of = &binding.spec.resource;
    (of.api_version.clone(), of.kind.clone())
}

/// The name of a template, and what would be written for it.
async fn simulate(
    host: &dyn Api,
    simulation: &WorkSimulation,
    kinds: &KindSettings,
    binding: &Object,
) -> anyhow::Result<(String, Vec<SimulatedWork>)> {
    let view = binding.decode::<ResourceBinding>()?;
    let of = &view.spec.resource;
    let name = match of.namespace.as_str() {
        "" => format!("{} {}", of.kind, of.name),
        namespace => format!("{} {namespace}/{}", of.kind, of.name),
    };
    let Some((mapping, switches)) = kinds.kinds.get(&kind_of(&view)) else {
        return Ok((name, Vec::new()));
    };
    if switches.propagation.is_some() {
        return Ok((name, Vec::new()));
    }
    let at = ResourcePath::object(&mapping.gvr, &of.namespace, &of.name);
    let template = ignore_not_found(host.get(at).await);
    let Some(template) = template.with_context(|| name.clone())? else {
        return Ok((name, Vec::new()));
    };
    let gate = kinds.namespace_gates.get(binding.namespace());
    let case = SimulatedBinding {
        binding,
        mapping,
        template: &template,
        namespace_gate: gate.cloned().flatten(),
        collects_status: switches.status.is_none(),
    };
    let works = simulation.changes(&case).await;
    Ok((name.clone(), works.context(name)?))
}

#[derive(Default)]
struct WorkReport {
    changes: Vec<String>,
    blocked: Vec<String>,
    /// The Works that would be written with the same meaning.
    rewritten: usize,
}

impl WorkReport {
    fn add(&mut self, template: &str, work: SimulatedWork) {
        let cluster = &work.cluster;
        match work.change {
            WorkChange::Create => {
                let line =
                    format!("{template} would be created in {cluster}, where it has no Work");
                self.changes.push(line);
            }
            WorkChange::Delete => {
                let line = format!("{template} would be deleted in {cluster}, which is no target");
                self.changes.push(line);
            }
            WorkChange::Update { before, after } => {
                let fields = changed_fields(&before["spec"], &after["spec"]);
                match fields.is_empty() {
                    true => self.rewritten += 1,
                    false => self.changes.push(format!(
                        "{template} would change in {cluster}, in its Work: {}",
                        join_fields(&fields)
                    )),
                }
            }
            WorkChange::Blocked(reason) => {
                let line = format!("{template} stays as it is in {cluster}: {reason}");
                self.blocked.push(line);
            }
        }
    }

    fn finish(self) -> ChangedWorks {
        let mut notes = first_lines(self.blocked);
        if self.rewritten > 0 {
            notes.push(format!(
                "{} Works would be written anew, without a change for their members",
                self.rewritten
            ));
        }
        ChangedWorks {
            changes: first_lines(self.changes),
            notes,
        }
    }
}

/// The fields in which two specs of a Work differ, as paths below `spec`.
pub(super) fn changed_fields(before: &Value, after: &Value) -> Vec<String> {
    differing_paths(&comparable(before), &comparable(after))
}

/// The first of many fields, as text.
pub(super) fn join_fields(fields: &[String]) -> String {
    let shown = fields.iter().take(MAX_FIELDS);
    let mut shown: Vec<String> = shown
        .map(|path| match path.char_indices().nth(MAX_PATH_CHARS) {
            Some((end, _)) => format!("{}…", &path[..end]),
            None => path.clone(),
        })
        .collect();
    if fields.len() > MAX_FIELDS {
        shown.push("and others".to_owned());
    }
    shown.join(", ")
}

/// A spec of a Work in the form in which all that mean the same are equal.
fn comparable(spec: &Value) -> Value {
    let mut spec = spec.clone();
    for switch in SWITCHES {
        if spec[switch] == false {
            spec[switch] = Value::Null;
        }
    }
    let manifests = spec.pointer_mut("/workload/manifests");
    let manifests = manifests.and_then(Value::as_array_mut);
    for manifest in manifests.into_iter().flatten() {
        for record in [MANAGED_ANNOTATIONS, MANAGED_LABELS] {
            let annotations = manifest.pointer_mut("/metadata/annotations");
            let keys = annotations.and_then(|annotations| annotations.get_mut(record));
            if let Some(keys) = keys {
                *keys = sorted_keys(keys.as_str().unwrap_or_default()).into();
            }
        }
    }
    spec
}

/// The keys of a record, each once.
fn sorted_keys(record: &str) -> String {
    let mut keys: Vec<&str> = record.split(',').collect();
    keys.sort_unstable();
    keys.dedup();
    keys.join(",")
}

#[cfg(test)]
mod tests {
    use client_fake::FakeApi;
    use machinery::Gvr;
    use serde_json::json;

    use super::*;

    const WORK: &str = "karmada-es-m1";

    // proves: TKO-manifests
    #[test]
    fn works_that_mean_the_same_are_equal() {
        let manifest = |metadata: Value, spec: Value| {
            json!({"suspendDispatching": false, "workload": {"manifests": [
                {"kind": "Deployment", "metadata": metadata, "spec": spec}]}})
        };
        let record = |keys: &str| json!({"name": "w", "annotations": {MANAGED_ANNOTATIONS: keys}});
        let before = manifest(record("a,b"), json!({"replicas": 2, "paused": null}));
        for (after, expected) in [
            (before.clone(), ""),
            (
                manifest(record("b,a,b"), json!({"replicas": 2, "strategy": {}})),
                "",
            ),
            (
                json!({"workload": before["workload"], "preserveResourcesOnDeletion": false}),
                "",
            ),
            (
                json!({"workload": before["workload"], "suspendDispatching": true}),
                "suspendDispatching",
            ),
            (
                manifest(record("a"), json!({"replicas": 3})),
                "workload.manifests[0].metadata.annotations[\"resourcetemplate.karmada.io/managed-annotations\"], \
                 workload.manifests[0].spec.replicas",
            ),
        ] {
            let fields = changed_fields(&before, &after);
            assert_eq!(join_fields(&fields), expected, "{after}");
        }
        let many: Vec<String> = (0..9).map(|i| format!("{i}{}", "x".repeat(200))).collect();
        let text = join_fields(&many);
        assert!(text.ends_with("…, and others"), "{text}");
        assert!(
            text.len() < MAX_FIELDS * (MAX_PATH_CHARS + 5) + 20,
            "{text}"
        );
    }

    /// A Karmada with a ConfigMap that is placed in a member, whose Work has these data.
    fn karmada(data: &Value) -> std::sync::Arc<FakeApi> {
        let fake = FakeApi::new();
        let config_maps = Gvr::from_static("", "v1", "configmaps");
        fake.add_resource(ApiResource {
            resource: config_maps.clone(),
            kind: "ConfigMap".into(),
            namespaced: true,
            verbs: Vec::new(),
            subresources: Vec::new(),
            categories: Vec::new(),
            short_names: Vec::new(),
        });
        fake.seed(&CLUSTERS, json!({"metadata": {"name": "m1"}}));
        let metadata = |name: &str| json!({"name": name, "namespace": "n", "uid": "t"});
        fake.seed(
            &config_maps,
            json!({"metadata": metadata("c"), "data": {"k": "v"}}),
        );
        let mut binding = json!({"metadata": metadata("c-configmap"), "spec": {
            "resource": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "n", "name": "c"},
            "clusters": [{"name": "m1"}]}});
        binding["metadata"]["labels"] = json!({"resourcebinding.karmada.io/permanent-id": "id"});
        fake.seed(&BINDINGS, binding);
        let name = karmada_api::names::work_name("ConfigMap", "c", "n");
        let own = [
            ("work.karmada.io/conflict-resolution", "abort"),
            ("resourcebinding.karmada.io/name", "c-configmap"),
            ("resourcebinding.karmada.io/namespace", "n"),
        ];
        let work = json!({"metadata": {"name": name, "namespace": WORK,
                "labels": {"resourcebinding.karmada.io/permanent-id": "id"},
                "annotations": own.into_iter().collect::<BTreeMap<_, _>>()},
            "spec": {"workload": {"manifests": [{"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "c", "namespace": "n"}, "data": data}]}}});
        fake.seed(&WORKS, work);
        fake
    }

    // proves: TKO-manifests
    #[tokio::test]
    async fn works_that_would_change_are_named_with_their_fields() {
        let fake = karmada(&json!({"k": "other"}));
        let gates = FeatureGates::default();
        let changed = changed_works(&*fake, gates).await.unwrap();
        let [line] = changed.changes.as_slice() else {
            panic!("{changed:?}");
        };
        assert!(
            line.starts_with("ConfigMap n/c would change in m1, in its Work: ")
                && line.contains("workload.manifests[0].data.k"),
            "{line}"
        );
        assert!(!line.contains("other"), "{line}");
        assert_eq!(fake.writes(), []);
    }
}
