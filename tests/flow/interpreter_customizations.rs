//! Custom resources interpreted by Lua scripts of ResourceInterpreterCustomizations.

use client::{ListOptions, ResourcePath};
use serde_json::{Value, json};

use crate::flow::cache_waits::wait_until_scheduler_sees;
use crate::flow::fleet::{FleetFixture, find_condition, wait_until};
use crate::flow::objects::{
    BINDINGS, CONFIG_MAPS, CUSTOMIZATIONS, DEPLOYMENTS, EVENTS, WIDGETS, config_map, deployment,
    divided_policy, policy, widget, widget_definition,
};

const FEATURE_GATES: &str = "MultiplePodTemplatesScheduling=true";

pub(crate) fn customization(name: &str, kind: (&str, &str), scripts: &[(&str, &str)]) -> Value {
    let scripts = scripts.iter().map(|(operation, script)| {
        let script = json!({"luaScript": script});
        ((*operation).to_owned(), script)
    });
    json!({
        "apiVersion": "config.karmada.io/v1alpha1", "kind": "ResourceInterpreterCustomization",
        "metadata": {"name": name},
        "spec": {"target": {"apiVersion": kind.0, "kind": kind.1},
                 "customizations": Value::Object(scripts.collect())},
    })
}

pub(crate) const WIDGET_KIND: (&str, &str) = ("example.org/v1", "Widget");

/// A fleet whose control plane and members serve widgets.
pub(crate) async fn fleet_with_widgets(ns: &str) -> FleetFixture {
    // The control plane notices the new API of its members at once.
    let flags = ["--cluster-status-update-frequency", "500ms"];
    let fleet = FleetFixture::with_flags(
        &[&flags[..], &["--feature-gates", FEATURE_GATES]].concat(),
        ns,
    )
    .await;
    for server in fleet.members.iter().chain([&fleet.control]) {
        server.create(widget_definition()).await;
    }
    for (at, _) in fleet.members.iter().enumerate() {
        let cluster = format!("member{}", at + 1);
        let serves = |c: &Value| {
            let apis = c["status"]["apiEnablements"].as_array();
            apis.is_some_and(|all| all.iter().any(|a| a["groupVersion"] == WIDGET_KIND.0))
        };
        let clusters = &crate::flow::objects::CLUSTERS;
        let control = &fleet.control;
        control
            .wait_until(clusters, "", &cluster, "widgets", serves)
            .await;
    }
    wait_until("widgets of the control plane", async || {
        let widgets = ResourcePath::collection(&WIDGETS, ns);
        let options = ListOptions::default();
        fleet.control.api.list(widgets, &options).await.is_ok()
    })
    .await;
    wait_until_scheduler_sees(&fleet.control, ns, &["member1", "member2", "member3"]).await;
    fleet
}

const GET_REPLICAS_SCRIPT: &str = "function GetReplicas(obj) return obj.spec.size, nil end";
const REVISE_REPLICA_SCRIPT: &str =
    "function ReviseReplica(obj, replicas) obj.spec.size = replicas return obj end";

// proves: INT-lua-first, INT-per-operation, INT-effective-at-once, LUA-revise, LUA-retain, LUA-status, LUA-health, LUA-aggregate, LUA-dependencies
#[tokio::test]
async fn scripts_implement_every_interpreter_operation() {
    let ns = "scripts";
    let fleet = fleet_with_widgets(ns).await;
    let control = &fleet.control;
    let scripts = [
        ("replicaResource", GET_REPLICAS_SCRIPT),
        ("replicaRevision", REVISE_REPLICA_SCRIPT),
        (
            "retention",
            "function Retain(desired, observed) desired.spec.node = observed.spec.node return desired end",
        ),
        (
            "statusReflection",
            "function ReflectStatus(obj) return {ready = obj.status and obj.status.ready or 0} end",
        ),
        (
            "healthInterpretation",
            "function InterpretHealth(obj) return obj.status ~= nil and obj.status.ready == obj.spec.size end",
        ),
        (
            "statusAggregation",
            "function AggregateStatus(obj, items)
                local ready = 0
                for _, item in ipairs(items) do
                    if item.status ~= nil then ready = ready + item.status.ready end
                end
                obj.status = {ready = ready}
                return obj
            end",
        ),
        (
            "dependencyInterpretation",
            "function GetDependencies(obj)
                return {{apiVersion = 'v1', kind = 'ConfigMap', namespace = obj.metadata.namespace, name = obj.spec.config}}
            end",
        ),
    ];
    let all = customization("widgets", WIDGET_KIND, &scripts);
    control.create(all).await;
    let mut thing = widget(ns, "w", 4);
    thing["spec"]["config"] = "conf".into();
    let mut claim = divided_policy(ns, "w", &thing, &[("member1", 1), ("member2", 1)]);
    claim["spec"]["propagateDeps"] = true.into();
    control.create(config_map(ns, "conf", "v")).await;
    control.create(thing).await;
    control.create(claim).await;
    let sized = |size: i64| move |w: &Value| w["spec"]["size"] == size;
    for member in &fleet.members[..2] {
        member
            .wait_until(&WIDGETS, ns, "w", "halved", sized(2))
            .await;
        member.wait_until_exists(&CONFIG_MAPS, ns, "conf").await;
        let copy = member
            .merge_patch(&WIDGETS, ns, "w", json!({"spec": {"node": "n1"}}))
            .await;
        member
            .patch_status(&copy, json!({"ready": 2, "own": "x"}))
            .await;
    }
    let binding = control
        .wait_until(&BINDINGS, ns, "w-widget", "healthy everywhere", |b| {
            let all = b["status"]["aggregatedStatus"].as_array();
            all.is_some_and(|all| {
                let fine =
                    |i: &Value| i["health"] == "Healthy" && i["status"] == json!({"ready": 2});
                all.len() == 2 && all.iter().all(fine)
            })
        })
        .await;
    assert_eq!(binding["spec"]["replicas"], 4, "{binding:#}");
    let summed = |w: &Value| w["status"] == json!({"ready": 4});
    control
        .wait_until(&WIDGETS, ns, "w", "summed up", summed)
        .await;

    // Changed scripts take effect at once, each for its operation.
    let scripts = json!({"spec": {"customizations": {
        "replicaResource": {"luaScript": "function GetReplicas(obj) return obj.spec.size * 2 end"},
        "statusAggregation": {"luaScript": "function AggregateStatus(obj, items) obj.status = {clusters = #items} return obj end"},
        "dependencyInterpretation": null,
    }}});
    control
        .merge_patch(&CUSTOMIZATIONS, "", "widgets", scripts)
        .await;
    for member in &fleet.members[..2] {
        let doubled = |w: &Value| w["spec"]["size"] == 4 && w["spec"]["node"] == "n1";
        member
            .wait_until(&WIDGETS, ns, "w", "doubled, and on its node", doubled)
            .await;
        member.wait_until_deleted(&CONFIG_MAPS, ns, "conf").await;
    }
    let counted = |w: &Value| w["status"] == json!({"clusters": 2});
    control
        .wait_until(&WIDGETS, ns, "w", "counted", counted)
        .await;
    control.delete(&CUSTOMIZATIONS, "", "widgets").await;
    let uncounted = |b: &Value| b["spec"].get("replicas").is_none();
    control
        .wait_until(&BINDINGS, ns, "w-widget", "without replicas", uncounted)
        .await;
    let edit = json!({"spec": {"size": 5}});
    control.merge_patch(&WIDGETS, ns, "w", edit).await;
    for member in &fleet.members[..2] {
        let undivided = |w: &Value| w["spec"]["size"] == 5 && w["spec"]["node"] == "n1";
        let what = "of the template's size, and on the node that the member has set";
        member.wait_until(&WIDGETS, ns, "w", what, undivided).await;
    }
}

// proves: EXE-retain, EXE-three-way
#[tokio::test]
async fn a_field_that_is_no_longer_retained_stays_as_the_member_set_it() {
    let ns = "retained-once";
    let fleet = fleet_with_widgets(ns).await;
    let (control, member) = (&fleet.control, &fleet.members[0]);
    let script = "function Retain(desired, observed)
        if desired.spec.config == 'retained' then desired.spec.node = observed.spec.node end
        return desired
    end";
    let scripts = [("retention", script)];
    control
        .create(customization("retention", WIDGET_KIND, &scripts))
        .await;
    let mut thing = widget(ns, "w", 1);
    thing["spec"]["config"] = "retained".into();
    control.create(policy(ns, "w", &thing, &["member1"])).await;
    control.create(thing).await;
    member.wait_until_exists(&WIDGETS, ns, "w").await;
    let node = json!({"spec": {"node": "n1"}});
    member.merge_patch(&WIDGETS, ns, "w", node).await;
    for (size, config) in [(2, "retained"), (3, "free"), (4, "free")] {
        let edit = json!({"spec": {"size": size, "config": config}});
        control.merge_patch(&WIDGETS, ns, "w", edit).await;
        let is_edited = |w: &Value| w["spec"]["size"] == size;
        let copy = member
            .wait_until(&WIDGETS, ns, "w", "edited", is_edited)
            .await;
        assert_eq!(copy["spec"]["node"], "n1", "{config}: {copy:#}");
    }
}

// proves: INT-components, LUA-components, LUA-deadline
#[tokio::test]
async fn scripts_define_components_and_a_hostile_script_affects_no_other_object() {
    let ns = "components";
    let fleet = fleet_with_widgets(ns).await;
    let control = &fleet.control;
    let scripts = [(
        "componentResource",
        "local kube = require('kube')
        function GetComponents(obj)
            local pod = {spec = {containers = {{name = 'c', resources = {requests = {cpu = '100m'}}}}}}
            return {
                {name = 'worker', replicas = obj.spec.size, replicaRequirements = kube.accuratePodRequirements(pod)},
                {name = 'master', replicas = 1},
            }
        end",
    )];
    control
        .create(customization("parts", WIDGET_KIND, &scripts))
        .await;
    let thing = widget(ns, "w", 3);
    control.create(policy(ns, "w", &thing, &["member1"])).await;
    control.create(thing).await;
    let expected = json!([
        {"name": "master", "replicas": 1},
        {"name": "worker", "replicas": 3, "replicaRequirements": {"resourceRequest": {"cpu": "100m"}}},
    ]);
    let bound = |b: &Value| b["spec"]["components"] == expected;
    let binding = control
        .wait_until(&BINDINGS, ns, "w-widget", "bound", bound)
        .await;
    assert!(binding["spec"].get("replicas").is_none(), "{binding:#}");
    fleet.members[0].wait_until_exists(&WIDGETS, ns, "w").await;

    let endless = json!({"spec": {"customizations": {"componentResource": {
        "luaScript": "function GetComponents(obj) while true do end end"}}}});
    control
        .merge_patch(&CUSTOMIZATIONS, "", "parts", endless)
        .await;
    let other = deployment(ns, "web", 1);
    control
        .create(policy(ns, "web", &other, &["member1"]))
        .await;
    control.create(other).await;
    let applied = |b: &Value| find_condition(b, "FullyApplied")["status"] == "True";
    control
        .wait_until(&BINDINGS, ns, "web-deployment", "applied", applied)
        .await;
    fleet.members[0]
        .wait_until_exists(&DEPLOYMENTS, ns, "web")
        .await;
    wait_until("the event about the script", async || {
        let events = control.list(&EVENTS, ns).await;
        events.iter().any(|e| {
            let text = e["message"].as_str().unwrap_or_default();
            e["reason"] == "GetComponentsFailed"
                && text.contains("parts: GetComponents: the script did not end within 1s")
        })
    })
    .await;
}
