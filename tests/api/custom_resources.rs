//! Custom resources, Karmada's CRDs, and Karmada's policies with `kubectl`.

use std::sync::Arc;

use harness::karmada_crds::karmada_definitions;
use serde_json::{Value, json};

use crate::api::access::wait_until_code;
use crate::api::kubectl::{
    Kubectl, fails, fails_with_input, succeeds, succeeds_with_input, with_each_kubectl,
    with_each_kubectl_at,
};
use crate::api::test_server::ApiTestServer;

/// A CRD manifest; `name` makes its names unique among tests.
fn crd_manifest(name: &str) -> String {
    format!(
        r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {name}s.ex.io}}
spec:
  group: ex.io
  scope: Namespaced
  names: {{plural: {name}s, singular: {name}, kind: {name}, shortNames: [{name}x], categories: [{name}family]}}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {{status: {{}}, scale: {{specReplicasPath: .spec.size, statusReplicasPath: .status.size}}}}
    additionalPrinterColumns:
    - {{name: Size, type: integer, jsonPath: .spec.size}}
    - {{name: Age, type: date, jsonPath: .metadata.creationTimestamp}}
    schema:
      openAPIV3Schema:
        type: object
        description: A thing.
        properties:
          spec:
            type: object
            description: What is wanted.
            required: [size]
            properties:
              size: {{type: integer, minimum: 1, description: How many.}}
              sort: {{type: string, enum: [a, b], default: a}}
          status: {{type: object, properties: {{size: {{type: integer}}}}}}
"#
    )
}

#[test]
fn names_of_a_definition_have_defaults_and_are_published() {
    let server = ApiTestServer::shared();
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({"metadata": {"name": "gadgets.names.example.org"}, "spec": {
        "group": "names.example.org", "scope": "Cluster",
        "names": {"plural": "gadgets", "kind": "Gadget", "shortNames": ["gd"], "categories": ["tools"]},
        "versions": [{"name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": schema}}]}});
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let created = server.post(definitions, &definition).json();
    assert_eq!(created["spec"]["names"]["singular"], "gadget");
    assert_eq!(created["spec"]["names"]["listKind"], "GadgetList");
    let gadgets = || server.get("/apis/names.example.org/v1/gadgets");
    let list = wait_until_code(200, gadgets).json();
    assert_eq!(
        (&list["kind"], &list["items"]),
        (&json!("GadgetList"), &json!([]))
    );
    let revision = list["metadata"]["resourceVersion"].as_str().unwrap();
    assert!(revision.parse::<u64>().unwrap() > 0, "{revision}");
    let resources = server.get("/apis/names.example.org/v1").json();
    let published = &resources["resources"][0];
    assert_eq!(published["singularName"], "gadget");
    assert_eq!(published["shortNames"], json!(["gd"]));
    assert_eq!(published["categories"], json!(["tools"]));
}

#[test]
fn custom_resources_are_served_while_their_crd_exists() {
    with_each_kubectl("custom", |kubectl: &Kubectl| {
        let kind = format!("thing{}", kubectl.label);
        let own = |line: &str| line.replace("KIND", &kind);
        let crd = own("crd/KINDs.ex.io");
        let object = |spec: &str| {
            own(&format!(
                "apiVersion: ex.io/v1\nkind: KIND\nmetadata: {{name: a}}\nspec: {spec}\n"
            ))
        };
        kubectl.run_commands(&[
            succeeds_with_input("create -f -", &crd_manifest(&kind), &[&own("customresourcedefinition.apiextensions.k8s.io/KINDs.ex.io created")]),
            succeeds(&format!("wait --for=condition=established {crd} --timeout=10s"), &["condition met"]),
            succeeds_with_input("apply -f -", &object("{size: 3}"), &[&own("KIND.ex.io/a created")]),
            succeeds_with_input("apply -f -", &object("{size: 3}"), &[&own("KIND.ex.io/a unchanged")]),
            succeeds(&own("get KINDs"), &["NAME SIZE AGE", "a 3"]),
            succeeds(&own("get KINDx a -o yaml"), &["size: 3", "sort: a", "generation: 1"]),
            succeeds(&own("scale KIND a --replicas=5"), &[&own("KIND.ex.io/a scaled")]),
            succeeds(&own("get KINDfamily"), &["NAME SIZE AGE", "a 5"]),
            succeeds(&own("explain KIND.spec"), &["What is wanted.", "size <integer> -required-", "How many."]),
            succeeds(&own("describe KIND a"), &["Size: 5", "Sort: a"]),
            fails_with_input(
                "apply --validate=false -f -",
                &object("{size: 0, sort: z}"),
                &["spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1", r#"spec.sort: Unsupported value: "z": supported values: "a", "b""#],
            ),
            fails_with_input("old: apply -f -", &object("{size: 1, more: 1}"), &[r#"unknown field "more""#]),
            fails_with_input("new: apply -f -", &object("{size: 1, more: 1}"), &[r#"strict decoding error: unknown field "spec.more""#]),
            fails(&own(r#"patch KIND a --type=merge -p '{"spec":{"size":null}}'"#), &["spec.size: Required value"]),
            fails(&own(r#"patch KIND a --type=strategic -p '{"spec":{"size":1}}'"#), &["accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"]),
            succeeds(&own(r#"new: patch KIND a --subresource=status --type=merge -p '{"status":{"size":4}}'"#), &["patched"]),
            succeeds(&format!("delete {crd} --timeout=30s"), &["deleted"]),
            fails(&own("get KINDs"), &[]),
            // The controllers that watched the kind have stopped their watches.
            succeeds("create namespace NS-after", &[]),
            succeeds("delete namespace NS-after --timeout=30s", &["deleted"]),
        ]);
    });
}

fn policy_manifest(name: &str, cluster: &str) -> String {
    format!(
        r#"
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {{name: {name}}}
spec:
  resourceSelectors: [{{apiVersion: apps/v1, kind: Deployment, name: app}}]
  placement: {{clusterAffinity: {{clusterNames: [{cluster}]}}}}
"#
    )
}

/// GitOps repositories contain Karmada's CRDs. CRDs of kinds that Flotilla serves itself are not
/// accepted (NamesAccepted is False), and deleting them deletes no objects.
#[test]
fn crds_of_karmada_are_harmless() {
    let definitions = karmada_definitions();
    let all: Vec<&Value> = definitions.iter().map(|d| &d.object).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": all}).to_string();
    let names = |built_in: bool| {
        let some = definitions.iter().filter(|d| d.built_in == built_in);
        some.map(|d| format!("crd/{}", d.name))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let (own, others) = (names(true), names(false));
    let until = |condition: &str, of: &str| {
        format!("new: wait --for=condition={condition} --timeout=20s {of}")
    };
    let reason = "get crd propagationpolicies.policy.karmada.io -o jsonpath='{.status.conditions[*].reason}'";
    let untouched = r#"get pp p -o jsonpath='{.metadata.generation}{.spec.placement}'"#;
    with_each_kubectl_at(
        &Arc::new(ApiTestServer::start()),
        "definitions",
        |kubectl| {
            let before = kubectl.output("api-resources --api-group=policy.karmada.io");
            kubectl.run_commands(&[
                succeeds_with_input(
                    "new: apply -f -",
                    &policy_manifest("p", "m1"),
                    &["p created"],
                ),
                succeeds_with_input(
                    "new: apply -f -",
                    &list,
                    &[
                        "propagationpolicies.policy.karmada.io created",
                        "works.work.karmada.io created",
                    ],
                ),
                succeeds(&until("NamesAccepted=False", &own), &["condition met"]),
                succeeds(&until("Established=False", &own), &["condition met"]),
                succeeds(&until("Established", &others), &["condition met"]),
                succeeds(&format!("new: {reason}"), &["PluralConflict NotAccepted"]),
                succeeds_with_input(
                    "new: apply -f -",
                    &list,
                    &["propagationpolicies.policy.karmada.io unchanged"],
                ),
                succeeds(
                    &format!("new: {untouched}"),
                    &[r#"1{"clusterAffinity":{"clusterNames":["m1"]}}"#],
                ),
                succeeds_with_input(
                    "new: apply -f -",
                    &policy_manifest("q", "m1"),
                    &["q created"],
                ),
                succeeds(
                    "new: get pp,rb,work,cpp -A",
                    &["propagationpolicy.policy.karmada.io/p"],
                ),
                succeeds_with_input(
                    "new: delete --timeout=30s -f -",
                    &list,
                    &["propagationpolicies.policy.karmada.io\" deleted"],
                ),
                succeeds(
                    &format!("new: wait --for=delete --timeout=20s {own} {others}"),
                    &[],
                ),
                succeeds(
                    &format!("new: {untouched}"),
                    &[r#"1{"clusterAffinity":{"clusterNames":["m1"]}}"#],
                ),
                succeeds_with_input(
                    "new: apply -f -",
                    &policy_manifest("q", "m2"),
                    &["q configured"],
                ),
                succeeds("new: delete pp q --timeout=10s", &["deleted"]),
                succeeds("get --raw /readyz", &["ok"]),
            ]);
            assert_eq!(
                kubectl.output("api-resources --api-group=policy.karmada.io"),
                before
            );
        },
    );
}

#[test]
fn propagation_policies() {
    let policy = |cluster: &str| policy_manifest("p", cluster);
    with_each_kubectl("policies", |kubectl| {
        kubectl.run_commands(&[
            succeeds("get clusters,pp,cpp,op,rb,work", &["No resources found"]),
            succeeds_with_input("apply -f -", &policy("m1"), &["propagationpolicy.policy.karmada.io/p created"]),
            succeeds_with_input("apply -f -", &policy("m2"), &["propagationpolicy.policy.karmada.io/p configured"]),
            succeeds("get pp -A", &["NAMESPACE NAME CONFLICT-RESOLUTION PRIORITY AGE", "NS p Abort 0"]),
            succeeds("describe pp p", &["Preemption: Never", "Scheduler Name: default-scheduler", "m2"]),
            fails(
                r#"patch pp p -p '{"spec":{"priority":4}}'"#,
                &["accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"],
            ),
            succeeds(r#"patch pp p --type=merge -p '{"spec":{"priority":4}}'"#, &["patched"]),
            fails(
                r#"patch pp p --type=merge -p '{"spec":{"conflictResolution":"Maybe"}}'"#,
                &[r#"spec.conflictResolution: Unsupported value: "Maybe": supported values: "Abort", "Overwrite""#],
            ),
            succeeds("get pp p -o jsonpath='{.spec.priority}'", &["4"]),
        ]);
    });
}
