//! Tests of the admission chain.

use client_fake::FakeApi;
use karmada_api::resources::BINDINGS;
use machinery::time::FakeClock;
use machinery::{Gvk, UserInfo};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::attributes::OperationOptions;

struct TestWriter {
    gvk: Gvk,
    gvr: Gvr,
    user: UserInfo,
}

fn new_test_write(api: &str, kind: &str, plural: &str) -> TestWriter {
    let gvk = Gvk::from_api_version(api, kind);
    let gvr = Gvr::new(gvk.group.clone(), gvk.version.clone(), plural);
    TestWriter {
        gvk,
        gvr,
        user: UserInfo::internal(),
    }
}

impl TestWriter {
    fn attributes<'a>(
        &'a self,
        namespace: &'a str,
        operation: AdmissionOperation,
    ) -> AdmissionAttributes<'a> {
        AdmissionAttributes {
            gvk: &self.gvk,
            gvr: &self.gvr,
            namespace,
            name: "x",
            subresource: "",
            operation,
            user: &self.user,
            dry_run: false,
            options: OperationOptions::None,
            audit_annotations: None,
        }
    }
}

fn chain() -> AdmissionChain {
    AdmissionChain::new(AdmissionChainOptions {
        clock: Arc::new(FakeClock::new(jiff::Timestamp::UNIX_EPOCH)),
        ..AdmissionChainOptions::default()
    })
}

/// Mutates and validates; returns the object or the error.
async fn admit(
    chain: &AdmissionChain,
    attributes: &AdmissionAttributes<'_>,
    mut new: Value,
    old: Option<&Value>,
) -> Result<Value, Status> {
    chain.mutate(attributes, &mut new, old).await?;
    chain.validate(attributes, &new, old).await?;
    Ok(new)
}

#[tokio::test]
async fn errors_match_their_origin() {
    let chain = chain();
    let policy = new_test_write(
        "policy.karmada.io/v1alpha1",
        "PropagationPolicy",
        "propagationpolicies",
    );
    let invalid = json!({"metadata": {"name": "x"}, "spec": {"resourceSelectors": [{"kind": "Pod", "namespace": "other"}]}});
    let status = admit(
        &chain,
        &policy.attributes("n", AdmissionOperation::Create),
        invalid,
        None,
    )
    .await
    .unwrap_err();
    assert_eq!((status.code, &*status.reason), (403, "Forbidden"));
    let head = "admission webhook \"propagationpolicy.karmada.io\" denied the request: spec.resourceSelectors[0].namespace: Invalid value: \"other\": ";
    assert!(status.message.starts_with(head), "{}", status.message);

    let hooks = new_test_write(
        "config.karmada.io/v1alpha1",
        "ResourceInterpreterWebhookConfiguration",
        "resourceinterpreterwebhookconfigurations",
    );
    let invalid = json!({"webhooks": [{"name": "a.b", "clientConfig": {}}]});
    let status = admit(
        &chain,
        &hooks.attributes("", AdmissionOperation::Create),
        invalid,
        None,
    )
    .await
    .unwrap_err();
    assert_eq!(
        status.message,
        "admission webhook \"config.karmada.io\" denied the request: [webhooks[0].clientConfig: Required value: exactly one of url or service is required, webhooks[0].interpreterContextVersions: Required value: must specify one of v1alpha1]"
    );

    let cluster = new_test_write("cluster.karmada.io/v1alpha1", "Cluster", "clusters");
    let invalid = json!({"metadata": {"name": "x"}, "spec": {"syncMode": "No"}});
    let status = admit(
        &chain,
        &cluster.attributes("", AdmissionOperation::Create),
        invalid,
        None,
    )
    .await
    .unwrap_err();
    assert_eq!((status.code, &*status.reason), (422, "Invalid"));
    assert_eq!(
        status.message,
        "Cluster.cluster.karmada.io \"x\" is invalid: spec.syncMode: Unsupported value: \"No\": supported values: \"Pull\", \"Push\""
    );

    let attributes = AdmissionAttributes {
        name: "",
        ..cluster.attributes("", AdmissionOperation::Create)
    };
    let invalid = json!({"metadata": {"name": "y"}, "spec": {}});
    let status = admit(&chain, &attributes, invalid, None).await.unwrap_err();
    assert_eq!(status.details.unwrap().name, "y");
}

#[tokio::test]
async fn objects_are_mutated() {
    let chain = chain();
    for (api, kind, namespace, label) in [
        (
            "work.karmada.io/v1alpha2",
            "ResourceBinding",
            "n",
            "resourcebinding.karmada.io/permanent-id",
        ),
        (
            "work.karmada.io/v1alpha2",
            "ClusterResourceBinding",
            "",
            "clusterresourcebinding.karmada.io/permanent-id",
        ),
        (
            "work.karmada.io/v1alpha1",
            "Work",
            "n",
            "work.karmada.io/permanent-id",
        ),
        (
            "policy.karmada.io/v1alpha1",
            "ClusterPropagationPolicy",
            "",
            "clusterpropagationpolicy.karmada.io/permanent-id",
        ),
    ] {
        let write = new_test_write(api, kind, "things");
        let new =
            json!({"metadata": {"name": "x"}, "spec": {"resource": {"namespace": namespace}}});
        let done = admit(
            &chain,
            &write.attributes(namespace, AdmissionOperation::Create),
            new,
            None,
        )
        .await
        .unwrap();
        assert!(done["metadata"]["labels"][label].is_string(), "{kind}");
    }
    let binding = new_test_write(
        "work.karmada.io/v1alpha2",
        "ResourceBinding",
        "resourcebindings",
    );
    let new = json!({"metadata": {"name": "x"}});
    let update = admit(
        &chain,
        &binding.attributes("n", AdmissionOperation::Update),
        new.clone(),
        Some(&new),
    )
    .await;
    assert_eq!(update.unwrap(), new, "IDs are set on creation only");
    let with_id = |kind: &str, id: &str| {
        json!({"metadata": {"name": "x", "labels": {format!("{kind}.karmada.io/permanent-id"): id},
            "annotations": {"resourcebinding.karmada.io/dependencies": "?"}}})
    };
    let wide = new_test_write(
        "work.karmada.io/v1alpha2",
        "ClusterResourceBinding",
        "clusterresourcebindings",
    );
    let (old, new) = (
        with_id("clusterresourcebinding", "a"),
        with_id("clusterresourcebinding", "b"),
    );
    let attributes = wide.attributes("", AdmissionOperation::Update);
    let changed = admit(&chain, &attributes, new.clone(), Some(&old)).await;
    assert_eq!(
        changed.unwrap(),
        old,
        "a binding keeps its ID; dependencies of a ClusterResourceBinding are not checked"
    );
    let work = new_test_write("work.karmada.io/v1alpha1", "Work", "works");
    let (old, new) = (with_id("work", "a"), with_id("work", "b"));
    let attributes = work.attributes("n", AdmissionOperation::Update);
    let changed = admit(&chain, &attributes, new.clone(), Some(&old)).await;
    assert_eq!(changed.unwrap(), new);
    let unmarked = json!({"metadata": {"name": "x"}});
    let marked = admit(&chain, &attributes, unmarked.clone(), Some(&unmarked)).await;
    let id = &marked.unwrap()["metadata"]["labels"]["work.karmada.io/permanent-id"];
    assert!(id.is_string(), "a Work gets its ID whenever it is missing");
}

#[tokio::test]
async fn deletion_is_validated_by_the_stored_object() {
    let chain = chain();
    let write = new_test_write("example.io/v1", "Thing", "things");
    let protected = json!({"metadata": {"labels": {"resourcetemplate.karmada.io/deletion-protected": "Always"}}});
    let attributes = write.attributes("n", AdmissionOperation::Delete);
    let policy = new_test_write(
        "policy.karmada.io/v1alpha1",
        "ClusterPropagationPolicy",
        "clusterpropagationpolicies",
    );
    for attributes in [
        attributes,
        write.attributes("", AdmissionOperation::Delete),
        policy.attributes("", AdmissionOperation::Delete),
    ] {
        let result = chain
            .validate(&attributes, &Value::Null, Some(&protected))
            .await;
        assert_eq!(result.unwrap_err().code, 403);
    }
    let unprotected = json!({"metadata": {}});
    assert!(
        chain
            .validate(&attributes, &Value::Null, Some(&unprotected))
            .await
            .is_ok()
    );
    let of_a_member = AdmissionChain::new(AdmissionChainOptions {
        deletion_protection: false,
        ..AdmissionChainOptions::default()
    });
    let copy = of_a_member.validate(&attributes, &Value::Null, Some(&protected));
    assert!(copy.await.is_ok());
}

#[tokio::test]
async fn rules_read_other_objects_through_the_api() {
    let chain = chain();
    let customization = |name: &str| {
        json!({"apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterCustomization",
            "metadata": {"name": name}, "spec": {"target": {"apiVersion": "v1", "kind": "Pod"},
            "customizations": {"retention": {"luaScript": "x"}}}})
    };
    let write_ric = new_test_write(
        "config.karmada.io/v1alpha1",
        "ResourceInterpreterCustomization",
        "resourceinterpretercustomizations",
    );
    let attributes = write_ric.attributes("", AdmissionOperation::Create);
    let before_start = admit(&chain, &attributes, customization("x"), None).await;
    assert_eq!(before_start.unwrap_err().code, 503);

    let api = FakeApi::new();
    chain.set_api(api.clone());
    api.seed(&CUSTOMIZATIONS, customization("x"));
    assert!(
        admit(&chain, &attributes, customization("x"), None)
            .await
            .is_ok(),
        "an object does not conflict with itself"
    );
    api.seed(&CUSTOMIZATIONS, customization("other"));
    let rejection = admit(&chain, &attributes, customization("x"), None)
        .await
        .unwrap_err();
    assert_eq!(rejection.code, 403);
    assert_eq!(
        rejection.message,
        "admission webhook \"resourceinterpretercustomization.karmada.io\" denied the request: conflicting with InterpreterOperation(Retain) of existing ResourceInterpreterCustomization(other)"
    );

    let class = |name: &str| {
        json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
            "metadata": {"name": name}, "value": 1, "globalDefault": true})
    };
    let write_class = new_test_write("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses");
    let attributes = write_class.attributes("", AdmissionOperation::Create);
    assert!(admit(&chain, &attributes, class("x"), None).await.is_ok());
    api.seed(&default_classes::PRIORITY_CLASSES, class("first"));
    let status = admit(&chain, &attributes, class("x"), None)
        .await
        .unwrap_err();
    assert_eq!(
        status.message,
        "priorityclasses.scheduling.k8s.io \"x\" is forbidden: PriorityClass first is already marked as default. Only one default can exist"
    );
}

#[tokio::test]
async fn a_new_binding_cannot_have_the_permanent_id_of_another() {
    let (chain, api) = (chain(), FakeApi::new());
    chain.set_api(api.clone());
    let write = new_test_write(
        "work.karmada.io/v1alpha2",
        "ResourceBinding",
        "resourcebindings",
    );
    let binding = |namespace: &str, id: &str| {
        json!({"metadata": {"name": "x", "namespace": namespace, "labels": {well_known_keys::BINDING_ID: id}},
            "spec": {"resource": {"apiVersion": "v1", "kind": "Secret", "namespace": namespace, "name": "s"}}})
    };
    api.seed(&BINDINGS, binding("victim", "taken"));
    let create = async |namespace: &str, id: &str| {
        let attributes = write.attributes(namespace, AdmissionOperation::Create);
        admit(&chain, &attributes, binding(namespace, id), None).await
    };
    let rejection = create("n", "taken").await.unwrap_err();
    assert_eq!(rejection.code, 422);
    let field = "metadata.labels[resourcebinding.karmada.io/permanent-id]: Duplicate value";
    assert!(rejection.message.contains(field), "{}", rejection.message);
    assert!(create("n", "restored").await.is_ok());
    assert!(create("victim", "taken").await.is_ok(), "its own id");
}

// proves: ADM-quota-gate, ADM-quota-deleted
#[tokio::test]
async fn quotas_are_charged_behind_their_feature_gate() {
    let binding = new_test_write(
        "work.karmada.io/v1alpha2",
        "ResourceBinding",
        "resourcebindings",
    );
    let placed = json!({"metadata": {"name": "x"}, "spec": {"clusters": [{"name": "m", "replicas": 2}],
        "replicaRequirements": {"resourceRequest": {"cpu": "1"}}}});
    let quota =
        json!({"metadata": {"name": "q", "namespace": "n"}, "spec": {"overall": {"cpu": "1"}}});
    let quotas = Gvr::from_static("policy.karmada.io", "v1alpha1", "federatedresourcequotas");
    for enabled in [false, true] {
        let chain = AdmissionChain::new(AdmissionChainOptions {
            feature_gates: FeatureGates::default()
                .with_feature(KarmadaFeature::FederatedQuotaEnforcement, enabled),
            ..AdmissionChainOptions::default()
        });
        let api = FakeApi::new();
        api.seed(&quotas, quota.clone());
        chain.set_api(api.clone());
        let attributes = binding.attributes("n", AdmissionOperation::Create);
        let result = chain.charge_quota(&attributes, &placed, None).await;
        assert_eq!(result.is_err(), enabled);
        let attributes = binding.attributes("n", AdmissionOperation::Delete);
        assert!(
            chain
                .charge_quota(&attributes, &Value::Null, Some(&placed))
                .await
                .is_ok()
        );
        assert_eq!(api.writes(), []);
    }
}

#[tokio::test]
async fn only_the_scale_subresource_has_rules() {
    let chain = chain();
    let write = new_test_write("cluster.karmada.io/v1alpha1", "Cluster", "clusters");
    for (subresource, allowed) in [("", false), ("scale", false), ("status", true)] {
        let attributes = AdmissionAttributes {
            subresource,
            ..write.attributes("", AdmissionOperation::Update)
        };
        let old = json!({"spec": {"syncMode": "No"}});
        assert_eq!(
            chain.validate(&attributes, &old, Some(&old)).await.is_ok(),
            allowed,
            "{subresource}"
        );
    }
}

/// Random objects with the field names that rules look for.
fn arbitrary_object() -> impl Strategy<Value = Value> {
    const NAMES: &str = "(metadata|spec|labels|name|resourceSelectors|placement|clusterAffinities|overflowAffinities|taints|resourceModels|ranges|template|containers|ports|selector|matchLabels|workload|manifests|kind|rules|value|data|zone|metrics|behavior)";
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[-a-zA-Z0-9/.:]{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(6, 48, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(NAMES, inner, 0..5)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn rules_never_panic(new in arbitrary_object(), old in arbitrary_object()) {
        let kinds = [
            ("policy.karmada.io/v1alpha1", "PropagationPolicy"),
            ("policy.karmada.io/v1alpha1", "ClusterOverridePolicy"),
            ("policy.karmada.io/v1alpha1", "ClusterTaintPolicy"),
            ("rollout.flotilla.io/v1alpha1", "RolloutPolicy"),
            ("policy.karmada.io/v1alpha1", "FederatedResourceQuota"),
            ("work.karmada.io/v1alpha2", "ResourceBinding"),
            ("work.karmada.io/v1alpha1", "Work"),
            ("cluster.karmada.io/v1alpha1", "Cluster"),
            ("config.karmada.io/v1alpha1", "ResourceInterpreterWebhookConfiguration"),
            ("autoscaling.karmada.io/v1alpha1", "FederatedHPA"),
            ("autoscaling.karmada.io/v1alpha1", "CronFederatedHPA"),
            ("networking.karmada.io/v1alpha1", "MultiClusterService"),
            ("networking.karmada.io/v1alpha1", "MultiClusterIngress"),
            ("core.kubefed.io/v1beta1", "FederatedTypeConfig"),
            ("v1", "Service"), ("v1", "Secret"), ("v1", "ConfigMap"), ("v1", "Pod"),
            ("v1", "ResourceQuota"), ("v1", "LimitRange"),
            ("apps/v1", "Deployment"), ("apps/v1", "StatefulSet"), ("batch/v1", "Job"), ("batch/v1", "CronJob"),
            ("rbac.authorization.k8s.io/v1", "RoleBinding"), ("rbac.authorization.k8s.io/v1", "ClusterRole"),
            ("networking.k8s.io/v1", "Ingress"), ("policy/v1", "PodDisruptionBudget"),
            ("autoscaling/v2", "HorizontalPodAutoscaler"), ("storage.k8s.io/v1", "StorageClass"),
            ("coordination.k8s.io/v1", "Lease"),
        ];
        let chain = chain();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for (api, kind) in kinds {
            let write = new_test_write(api, kind, "things");
            for operation in [AdmissionOperation::Create, AdmissionOperation::Update] {
                let old = (operation == AdmissionOperation::Update).then_some(&old);
                let _ = runtime.block_on(admit(&chain, &write.attributes("n", operation), new.clone(), old));
            }
            crate::metadata::validate(&write.gvk, true, &new);
            crate::metadata::validate_update(&new, &old);
        }
    }
}
