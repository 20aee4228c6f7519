//! Every verb of kubectl 1.36: against Flotilla alone with the built-in kinds, and behind a
//! kube-apiserver with Karmada's kinds, over a restart.

use std::path::Path;

use base64::Engine;
use harness::certificate_requests::certificate_request;
use harness::kubectl::{Kubectl, fails, fails_with_input, succeeds, succeeds_with_input};

use crate::clients::{RestartableServer, StandaloneServer};

fn with_kubectl(namespace: &str, test: impl FnOnce(&Kubectl, &mut StandaloneServer)) {
    let mut server = StandaloneServer::start();
    let folder = server.dir.path().to_owned();
    if let Some(kubectl) = Kubectl::of_1_36(server.kubeconfig(), &folder, namespace) {
        test(&kubectl, &mut server);
    }
}

fn config_map(value: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"m"}},"data":{{"k":"{value}"}}}}"#
    )
}

#[test]
fn kubectl_1_36_creates_gets_and_describes() {
    with_kubectl("created", |kubectl, _| {
        kubectl.run_commands(&[
            succeeds("create deployment web --image=nginx --replicas=2", &["deployment.apps/web created"]),
            succeeds("create configmap c --from-literal=a=b", &["configmap/c created"]),
            succeeds("create secret generic s --from-literal=a=b", &["secret/s created"]),
            succeeds("create secret docker-registry r --docker-server=r --docker-username=u --docker-password=p", &["created"]),
            succeeds("create service clusterip svc --tcp=80", &["service/svc created"]),
            succeeds("create service nodeport np --tcp=80", &["created"]),
            succeeds("create service externalname en --external-name=x.y", &["created"]),
            succeeds("create service loadbalancer lb --tcp=80", &["created"]),
            succeeds("create serviceaccount sa", &["created"]),
            succeeds("create token sa --duration=10m --audience=x", &["ey"]),
            succeeds("create job j --image=busybox -- true", &["created"]),
            succeeds("create cronjob cj --image=busybox --schedule='0 0 * * *' -- true", &["created"]),
            succeeds("create job j2 --from=cronjob/cj", &["created"]),
            succeeds("create role r --verb=get --resource=pods", &["created"]),
            succeeds("create rolebinding rb --role=r --serviceaccount=NS:sa", &["created"]),
            succeeds("create clusterrole cr --verb=get --resource=nodes", &["created"]),
            succeeds("create clusterrolebinding crb --clusterrole=cr --user=jane", &["created"]),
            succeeds("create ingress ing --rule='a.b/x=svc:80'", &["created"]),
            succeeds("create poddisruptionbudget pdb --selector=app=web --min-available=1", &["created"]),
            succeeds("create priorityclass pc --value=5", &["created"]),
            succeeds("create quota q --hard=pods=10", &["created"]),
            succeeds("create configmap x --from-literal=a=b --dry-run=server -o name", &["configmap/x"]),
            succeeds("run p --image=nginx", &["pod/p created"]),
            succeeds("get deploy,cm,secret,svc,sa,job,cj,role,rolebinding,ing,pdb,quota", &["deployment.apps/web 0/2", "configmap/c 1", "ingress.networking.k8s.io/ing <none> a.b"]),
            succeeds("get deploy web -o wide", &["nginx nginx app=web"]),
            succeeds("get deploy web -o yaml", &["kind: Deployment", "!managedFields"]),
            succeeds("get deploy web -o json", &[r#""kind": "Deployment""#]),
            succeeds("get deploy web -o name", &["deployment.apps/web"]),
            succeeds("get deploy web -o kyaml", &[r#"kind: "Deployment""#]),
            succeeds("get deploy web -o jsonpath='{.spec.replicas}'", &["2"]),
            succeeds("get deploy web -o jsonpath-as-json='{.spec.replicas}'", &["[ 2 ]"]),
            succeeds("get deploy web -o go-template='{{.spec.replicas}}'", &["2"]),
            succeeds("get deploy web -o custom-columns=N:.metadata.name", &["N web"]),
            succeeds("get deploy -l app=web --show-labels -L app", &["app=web"]),
            succeeds("get deploy web --subresource=scale -o jsonpath='{.kind}'", &["Scale"]),
            succeeds("get deploy web --subresource=status -o name", &["deployment.apps/web"]),
            succeeds("get cm --field-selector metadata.name=c --sort-by=.metadata.name", &["c 1", "!kube-root"]),
            succeeds("get cm --chunk-size=1", &["c 1", "kube-root-ca.crt 1"]),
            succeeds("get cm c -o yaml --show-managed-fields", &["manager: kubectl-create"]),
            succeeds("get --raw /version", &[r#""minor":"36""#]),
            succeeds("get all", &["service/svc ClusterIP", "deployment.apps/web"]),
            fails("get cm none", &[r#"Error from server (NotFound): configmaps "none" not found"#]),
            fails("get foo", &[r#"the server doesn't have a resource type "foo""#]),
            succeeds("describe deploy web", &["Replicas: 2 desired"]),
            succeeds("describe secret s", &["a: 1 bytes"]),
            succeeds("describe svc svc", &["Type: ClusterIP"]),
            succeeds("describe sa sa", &["Name: sa"]),
            succeeds("describe ing ing", &["/x svc:80"]),
            succeeds("describe quota q", &["pods 1 10"]),
            succeeds("describe pdb pdb", &["Min available: 1"]),
            succeeds("describe job j", &["Name: j"]),
            succeeds("describe cj cj", &["0 0 * * *"]),
            succeeds("describe role r", &["pods [] [] [get]"]),
            succeeds("describe pod p", &["Status: Pending"]),
            succeeds("describe ns NS", &["Status: Active"]),
            succeeds("events --for=pod/p", &["No events found"]),
            succeeds("explain deploy.spec.strategy", &["FIELD: strategy <DeploymentStrategy>"]),
            succeeds("explain deploy --recursive", &["KIND: Deployment", "replicas"]),
            succeeds("explain cm --output=plaintext-openapiv2", &["KIND: ConfigMap"]),
            succeeds("explain pp.spec", &["FIELD: spec"]),
            succeeds("api-versions", &["apps/v1", "policy.karmada.io/v1alpha1"]),
            succeeds("api-resources --api-group=apps --verbs=patch -o wide", &["deployments deploy apps/v1 true Deployment"]),
            succeeds("version", &["Server Version: v1.36"]),
            succeeds("cluster-info", &["is running at"]),
            succeeds("options", &["can be passed to any command"]),
            succeeds("config view", &["DATA+OMITTED"]),
            succeeds("config current-context", &["flotilla"]),
        ]);
    });
}

#[test]
fn kubectl_1_36_applies_edits_and_patches() {
    with_kubectl("applied", |kubectl, _| {
        kubectl.run_commands(&[
            succeeds_with_input("apply -f -", &config_map("1"), &["configmap/m created"]),
            fails_with_input("diff -f -", &config_map("2"), &["- k: \"1\"", "+ k: \"2\""]),
            succeeds_with_input("apply -f -", &config_map("2"), &["configmap/m configured"]),
            succeeds_with_input("apply -f - --dry-run=server", &config_map("2"), &["unchanged (server dry run)"]),
            succeeds_with_input("apply -f - --dry-run=client", &config_map("2"), &["(dry run)"]),
            succeeds_with_input("diff -f -", &config_map("2"), &[]),
            succeeds("apply view-last-applied cm m", &["k: \"2\""]),
            // The first apply on the server takes over what the client applied.
            succeeds_with_input("apply --server-side -f -", &config_map("2"), &["serverside-applied"]),
            succeeds("get cm m -o yaml --show-managed-fields", &["manager: kubectl", "!kubectl-client-side-apply"]),
            fails_with_input("apply --server-side --field-manager=other -f -", &config_map("3"), &["conflict with \"kubectl\": .data.k"]),
            fails_with_input("diff --server-side --force-conflicts --field-manager=other -f -", &config_map("3"), &["+ k: \"3\""]),
            succeeds_with_input("apply --server-side --field-manager=other --force-conflicts -f -", &config_map("3"), &["serverside-applied"]),
            succeeds("patch cm m -p '{\"data\":{\"s\":\"t\"}}'", &["patched"]),
            succeeds("patch cm m --type=merge -p '{\"data\":{\"s\":\"u\"}}'", &["patched"]),
            succeeds("patch cm m --type=json -p '[{\"op\":\"replace\",\"path\":\"/data/s\",\"value\":\"v\"}]'", &["patched"]),
            succeeds("get cm m -o jsonpath='{.data}'", &[r#"{"k":"3","s":"v"}"#]),
            succeeds("label cm m a=b", &["labeled"]),
            fails("label cm m a=c", &["'a' already has a value (b), and --overwrite is false"]),
            succeeds("label cm m a=c --overwrite", &["labeled"]),
            succeeds("label cm m a-", &["unlabeled"]),
            succeeds("annotate cm m a=b", &["annotated"]),
            succeeds("annotate cm m --list", &["a=b"]),
            succeeds("wait cm m --for=jsonpath='{.data.k}'=3 --timeout=10s", &["condition met"]),
            succeeds("wait cm none --for=delete --timeout=10s", &[]),
            fails("wait cm none --for=create --timeout=1s", &["timed out"]),
            succeeds_with_input("replace -f -", &config_map("9"), &["replaced"]),
            succeeds_with_input("replace --force -f -", &config_map("8"), &["deleted", "replaced"]),
            fails_with_input("create -f -", &config_map("8"), &["(AlreadyExists)"]),
            fails_with_input("replace -f -", &config_map("8").replace("\"data\"", "\"dat\""), &["strict decoding error: unknown field \"dat\""]),
            succeeds_with_input("replace --validate=warn -f -", &config_map("8").replace("\"data\"", "\"dat\""), &["Warning: unknown field \"dat\"", "replaced"]),
            succeeds("delete cm m --dry-run=server", &["(server dry run)"]),
            succeeds("delete cm m --cascade=orphan", &["deleted"]),
            succeeds("delete cm m --ignore-not-found", &[]),
        ]);
        kubectl.output("create deployment web --image=nginx");
        let (code, printed) = kubectl.edit("edit deploy web", "s/image:.nginx/image:\\ redis/");
        assert_eq!(code, 0, "{printed}");
        kubectl.run_commands(&[
            succeeds("get deploy web -o jsonpath='{.spec.template.spec.containers[0].image}'", &["redis"]),
            succeeds("patch deploy web --subresource=scale --type=merge -p '{\"spec\":{\"replicas\":4}}'", &["patched"]),
            succeeds("patch deploy web --subresource=status --type=merge -p '{\"status\":{\"replicas\":4}}'", &["patched"]),
            succeeds("scale deploy web --replicas=3", &["scaled"]),
            fails("scale deploy web --replicas=5 --current-replicas=7", &["Expected replicas to be 7, was 3"]),
            succeeds("set image deploy web nginx=nginx:2", &["image updated"]),
            succeeds("set env deploy web A=B", &["env updated"]),
            succeeds("set resources deploy web --limits=cpu=1", &["updated"]),
            succeeds("set serviceaccount deploy web default", &["updated"]),
            succeeds("create service clusterip svc --tcp=80", &["created"]),
            succeeds("set selector svc svc app=web", &["updated"]),
            succeeds("create role r --verb=get --resource=pods", &["created"]),
            succeeds("create rolebinding rb --role=r --user=ann", &["created"]),
            succeeds("set subject rolebinding rb --user=bob", &["updated"]),
            fails("rollout status deploy web --timeout=1s", &["timed out"]),
            succeeds("rollout history deploy web", &["deployment.apps/web"]),
            succeeds("rollout restart deploy web", &["restarted"]),
            succeeds("rollout pause deploy web", &["paused"]),
            succeeds("rollout resume deploy web", &["resumed"]),
            fails("rollout undo deploy web", &["no rollout history found"]),
            succeeds("expose deploy web --port=80", &["exposed"]),
            succeeds("autoscale deploy web --max=4 --cpu=80%", &["autoscaled"]),
            succeeds("get hpa", &["Deployment/web cpu: <unknown>/80% 1 4"]),
            succeeds("delete deploy web --cascade=foreground --timeout=20s", &["deleted"]),
            succeeds("delete svc --all", &["deleted"]),
        ]);
        kustomize(kubectl);
    });
}

fn signing_request() -> String {
    let request = certificate_request("jane", "dev", &[]).request_pem;
    let request = base64::engine::general_purpose::STANDARD.encode(request);
    let request = serde_json::json!({
        "apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": "jane"},
        "spec": {
            "request": request, "signerName": "kubernetes.io/kube-apiserver-client",
            "usages": ["client auth"],
        },
    });
    request.to_string()
}

fn kustomize(kubectl: &Kubectl) {
    let dir = harness::daemon::TestDir::new();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write(
        "kustomization.yaml",
        "resources: [m.yaml]\nnamePrefix: k-\n",
    );
    write("m.yaml", &config_map("1"));
    let at = dir.path().display();
    kubectl.run_commands(&[
        succeeds(&format!("kustomize {at}"), &["name: k-m"]),
        succeeds(&format!("apply -k {at}"), &["configmap/k-m created"]),
        succeeds(&format!("delete -k {at}"), &["deleted"]),
    ]);
}

#[test]
fn kubectl_1_36_administers_and_is_refused_plainly() {
    with_kubectl("administered", |kubectl, _| {
        let request = signing_request();
        let role = r#"{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role","metadata":{"name":"r","namespace":"NS"},
            "rules":[{"apiGroups":[""],"resources":["secrets"],"verbs":["get"]}]}"#;
        let role = role.replace("NS", &kubectl.namespace);
        let node = r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}"#;
        kubectl.run_commands(&[
            succeeds("auth can-i get pods", &["yes"]),
            fails("auth can-i get pods --as=jane", &["no"]),
            succeeds(
                "auth can-i --list --as=jane",
                &["selfsubjectreviews.authentication.k8s.io"],
            ),
            succeeds("auth whoami", &["Username kubernetes-admin"]),
            succeeds_with_input("auth reconcile -f -", &role, &["reconciled"]),
            succeeds_with_input("create -f -", &request, &["created"]),
            succeeds("certificate approve jane", &["approved"]),
            fails("certificate deny jane", &["already Approved"]),
            succeeds("describe csr jane", &["Requesting User: kubernetes-admin"]),
            succeeds_with_input("create -f -", node, &["node/n created"]),
            succeeds("cordon n", &["cordoned"]),
            succeeds("drain n --ignore-daemonsets --timeout=10s", &["drained"]),
            succeeds("uncordon n", &["uncordoned"]),
            succeeds("taint node n a=b:NoSchedule", &["tainted"]),
            succeeds("taint node n a-", &["untainted"]),
            succeeds("describe node n", &["Taints: <none>"]),
            succeeds("run p --image=nginx", &["created"]),
            fails(
                "logs p",
                &["the server could not find the requested resource"],
            ),
            fails(
                "exec p -- true",
                &["the server could not find the requested resource"],
            ),
            fails(
                "attach p",
                &["the server could not find the requested resource"],
            ),
            fails(
                "cp p:/a /tmp/none",
                &["the server could not find the requested resource"],
            ),
            fails("port-forward pod/p 8080:80", &["pod is not running"]),
            fails(
                "debug p --image=busybox",
                &["ephemeral containers are disabled"],
            ),
            fails("top pod", &["metrics not available yet"]),
            fails("top node", &["metrics not available yet"]),
            succeeds("delete pod p --now", &["deleted"]),
            succeeds("delete node n", &["deleted"]),
        ]);
        let proxy = kubectl.spawn("proxy --port=0");
        proxy.wait_for_line("Starting to serve");
        kubectl.run_commands(&[succeeds("delete ns NS --timeout=60s", &["deleted"])]);
    });
}

#[test]
fn kubectl_1_36_works_over_a_restart() {
    with_kubectl("restarted", |kubectl, server| {
        kubectl.run_commands(&[
            succeeds_with_input("apply --server-side -f -", &config_map("1"), &["applied"]),
            succeeds("create configmap gone --from-literal=a=b", &["created"]),
        ]);
        let columns = "--no-headers -o custom-columns=N:.metadata.name,K:.data.k";
        let before = kubectl.spawn(&format!("get cm -w {columns}"));
        before.wait_for_line("m 1");
        server.restart();
        let after = kubectl.spawn(&format!("get cm -w {columns}"));
        after.wait_for_line("m 1");
        kubectl.run_commands(&[
            fails_with_input(
                "apply --server-side --field-manager=two -f -",
                &config_map("2"),
                &["conflict with \"kubectl\""],
            ),
            succeeds_with_input(
                "apply --server-side --field-manager=two --force-conflicts -f -",
                &config_map("2"),
                &["applied"],
            ),
            succeeds("delete cm gone", &["deleted"]),
            succeeds("get cm -o name", &["configmap/m", "!gone"]),
        ]);
        after.wait_for_line("m 2");
    });
}

/// The selector has its namespace, which admission adds: another manager that applies the list
/// without it differs from what is stored.
fn policy(priority: u32) -> String {
    format!(
        r#"{{"apiVersion":"policy.karmada.io/v1alpha1","kind":"PropagationPolicy","metadata":{{"name":"p"}},
        "spec":{{"resourceSelectors":[{{"apiVersion":"v1","kind":"ConfigMap","name":"none","namespace":"kubectl"}}],
        "placement":{{"clusterAffinity":{{"clusterNames":["none"]}}}},"priority":{priority}}}}}"#
    )
}

/// kubectl with objects of Karmada's kinds behind a kube-apiserver.
pub(crate) fn run_policy_commands(server: &mut impl RestartableServer, folder: &Path) {
    let kubectl = Kubectl::of_1_36(server.kubeconfig(), folder, "kubectl").unwrap();
    // The aggregator fetches the documents of an APIService after it routes requests to it.
    kubectl.wait_for_exit_code("explain pp.spec.placement", 0);
    kubectl.run_commands(&[
        succeeds("api-resources --api-group=policy.karmada.io", &["propagationpolicies pp"]),
        succeeds("explain pp.spec", &["KIND: PropagationPolicy", "conflictResolution"]),
        succeeds_with_input("create -f -", &policy(1), &["created"]),
        fails_with_input("create -f -", &policy(1), &["(AlreadyExists)"]),
        fails_with_input("diff -f -", &policy(2), &["+ priority: 2"]),
        succeeds_with_input("apply -f -", &policy(2), &["configured"]),
        succeeds("apply view-last-applied pp p", &["priority: 2"]),
        succeeds_with_input("apply --server-side -f -", &policy(2), &["serverside-applied"]),
        fails_with_input("apply --server-side --field-manager=two -f -", &policy(3), &["conflict with \"kubectl\": .spec.priority"]),
        succeeds_with_input("apply --server-side --field-manager=two --force-conflicts -f -", &policy(3), &["serverside-applied"]),
        succeeds("patch pp p --type=merge -p '{\"spec\":{\"priority\":4}}'", &["patched"]),
        succeeds("patch pp p --type=json -p '[{\"op\":\"replace\",\"path\":\"/spec/priority\",\"value\":5}]'", &["patched"]),
        succeeds("label pp p a=b", &["labeled"]),
        succeeds("annotate pp p a=b", &["annotated"]),
        succeeds("get pp", &["NAME CONFLICT-RESOLUTION PRIORITY AGE p Abort 5"]),
        succeeds("get pp -l a=b -o wide", &["p Abort 5"]),
        succeeds("get pp p -o kyaml", &["priority: 5"]),
        succeeds("get pp p -o jsonpath='{.spec.priority}'", &["5"]),
        succeeds("get pp p -o go-template='{{.spec.priority}}'", &["5"]),
        succeeds("describe pp p", &["Priority: 5"]),
        succeeds("auth can-i delete pp", &["yes"]),
        succeeds("wait pp p --for=jsonpath='{.spec.priority}'=5 --timeout=10s", &["condition met"]),
        fails_with_input("replace -f -", &policy(6), &["permanent-id is immutable"]),
    ]);
    let (code, printed) = kubectl.edit("edit pp p", "s/priority:.5/priority:\\ 7/");
    assert_eq!(code, 0, "{printed}");
    server.restart();
    kubectl.wait_for_exit_code("get pp p", 0);
    let columns = "--no-headers -o custom-columns=N:.metadata.name,P:.spec.priority";
    let watch = kubectl.spawn(&format!("get pp -w {columns}"));
    watch.wait_for_line("p 7");
    kubectl.run_commands(&[
        succeeds_with_input("apply -f -", &policy(8), &["configured"]),
        succeeds("delete pp p --timeout=30s", &["deleted"]),
        fails("get pp p", &["NotFound"]),
    ]);
    watch.wait_for_line("p 8");
}
