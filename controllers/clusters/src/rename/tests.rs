//! Tests of renamed and replaced clusters, with a control plane and members in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::Error;
use client_fake::FakeApi;
use karmada_api::names::execution_space_name;
use karmada_api::resources::{
    BINDINGS, CLUSTER_BINDINGS, CLUSTERS, POLICIES, REPLICA_PREFERENCES, WORKS,
};
use karmada_api::well_known_keys::REPLICA_PREFERENCE;
use serde_json::{Value, json};

use super::named_clusters::rename_in;
use super::{RenameError, RenameReport, RenameSpec, ReplaceSpec, rename_cluster, replace_cluster};
use crate::NAMESPACES;
use crate::join::JoinSpec;
use crate::join::objects::{SECRETS, SERVICE_ACCOUNTS};

struct RenameFixture {
    control: Arc<FakeApi>,
    member: Arc<FakeApi>,
}

fn placement(cluster: &str) -> Value {
    json!({"clusterAffinity": {"clusterNames": [cluster, "other"]}})
}

fn spec() -> RenameSpec {
    RenameSpec {
        old: "edge".to_owned(),
        new: "edge-eu".to_owned(),
        namespace: "karmada-cluster".to_owned(),
        rewrite_policies: true,
        timeout: Duration::from_secs(5),
        dry_run: false,
    }
}

fn member() -> Arc<FakeApi> {
    let member = FakeApi::new();
    let system = json!({"apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "kube-system", "uid": "id-1"}});
    member.seed(&NAMESPACES, system);
    member
}

impl RenameFixture {
    /// A cluster `edge` that carries one binding, whose policy names it.
    fn new() -> Self {
        let control = FakeApi::new();
        let secret = |name: &str| {
            json!({"apiVersion": "v1", "kind": "Secret",
                "metadata": {"namespace": "karmada-cluster", "name": name},
                "data": {"token": STANDARD.encode("old"), "caBundle": STANDARD.encode("ca")}})
        };
        control.seed(&SECRETS, secret("edge"));
        let reference = |name: &str| json!({"namespace": "karmada-cluster", "name": name});
        control.seed(
            &CLUSTERS,
            json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
                "metadata": {"name": "edge", "labels": {"zone": "eu"}},
                "spec": {"syncMode": "Push", "id": "id-1", "apiEndpoint": "https://edge:6443",
                    "region": "eu", "secretRef": reference("edge"),
                    "impersonatorSecretRef": reference("edge-impersonator")},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]}}),
        );
        control.seed(
            &POLICIES,
            json!({"apiVersion": "policy.karmada.io/v1alpha1", "kind": "PropagationPolicy",
                "metadata": {"namespace": "n", "name": "web"},
                "spec": {"placement": placement("edge")}}),
        );
        control.seed(
            &BINDINGS,
            json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
                "metadata": {"namespace": "n", "name": "web"},
                "spec": {"placement": placement("edge"),
                    "clusters": [{"name": "edge", "replicas": 2}, {"name": "other", "replicas": 1}]}}),
        );
        let fixture = Self {
            control,
            member: member(),
        };
        fixture.apply_works();
        fixture
    }

    /// The binding controller and the execution controller: a Work for each cluster.
    fn apply_works(&self) {
        for binding in self.control.list_objects(&BINDINGS) {
            for cluster in binding["spec"]["clusters"].as_array().unwrap() {
                let space = execution_space_name(cluster["name"].as_str().unwrap());
                if self.control.get_object(&WORKS, &space, "web").is_some() {
                    continue;
                }
                self.control.seed(
                    &WORKS,
                    json!({"apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
                        "metadata": {"namespace": space, "name": "web",
                            "annotations": {"resourcebinding.karmada.io/name": "web"}},
                        "status": {"conditions": [{"type": "Applied", "status": "True"}]}}),
                );
            }
        }
    }

    /// The namespace has a gate: a binding in it goes where the binding of the namespace is.
    fn seed_gate(&self) {
        let clusters = json!([{"name": "edge"}]);
        self.control.seed(
            &CLUSTER_BINDINGS,
            json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ClusterResourceBinding",
                "metadata": {"name": "n-namespace"}, "spec": {"clusters": clusters}}),
        );
        self.control.seed(
            &BINDINGS,
            json!({"apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
                "metadata": {"namespace": "n", "name": "gated"},
                "spec": {"clusters": clusters, "placement": {"clusterAffinity": {"clusterNames": ["edge"]}}}}),
        );
    }

    fn place_gated_binding(&self) {
        let namespace = self
            .control
            .get_object(&CLUSTER_BINDINGS, "", "n-namespace");
        let gated = self.control.get_object(&BINDINGS, "n", "gated");
        if let Some((namespace, mut gated)) = namespace.zip(gated) {
            let clusters = namespace["spec"]["clusters"].as_array().unwrap();
            let names: Value = clusters.iter().map(|c| c["name"].clone()).collect();
            let placement = json!({"clusterAffinity": {"clusterNames": names}});
            if gated["spec"]["placement"] != placement {
                gated["spec"]["placement"] = placement;
                self.control.seed(&BINDINGS, gated);
            }
        }
    }

    /// Acts as the controllers of both sides do.
    async fn run_controllers(&self) {
        loop {
            for mut secret in self.member.list_objects(&SECRETS) {
                if secret["data"].is_null() {
                    secret["data"] =
                        json!({"token": STANDARD.encode("new"), "ca.crt": STANDARD.encode("ca")});
                    self.member.seed(&SECRETS, secret);
                }
            }
            if let Some(mut new) = self.control.get_object(&CLUSTERS, "", "edge-eu")
                && new["status"].is_null()
            {
                new["status"] = json!({"conditions": [{"type": "Ready", "status": "True"}]});
                self.control.seed(&CLUSTERS, new);
            }
            let policy = self.control.get_object(&POLICIES, "n", "web").unwrap();
            let mut binding = self.control.get_object(&BINDINGS, "n", "web").unwrap();
            if binding["spec"]["placement"] != policy["spec"]["placement"] {
                assert_eq!(binding["spec"]["suspension"]["scheduling"], true);
                binding["spec"]["placement"] = policy["spec"]["placement"].clone();
                self.control.seed(&BINDINGS, binding);
            }
            self.record_preference();
            self.place_gated_binding();
            self.apply_works();
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The detector: the binding records the preference, if there is one.
    fn record_preference(&self) {
        let preference = self.control.get_object(&REPLICA_PREFERENCES, "n", "web");
        let Some(preference) = preference else {
            return;
        };
        let recorded = json!(preference["spec"].to_string());
        let mut binding = self.control.get_object(&BINDINGS, "n", "web").unwrap();
        if binding["metadata"]["annotations"][REPLICA_PREFERENCE] != recorded {
            assert_eq!(binding["spec"]["suspension"]["scheduling"], true);
            binding["metadata"]["annotations"][REPLICA_PREFERENCE] = recorded;
            self.control.seed(&BINDINGS, binding);
        }
    }

    async fn rename(&self, spec: &RenameSpec) -> Result<RenameReport, RenameError> {
        tokio::select! {
            done = rename_cluster(&*self.control, [&*self.member; 2], spec, &|_| {}) => done,
            () = self.run_controllers() => unreachable!(),
        }
    }

    fn assert_renamed(&self) {
        assert_eq!(self.control.get_object(&CLUSTERS, "", "edge"), None);
        let new = self.control.get_object(&CLUSTERS, "", "edge-eu").unwrap();
        assert_eq!(new["spec"]["syncMode"], "Push");
        assert_eq!(new["spec"]["region"], "eu");
        assert_eq!(new["spec"]["taints"], Value::Null);
        assert_eq!(new["spec"]["secretRef"]["name"], "edge-eu");
        assert_eq!(new["metadata"]["labels"]["zone"], "eu");
        assert_eq!(
            new["metadata"]["annotations"].get("flotilla.io/renamed-from"),
            None
        );
        let policy = self.control.get_object(&POLICIES, "n", "web").unwrap();
        assert_eq!(policy["spec"]["placement"], placement("edge-eu"));
        let binding = self.control.get_object(&BINDINGS, "n", "web").unwrap();
        let clusters =
            json!([{"name": "edge-eu", "replicas": 2}, {"name": "other", "replicas": 1}]);
        assert_eq!(binding["spec"]["clusters"], clusters);
        let suspension = &binding["spec"]["suspension"];
        assert_ne!(suspension.get("scheduling"), Some(&json!(true)));
        let secret = self
            .control
            .get_object(&SECRETS, "karmada-cluster", "edge-eu");
        assert_eq!(secret.unwrap()["data"]["token"], STANDARD.encode("new"));
        let account = self
            .member
            .get_object(&SERVICE_ACCOUNTS, "karmada-cluster", "karmada-edge");
        assert_eq!(account, None);
    }
}

// proves: REN-moves, REN-interrupted
#[tokio::test(start_paused = true)]
async fn a_rename_that_ends_after_any_write_is_completed_by_another() {
    let mut total = 0;
    for allowed in 0.. {
        let fixture = RenameFixture::new();
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        fixture.control.on_call(move |call| {
            let is_write = ["create", "update", "patch", "delete"].contains(&call.verb);
            let is_cut = is_write && counted.fetch_add(1, Ordering::Relaxed) >= allowed;
            is_cut.then(|| Error::Protocol("the process has ended".into()))
        });
        let first = fixture.rename(&spec()).await;
        total = count.load(Ordering::Relaxed);
        if first.is_ok() {
            fixture.assert_renamed();
            break;
        }
        fixture.control.on_call(|_| None);
        let again = fixture.rename(&spec()).await;
        assert!(again.is_ok(), "after {allowed} writes: {again:?}");
        fixture.assert_renamed();
    }
    assert!(total > 10, "{total}");
}

// proves: REN-gate
#[tokio::test(start_paused = true)]
async fn a_namespace_moves_before_what_its_gate_lets_go_with_it() {
    let fixture = RenameFixture::new();
    fixture.seed_gate();
    let report = fixture.rename(&spec()).await.unwrap();
    assert_eq!(report.bindings, 3);
    fixture.assert_renamed();
    let gated = fixture.control.get_object(&BINDINGS, "n", "gated").unwrap();
    assert_eq!(gated["spec"]["clusters"], json!([{"name": "edge-eu"}]));
}

// proves: REN-releases
#[tokio::test(start_paused = true)]
async fn the_works_of_the_old_name_are_released_before_anything_moves() {
    let fixture = RenameFixture::new();
    fixture.rename(&spec()).await.unwrap();
    let writes = fixture.control.writes();
    let position =
        |is: &dyn Fn(&client_fake::RecordedWrite) -> bool| writes.iter().position(is).unwrap();
    let released = position(&|w| w.name == "edge" && w.body["spec"]["syncMode"] == "Pull");
    let created = position(&|w| w.verb == "create" && w.resource == CLUSTERS);
    let moved = position(&|w| w.resource == BINDINGS && w.body["spec"]["clusters"].is_array());
    let deleted = position(&|w| w.verb == "delete" && w.name == "edge");
    assert!(
        released < created && created < moved && moved < deleted,
        "{writes:#?}"
    );
    assert!(!writes.iter().any(|w| w.resource == WORKS), "{writes:#?}");
}

// proves: REN-refusals
#[tokio::test(start_paused = true)]
async fn what_cannot_be_renamed_is_refused_before_a_write() {
    let check = async |change: &dyn Fn(&RenameFixture, &mut RenameSpec), expected: &str| {
        let fixture = RenameFixture::new();
        let mut spec = spec();
        change(&fixture, &mut spec);
        let error = fixture.rename(&spec).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{expected:?} not in {error}");
        assert!(fixture.control.writes().is_empty());
    };
    let policies =
        "1 objects name the cluster \"edge\": propagationpolicies/n/web; --rewrite-policies";
    check(&|_, spec| spec.rewrite_policies = false, policies).await;
    check(
        &|_, spec| spec.old = "moon".to_owned(),
        "no cluster object \"moon\"",
    )
    .await;
    check(
        &|_, spec| spec.new = "A".to_owned(),
        "the cluster name \"A\" is invalid",
    )
    .await;
    let taken = |fixture: &RenameFixture, _: &mut RenameSpec| {
        let mut other = fixture.control.get_object(&CLUSTERS, "", "edge").unwrap();
        other["metadata"] = json!({"name": "edge-eu"});
        fixture.control.seed(&CLUSTERS, other);
    };
    check(&taken, "\"edge-eu\" has been registered").await;
    let pull = |fixture: &RenameFixture, _: &mut RenameSpec| {
        let mut edge = fixture.control.get_object(&CLUSTERS, "", "edge").unwrap();
        edge["spec"]["syncMode"] = json!("Pull");
        fixture.control.seed(&CLUSTERS, edge);
    };
    check(&pull, "is a Pull mode member cluster").await;

    let fixture = RenameFixture::new();
    let dry_run = RenameSpec {
        dry_run: true,
        ..spec()
    };
    let report = fixture.rename(&dry_run).await.unwrap();
    assert_eq!((report.bindings, report.rewritten.len()), (1, 1));
    assert!(fixture.control.writes().is_empty());
}

// proves: REN-preference
#[tokio::test(start_paused = true)]
async fn a_replica_preference_gets_the_new_name_before_its_binding() {
    let fixture = RenameFixture::new();
    let spec_of = |edge: &str| json!({"clusters": {edge: {"weight": 2}, "*": {"weight": 1}}});
    fixture.control.seed(
        &REPLICA_PREFERENCES,
        json!({"apiVersion": "scheduling.kubefed.io/v1alpha1", "kind": "ReplicaSchedulingPreference",
            "metadata": {"namespace": "n", "name": "web"}, "spec": spec_of("edge")}),
    );
    let mut binding = fixture.control.get_object(&BINDINGS, "n", "web").unwrap();
    binding["metadata"]["annotations"] = json!({REPLICA_PREFERENCE: spec_of("edge").to_string()});
    fixture.control.seed(&BINDINGS, binding);
    let report = fixture.rename(&spec()).await.unwrap();
    let rewritten = "replicaschedulingpreferences/n/web".to_owned();
    assert!(report.rewritten.contains(&rewritten), "{report:?}");
    fixture.assert_renamed();
    let preference = fixture.control.get_object(&REPLICA_PREFERENCES, "n", "web");
    assert_eq!(preference.unwrap()["spec"], spec_of("edge-eu"));
    let is_record = |w: &client_fake::RecordedWrite| w.resource == REPLICA_PREFERENCES;
    let is_move = |w: &client_fake::RecordedWrite| {
        w.resource == BINDINGS && w.body["spec"]["clusters"].is_array()
    };
    let writes = fixture.control.writes();
    assert!(writes.iter().position(is_record) < writes.iter().position(is_move));
}

// proves: REN-fields
#[test]
fn all_fields_that_name_clusters_change() {
    let check = |mut value: Value, expected: Value| {
        let is_changed = value != expected;
        assert_eq!(rename_in(&mut value, "a", "b"), is_changed);
        assert_eq!(value, expected);
    };
    check(
        json!({"placement": {"clusterAffinities": [{"clusterNames": ["a", "c"], "exclude": ["a"]}]}}),
        json!({"placement": {"clusterAffinities": [{"clusterNames": ["b", "c"], "exclude": ["b"]}]}}),
    );
    check(
        json!({"clusterNames": ["a", "b"], "labels": ["a"]}),
        json!({"clusterNames": ["b"], "labels": ["a"]}),
    );
    check(
        json!({"staticAssignments": [{"clusterName": "a"}], "consumerClusters": [{"name": "a"}]}),
        json!({"staticAssignments": [{"clusterName": "b"}], "consumerClusters": [{"name": "b"}]}),
    );
    check(json!({"name": "a"}), json!({"name": "a"}));
}

// proves: RPL-points
#[tokio::test(start_paused = true)]
async fn a_name_points_at_the_replacement() {
    let fixture = RenameFixture::new();
    fixture.member.seed(
        &NAMESPACES,
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system", "uid": "id-2"}}),
    );
    let spec = |force| ReplaceSpec {
        join: JoinSpec {
            name: "edge".to_owned(),
            endpoint: "https://replacement:6443".to_owned(),
            ..JoinSpec::default()
        },
        force,
    };
    let replace = async |spec: ReplaceSpec| {
        tokio::select! {
            done = replace_cluster(&*fixture.control, &*fixture.member, &spec, &|_| {}) => done,
            () = fixture.run_controllers() => unreachable!(),
        }
    };
    let error = replace(spec(false)).await.unwrap_err().to_string();
    assert!(error.contains("is Ready"), "{error}");
    assert!(fixture.control.writes().is_empty());
    assert_eq!(replace(spec(true)).await.unwrap(), "id-2");
    let cluster = fixture.control.get_object(&CLUSTERS, "", "edge").unwrap();
    assert_eq!(cluster["spec"]["id"], "id-2");
    assert_eq!(cluster["spec"]["apiEndpoint"], "https://replacement:6443");
    let secret = fixture
        .control
        .get_object(&SECRETS, "karmada-cluster", "edge")
        .unwrap();
    assert_eq!(secret["data"]["token"], STANDARD.encode("new"));
    // A repeated replacement by the same cluster needs no force.
    assert_eq!(replace(spec(false)).await.unwrap(), "id-2");
}
