//! Tests of definitions with names of built-in kinds: these kinds, their stored objects and
//! their watches stay intact, whatever definitions are created and deleted.

use std::collections::BTreeMap;

use client::{WatchEvent, WatchOptions};
use futures_util::StreamExt;
use openapi::KindInfo;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

use super::*;
use crate::custom_resource_definitions::DEFINITIONS;

static POLICIES: Gvr = Gvr::from_static("policy.karmada.io", "v1alpha1", "propagationpolicies");

/// Groups of built-in kinds in which definitions are allowed at all.
const GROUPS: [&str; 4] = [
    "policy.karmada.io",
    "work.karmada.io",
    "rbac.authorization.k8s.io",
    "coordination.k8s.io",
];

/// The name of the nth kind of a group, or a new name.
#[derive(Clone, Copy, Debug)]
enum BuiltInOrNewCrdName {
    BuiltIn(usize),
    New(u8),
}

#[derive(Clone, Debug)]
struct GeneratedCrd {
    group: usize,
    plural: BuiltInOrNewCrdName,
    singular: BuiltInOrNewCrdName,
    short: BuiltInOrNewCrdName,
    kind: BuiltInOrNewCrdName,
    list_kind: BuiltInOrNewCrdName,
    versions: Vec<&'static str>,
    namespaced: bool,
}

#[derive(Clone, Debug)]
enum CrdOperation {
    Create(GeneratedCrd),
    /// Writes a status that claims a definition is established.
    Forge(usize),
    Delete(usize),
}

fn kinds_in(group: &str) -> Vec<&'static KindInfo> {
    let all = openapi::catalog().kinds().iter().map(|kind| &**kind);
    all.filter(|kind| kind.gvr.group == group).collect()
}

fn build_definition(claim: &GeneratedCrd) -> Value {
    let group = GROUPS[claim.group];
    let kinds = kinds_in(group);
    let pick = |name: BuiltInOrNewCrdName, of: fn(&KindInfo) -> String, new: &str| match name {
        BuiltInOrNewCrdName::BuiltIn(n) => of(kinds[n % kinds.len()]),
        BuiltInOrNewCrdName::New(n) => format!("{new}{n}"),
    };
    let plural = pick(claim.plural, |k| k.gvr.resource.to_string(), "things");
    let short = |k: &KindInfo| k.short_names.first().cloned().unwrap_or("sh".into());
    let versions: Vec<Value> = claim
        .versions
        .iter()
        .enumerate()
        .map(|(n, version)| {
            let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
            json!({"name": version, "served": true, "storage": n == 0, "schema": {"openAPIV3Schema": open}})
        })
        .collect();
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "scope": if claim.namespaced { "Namespaced" } else { "Cluster" },
            "names": {"plural": plural,
                "singular": pick(claim.singular, |k| k.singular.clone(), "thing"),
                "shortNames": [pick(claim.short, short, "sh")],
                "kind": pick(claim.kind, |k| k.gvk.kind.to_string(), "Thing"),
                "listKind": pick(claim.list_kind, |k| k.list_kind.clone(), "ThingList")},
            "versions": versions}})
}

fn generated_crd() -> impl Strategy<Value = GeneratedCrd> {
    let name = || {
        prop_oneof![
            (0..8_usize).prop_map(BuiltInOrNewCrdName::BuiltIn),
            (0..3_u8).prop_map(BuiltInOrNewCrdName::New)
        ]
    };
    let versions =
        proptest::sample::subsequence(vec!["v1", "v1alpha1", "v1alpha2", "v2beta1"], 1..3);
    let names = (name(), name(), name(), name(), name());
    (0..GROUPS.len(), names, versions, any::<bool>()).prop_map(
        |(group, (plural, singular, short, kind, list_kind), versions, namespaced)| GeneratedCrd {
            group,
            plural,
            singular,
            short,
            kind,
            list_kind,
            versions,
            namespaced,
        },
    )
}

fn definition_step() -> impl Strategy<Value = CrdOperation> {
    prop_oneof![
        3 => generated_crd().prop_map(CrdOperation::Create),
        1 => (0..6_usize).prop_map(CrdOperation::Forge),
        2 => (0..6_usize).prop_map(CrdOperation::Delete),
    ]
}

fn condition(definition: &Value, kind: &str) -> Option<bool> {
    let all = definition["status"]["conditions"].as_array()?;
    let condition = all.iter().find(|c| c["type"] == kind)?;
    Some(condition["status"] == "True")
}

impl KubeControllersFixture {
    /// Creates an object of some built-in kinds.
    async fn seed(&self) {
        let policy = policy("kept");
        self.create(&POLICIES, policy).await;
        let works = Gvr::from_static("work.karmada.io", "v1alpha1", "works");
        let work = json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
            "metadata": {"name": "kept", "namespace": "default"}, "spec": {"workload": {}}});
        self.create(&works, work).await;
        let leases = Gvr::from_static("coordination.k8s.io", "v1", "leases");
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "kept", "namespace": "default"}});
        self.create(&leases, lease).await;
    }

    /// Lists the stored objects of every built-in resource of the groups.
    async fn list_built_in_objects(&self) -> BTreeMap<String, Vec<Value>> {
        let mut objects = BTreeMap::new();
        let served = self.api.discover().await.unwrap().resources;
        for kind in GROUPS.iter().flat_map(|group| kinds_in(group)) {
            let row = served.iter().find(|r| r.resource == kind.gvr);
            let row = row.unwrap_or_else(|| panic!("{} is not served", kind.gvr));
            assert_eq!(row.kind, *kind.gvk.kind, "{}", kind.gvr);
            objects.insert(kind.gvr.to_string(), self.list(&kind.gvr, "").await);
        }
        objects
    }

    /// Waits until the names of the definition are checked, or the definition is gone.
    async fn wait_for_conditions(&self, name: &str) {
        wait_until(&format!("{name} has conditions"), async || {
            let definition = self.get(&DEFINITIONS, "", name).await;
            definition.is_none_or(|d| condition(&d, "NamesAccepted").is_some())
        })
        .await;
    }

    async fn apply_step(&self, step: &CrdOperation, names: &mut Vec<String>) {
        match step {
            CrdOperation::Create(claim) => {
                let body = build_definition(claim);
                let name = body["metadata"]["name"].as_str().unwrap().to_owned();
                let all = ResourcePath::collection(&DEFINITIONS, "");
                let options = WriteOptions::default();
                // The name may be in use, or kind and list kind may be equal.
                if self
                    .api
                    .create(all, body.clone().into(), &options)
                    .await
                    .is_ok()
                {
                    self.wait_for_conditions(&name).await;
                    self.assert_rejected_if_shadowing(&name, &body).await;
                    names.push(name);
                }
            }
            CrdOperation::Forge(n) if !names.is_empty() => {
                let name = &names[n % names.len()];
                let Some(mut definition) = self.get(&DEFINITIONS, "", name).await else {
                    return;
                };
                definition["status"]["acceptedNames"] = definition["spec"]["names"].clone();
                definition["status"]["conditions"] = json!([{"type": "Established", "status": "True",
                    "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
                let at = ResourcePath::object(&DEFINITIONS, "", name).subresource("status");
                // The controller may be faster.
                let forged = self
                    .api
                    .update(at, definition.into(), &WriteOptions::default())
                    .await;
                drop(forged);
                self.wait_for_conditions(name).await;
            }
            CrdOperation::Delete(n) if !names.is_empty() => {
                let name = names.swap_remove(n % names.len());
                self.delete(&DEFINITIONS, "", &name, None).await;
                self.wait_until_gone(&DEFINITIONS, "", &name).await;
            }
            CrdOperation::Forge(_) | CrdOperation::Delete(_) => {}
        }
    }

    /// Asserts that a definition with a name of a built-in kind is not established and says why.
    async fn assert_rejected_if_shadowing(&self, name: &str, body: &Value) {
        let spec = &body["spec"];
        let kinds = kinds_in(spec["group"].as_str().unwrap());
        let names = &spec["names"];
        let shadows = kinds
            .iter()
            .any(|k| names["plural"] == *k.gvr.resource || names["kind"] == *k.gvk.kind);
        if shadows {
            let actual = self.get(&DEFINITIONS, "", name).await.unwrap();
            assert_eq!(
                condition(&actual, "NamesAccepted"),
                Some(false),
                "{actual:#}"
            );
            assert_eq!(condition(&actual, "Established"), Some(false), "{actual:#}");
        }
    }
}

fn policy(name: &str) -> Value {
    json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment"}], "placement": {}}})
}

async fn assert_unharmed_by(steps: Vec<CrdOperation>) {
    let fixture = KubeControllersFixture::new().await;
    fixture.seed().await;
    let before = fixture.list_built_in_objects().await;
    let options = WatchOptions::default();
    let watching = fixture
        .api
        .watch(ResourcePath::collection(&POLICIES, ""), &options)
        .await;
    let mut watch = watching.unwrap();
    let mut names = Vec::new();
    for step in &steps {
        fixture.apply_step(step, &mut names).await;
        assert_eq!(
            fixture.list_built_in_objects().await,
            before,
            "after {step:?}"
        );
    }
    for name in names {
        fixture.delete(&DEFINITIONS, "", &name, None).await;
        fixture.wait_until_gone(&DEFINITIONS, "", &name).await;
    }
    assert_eq!(fixture.list_built_in_objects().await, before);
    fixture.create(&POLICIES, policy("after")).await;
    let observed = tokio::time::timeout(Duration::from_secs(20), async {
        while let Some(event) = watch.next().await {
            if matches!(event.unwrap(), WatchEvent::Added(o) if o.name() == "after") {
                return true;
            }
        }
        false
    });
    assert_eq!(
        observed.await,
        Ok(true),
        "the watch of a built-in kind ended"
    );
    fixture.tasks.stop().await;
}

#[test]
fn no_definition_harms_a_built_in_kind() {
    let config = ProptestConfig {
        cases: 24,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let steps = proptest::collection::vec(definition_step(), 1..10);
    let outcome = TestRunner::new_with_rng(
        config,
        proptest::test_runner::TestRng::deterministic_rng(
            proptest::test_runner::RngAlgorithm::ChaCha,
        ),
    )
    .run(&steps, |steps| {
        runtime.block_on(assert_unharmed_by(steps));
        Ok(())
    });
    outcome.unwrap();
}

/// A definition of a built-in resource is created and deleted.
#[tokio::test]
async fn a_definition_of_a_built_in_resource_is_created_and_deleted() {
    let generated = GeneratedCrd {
        group: 0,
        plural: BuiltInOrNewCrdName::BuiltIn(0),
        singular: BuiltInOrNewCrdName::BuiltIn(0),
        short: BuiltInOrNewCrdName::BuiltIn(0),
        kind: BuiltInOrNewCrdName::BuiltIn(0),
        list_kind: BuiltInOrNewCrdName::BuiltIn(0),
        versions: vec!["v1alpha1"],
        namespaced: true,
    };
    let again = CrdOperation::Create(generated.clone());
    assert_unharmed_by(vec![
        CrdOperation::Create(generated),
        CrdOperation::Delete(0),
        again,
        CrdOperation::Forge(0),
    ])
    .await;
}
