//! `kubectl` commands that update objects: `apply`, `patch`, `edit` and imperative commands.

use crate::api::kubectl::{Kubectl, fails, succeeds, succeeds_with_input, with_each_kubectl};

fn deployment_and_config_map(replicas: u32, image: &str, value: &str) -> String {
    format!(
        r#"
apiVersion: apps/v1
kind: Deployment
metadata: {{name: app, labels: {{app: app}}}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: app}}}}
  template:
    metadata: {{labels: {{app: app}}}}
    spec:
      containers:
      - {{name: c, image: "{image}", ports: [{{containerPort: 80}}]}}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: some}}
data: {{k: {value}}}
"#
    )
}

#[test]
fn apply_is_idempotent() {
    with_each_kubectl("apply", |kubectl| {
        let (first, second) = (
            deployment_and_config_map(2, "nginx:1", "v"),
            deployment_and_config_map(3, "nginx:2", "w"),
        );
        let unchanged: &[&str] = &["deployment.apps/app unchanged", "configmap/some unchanged"];
        kubectl.run_commands(&[
            succeeds_with_input("apply -f -", &first, &["deployment.apps/app created", "configmap/some created"]),
            succeeds_with_input("apply -f -", &first, unchanged),
            succeeds_with_input("apply --dry-run=server -f -", &second, &["deployment.apps/app configured (server dry run)"]),
            succeeds_with_input("apply -f -", &first, unchanged),
            succeeds_with_input("apply -f -", &second, &["deployment.apps/app configured", "configmap/some configured"]),
            succeeds(
                "get deploy app -o jsonpath='{.spec.replicas} {.spec.template.spec.containers[*].image} {.metadata.generation}'",
                &["3 nginx:2 2"],
            ),
            succeeds("apply view-last-applied deploy/app", &["replicas: 3", "image: nginx:2"]),
            succeeds_with_input("replace -f -", &first, &["deployment.apps/app replaced", "configmap/some replaced"]),
        ]);
        let (code, printed) = kubectl.run_with_input("diff -f -", &second);
        assert_eq!(code, 1, "{printed}");
        for line in [
            "-replicas:2",
            "+replicas:3",
            "+-image:nginx:2",
            "-k:v",
            "+k:w",
        ] {
            let bare = |l: &str| l.split_whitespace().collect::<String>();
            assert!(
                printed.lines().any(|l| bare(l) == line),
                "{line}: {printed}"
            );
        }
    });
}

#[test]
fn json_merge_and_strategic_patches() {
    with_each_kubectl("patch", |kubectl| {
        kubectl.run_commands(&[
            succeeds("create deployment web --image=nginx", &[]),
            succeeds(
                r#"patch deploy web -p '{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"s"}]}}}}'"#,
                &["deployment.apps/web patched"],
            ),
            succeeds("get deploy web -o jsonpath='{.spec.template.spec.containers[*].name}'", &["side nginx"]),
            succeeds(r#"patch deploy web --type=merge -p '{"spec":{"replicas":4}}'"#, &["patched"]),
            succeeds(
                r#"patch deploy web --type=json -p '[{"op":"replace","path":"/spec/replicas","value":5}]'"#,
                &["patched"],
            ),
            succeeds("get deploy web -o jsonpath='{.spec.replicas}'", &["5"]),
            succeeds(r#"patch deploy web --type=merge -p '{"spec":{"replicas":5}}'"#, &["patched (no change)"]),
            fails(
                r#"patch deploy web --type=json -p '[{"op":"test","path":"/spec/replicas","value":9}]'"#,
                &["The request is invalid"],
            ),
            fails(
                r#"patch deploy web --type=merge -p '{"spec":{"replicas":"x"}}'"#,
                &["The request is invalid: patch: Invalid value:", "cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"],
            ),
            fails(r#"patch deploy none --type=merge -p '{}'"#, &[r#"deployments.apps "none" not found"#]),
            succeeds(
                r#"new: patch deploy web --subresource=status --type=merge -p '{"status":{"observedGeneration":1}}'"#,
                &["deployment.apps/web patched"],
            ),
        ]);
    });
}

#[test]
fn imperative_commands_update_one_field() {
    with_each_kubectl("short", |kubectl: &Kubectl| {
        kubectl.run_commands(&[
            succeeds("create deployment web --image=nginx:1", &[]),
            succeeds("label deploy web x=y", &["deployment.apps/web labeled"]),
            fails(
                "label deploy web x=z",
                &["error: 'x' already has a value (y), and --overwrite is false"],
            ),
            succeeds(
                "label deploy web x=z --overwrite",
                &["deployment.apps/web labeled"],
            ),
            succeeds(
                "annotate deploy --all a=b",
                &["deployment.apps/web annotated"],
            ),
            succeeds(
                "get deploy -l 'x in (y,z)' --show-labels",
                &["web 0/1 0 0", "app=web,x=z"],
            ),
            succeeds("get deploy web -L x", &["AGE X", "z"]),
            succeeds("label deploy web x-", &["deployment.apps/web"]),
            succeeds("get deploy -l x", &["No resources found in NS namespace."]),
            succeeds(
                "scale deploy web --replicas=7",
                &["deployment.apps/web scaled"],
            ),
            fails(
                "scale deploy web --replicas=8 --current-replicas=3",
                &["error: Expected replicas to be 3, was 7"],
            ),
            succeeds(
                "scale deploy web --replicas=8 --current-replicas=7",
                &["deployment.apps/web scaled"],
            ),
            succeeds(
                "set image deploy/web nginx=nginx:9",
                &["deployment.apps/web image updated"],
            ),
            succeeds(
                "set env deploy/web A=b",
                &["deployment.apps/web env updated"],
            ),
            succeeds(
                "set resources deploy/web --limits=cpu=200m",
                &["deployment.apps/web resource requirements updated"],
            ),
            succeeds(
                "rollout restart deploy/web",
                &["deployment.apps/web restarted"],
            ),
            succeeds("rollout pause deploy/web", &["deployment.apps/web paused"]),
            succeeds(
                "rollout resume deploy/web",
                &["deployment.apps/web resumed"],
            ),
        ]);
        let (code, printed) = kubectl.edit("edit deploy web", "s/nginx:9/nginx:10/");
        assert_eq!(code, 0, "{printed}");
        kubectl.run_commands(&[succeeds(
            "get deploy web -o yaml",
            &[
                "image: nginx:10",
                "cpu: 200m",
                "value: b",
                "replicas: 8",
                "a: b",
            ],
        )]);
    });
}
