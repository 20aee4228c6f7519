//! Custom resources, Karmada's CRDs, and Karmada's policies with `kubectl`.

use std::sync::Arc;

use harness::karmada_definitions::karmada_definitions;
use serde_json::{Value, json};

use crate::kubectl::{Kubectl, ok, refused, refused_with, with, with_each, with_each_at};
use crate::plane::Plane;

/// A CRD manifest; `name` makes its names unique among tests.
fn definition(name: &str) -> String {
    format!(
        r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {{name: {name}s.ex.io}}
spec:
  group: ex.io
  scope: Namespaced
  names: {{plural: {name}s, singular: {name}, kind: {name}, shortNames: [{name}x], categories: [all]}}
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
fn custom_resources_are_served_while_their_crd_exists() {
    with_each("custom", |kubectl: &Kubectl| {
        let kind = format!("thing{}", kubectl.label);
        let own = |line: &str| line.replace("KIND", &kind);
        let crd = own("crd/KINDs.ex.io");
        let object = |spec: &str| {
            own(&format!(
                "apiVersion: ex.io/v1\nkind: KIND\nmetadata: {{name: a}}\nspec: {spec}\n"
            ))
        };
        kubectl.run(&[
            with("create -f -", &definition(&kind), &[&own("customresourcedefinition.apiextensions.k8s.io/KINDs.ex.io created")]),
            ok(&format!("wait --for=condition=established {crd} --timeout=10s"), &["condition met"]),
            with("apply -f -", &object("{size: 3}"), &[&own("KIND.ex.io/a created")]),
            with("apply -f -", &object("{size: 3}"), &[&own("KIND.ex.io/a unchanged")]),
            ok(&own("get KINDs"), &["NAME SIZE AGE", "a 3"]),
            ok(&own("get KINDx a -o yaml"), &["size: 3", "sort: a", "generation: 1"]),
            ok(&own("scale KIND a --replicas=5"), &[&own("KIND.ex.io/a scaled")]),
            ok("get all", &[&own("KIND.ex.io/a 5")]),
            ok(&own("explain KIND.spec"), &["What is wanted.", "size <integer> -required-", "How many."]),
            ok(&own("describe KIND a"), &["Size: 5", "Sort: a"]),
            refused_with(
                "apply --validate=false -f -",
                &object("{size: 0, sort: z}"),
                &["spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1", r#"spec.sort: Unsupported value: "z": supported values: "a", "b""#],
            ),
            refused_with("old: apply -f -", &object("{size: 1, more: 1}"), &[r#"unknown field "more""#]),
            refused_with("new: apply -f -", &object("{size: 1, more: 1}"), &[r#"strict decoding error: unknown field "spec.more""#]),
            refused(&own(r#"patch KIND a --type=merge -p '{"spec":{"size":null}}'"#), &["spec.size: Required value"]),
            refused(&own(r#"patch KIND a --type=strategic -p '{"spec":{"size":1}}'"#), &["accepted media types include: application/json-patch+json, application/merge-patch+json"]),
            ok(&own(r#"new: patch KIND a --subresource=status --type=merge -p '{"status":{"size":4}}'"#), &["patched"]),
            ok(&format!("delete {crd} --timeout=30s"), &["deleted"]),
            refused(&own("get KINDs"), &[]),
            // The controllers that watched the kind have stopped their watches.
            ok("create namespace NS-after", &[]),
            ok("delete namespace NS-after --timeout=30s", &["deleted"]),
        ]);
    });
}

fn policy(name: &str, cluster: &str) -> String {
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
    with_each_at(&Arc::new(Plane::start()), "definitions", |kubectl| {
        let before = kubectl.output("api-resources --api-group=policy.karmada.io");
        kubectl.run(&[
            with("new: apply -f -", &policy("p", "m1"), &["p created"]),
            with(
                "new: apply -f -",
                &list,
                &[
                    "propagationpolicies.policy.karmada.io created",
                    "works.work.karmada.io created",
                ],
            ),
            ok(&until("NamesAccepted=False", &own), &["condition met"]),
            ok(&until("Established=False", &own), &["condition met"]),
            ok(&until("Established", &others), &["condition met"]),
            ok(&format!("new: {reason}"), &["PluralConflict NotAccepted"]),
            with(
                "new: apply -f -",
                &list,
                &["propagationpolicies.policy.karmada.io unchanged"],
            ),
            ok(
                &format!("new: {untouched}"),
                &[r#"1{"clusterAffinity":{"clusterNames":["m1"]}}"#],
            ),
            with("new: apply -f -", &policy("q", "m1"), &["q created"]),
            ok(
                "new: get pp,rb,work,cpp -A",
                &["propagationpolicy.policy.karmada.io/p"],
            ),
            with(
                "new: delete --timeout=30s -f -",
                &list,
                &["propagationpolicies.policy.karmada.io\" deleted"],
            ),
            ok("new: get crd", &["No resources found"]),
            ok(
                &format!("new: {untouched}"),
                &[r#"1{"clusterAffinity":{"clusterNames":["m1"]}}"#],
            ),
            with("new: apply -f -", &policy("q", "m2"), &["q configured"]),
            ok("new: delete pp q --timeout=10s", &["deleted"]),
            ok("get --raw /readyz", &["ok"]),
        ]);
        assert_eq!(
            kubectl.output("api-resources --api-group=policy.karmada.io"),
            before
        );
    });
}

#[test]
fn propagation_policies() {
    let policy = |cluster: &str| policy("p", cluster);
    with_each("policies", |kubectl| {
        kubectl.run(&[
            ok("get clusters,pp,cpp,op,rb,work", &["No resources found"]),
            with("apply -f -", &policy("m1"), &["propagationpolicy.policy.karmada.io/p created"]),
            with("apply -f -", &policy("m2"), &["propagationpolicy.policy.karmada.io/p configured"]),
            ok("get pp -A", &["NAMESPACE NAME CONFLICT-RESOLUTION PRIORITY AGE", "NS p Abort 0"]),
            ok("describe pp p", &["Preemption: Never", "Scheduler Name: default-scheduler", "m2"]),
            refused(
                r#"patch pp p -p '{"spec":{"priority":4}}'"#,
                &["accepted media types include: application/json-patch+json, application/merge-patch+json"],
            ),
            ok(r#"patch pp p --type=merge -p '{"spec":{"priority":4}}'"#, &["patched"]),
            refused(
                r#"patch pp p --type=merge -p '{"spec":{"conflictResolution":"Maybe"}}'"#,
                &[r#"spec.conflictResolution: Unsupported value: "Maybe": supported values: "Abort", "Overwrite""#],
            ),
            ok("get pp p -o jsonpath='{.spec.priority}'", &["4"]),
        ]);
    });
}
