//! `kubectl` commands that update objects: `apply`, `patch`, `edit` and imperative commands.

use crate::kubectl::{Kubectl, ok, refused, with, with_each};

fn manifest(replicas: u32, image: &str, value: &str) -> String {
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
    with_each("apply", |kubectl| {
        let (first, second) = (manifest(2, "nginx:1", "v"), manifest(3, "nginx:2", "w"));
        let unchanged: &[&str] = &["deployment.apps/app unchanged", "configmap/some unchanged"];
        kubectl.run(&[
            with("apply -f -", &first, &["deployment.apps/app created", "configmap/some created"]),
            with("apply -f -", &first, unchanged),
            with("apply --dry-run=server -f -", &second, &["deployment.apps/app configured (server dry run)"]),
            with("apply -f -", &first, unchanged),
            with("apply -f -", &second, &["deployment.apps/app configured", "configmap/some configured"]),
            ok(
                "get deploy app -o jsonpath='{.spec.replicas} {.spec.template.spec.containers[*].image} {.metadata.generation}'",
                &["3 nginx:2 2"],
            ),
            ok("apply view-last-applied deploy/app", &["replicas: 3", "image: nginx:2"]),
            with("replace -f -", &first, &["deployment.apps/app replaced", "configmap/some replaced"]),
        ]);
        let (code, printed) = kubectl.pipe("diff -f -", &second);
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
        let (code, printed) = kubectl.pipe("apply --server-side -f -", &first);
        assert_eq!(code, 1);
        assert!(printed.contains("accepted media types include: application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json"), "{printed}");
    });
}

#[test]
fn json_merge_and_strategic_patches() {
    with_each("patch", |kubectl| {
        kubectl.run(&[
            ok("create deployment web --image=nginx", &[]),
            ok(
                r#"patch deploy web -p '{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"s"}]}}}}'"#,
                &["deployment.apps/web patched"],
            ),
            ok("get deploy web -o jsonpath='{.spec.template.spec.containers[*].name}'", &["side nginx"]),
            ok(r#"patch deploy web --type=merge -p '{"spec":{"replicas":4}}'"#, &["patched"]),
            ok(
                r#"patch deploy web --type=json -p '[{"op":"replace","path":"/spec/replicas","value":5}]'"#,
                &["patched"],
            ),
            ok("get deploy web -o jsonpath='{.spec.replicas}'", &["5"]),
            ok(r#"patch deploy web --type=merge -p '{"spec":{"replicas":5}}'"#, &["patched (no change)"]),
            refused(
                r#"patch deploy web --type=json -p '[{"op":"test","path":"/spec/replicas","value":9}]'"#,
                &["The request is invalid"],
            ),
            refused(
                r#"patch deploy web --type=merge -p '{"spec":{"replicas":"x"}}'"#,
                &["The request is invalid: patch: Invalid value:", "cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"],
            ),
            refused(r#"patch deploy none --type=merge -p '{}'"#, &[r#"deployments.apps "none" not found"#]),
            ok(
                r#"new: patch deploy web --subresource=status --type=merge -p '{"status":{"observedGeneration":1}}'"#,
                &["deployment.apps/web patched"],
            ),
        ]);
    });
}

#[test]
fn imperative_commands_update_one_field() {
    with_each("short", |kubectl: &Kubectl| {
        kubectl.run(&[
            ok("create deployment web --image=nginx:1", &[]),
            ok("label deploy web x=y", &["deployment.apps/web labeled"]),
            refused(
                "label deploy web x=z",
                &["error: 'x' already has a value (y), and --overwrite is false"],
            ),
            ok(
                "label deploy web x=z --overwrite",
                &["deployment.apps/web labeled"],
            ),
            ok(
                "annotate deploy --all a=b",
                &["deployment.apps/web annotated"],
            ),
            ok(
                "get deploy -l 'x in (y,z)' --show-labels",
                &["web 0/1 0 0", "app=web,x=z"],
            ),
            ok("get deploy web -L x", &["AGE X", "z"]),
            ok("label deploy web x-", &["deployment.apps/web"]),
            ok("get deploy -l x", &["No resources found in NS namespace."]),
            ok(
                "scale deploy web --replicas=7",
                &["deployment.apps/web scaled"],
            ),
            refused(
                "scale deploy web --replicas=8 --current-replicas=3",
                &["error: Expected replicas to be 3, was 7"],
            ),
            ok(
                "scale deploy web --replicas=8 --current-replicas=7",
                &["deployment.apps/web scaled"],
            ),
            ok(
                "set image deploy/web nginx=nginx:9",
                &["deployment.apps/web image updated"],
            ),
            ok(
                "set env deploy/web A=b",
                &["deployment.apps/web env updated"],
            ),
            ok(
                "set resources deploy/web --limits=cpu=200m",
                &["deployment.apps/web resource requirements updated"],
            ),
            ok(
                "rollout restart deploy/web",
                &["deployment.apps/web restarted"],
            ),
            ok("rollout pause deploy/web", &["deployment.apps/web paused"]),
            ok(
                "rollout resume deploy/web",
                &["deployment.apps/web resumed"],
            ),
        ]);
        let (code, printed) = kubectl.edit("edit deploy web", "s/nginx:9/nginx:10/");
        assert_eq!(code, 0, "{printed}");
        kubectl.run(&[ok(
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
