//! `kubectl` commands that create objects, with generators and from files.

use crate::api::kubectl::{
    fails, fails_with_input, succeeds, succeeds_with_input, with_each_kubectl,
};

#[test]
fn generators_create_objects() {
    with_each_kubectl("generators", |kubectl| {
        kubectl.wait_for_exit_code("get configmap kube-root-ca.crt", 0);
        kubectl.run_commands(&[
            succeeds("create namespace NS-more", &["namespace/NS-more created"]),
            succeeds(
                "create deployment web --image=nginx:1.25 --replicas=2",
                &["deployment.apps/web created"],
            ),
            succeeds("create service clusterip web --tcp=80:8080", &["service/web created"]),
            succeeds("create service nodeport node --tcp=80", &["service/node created"]),
            succeeds("create configmap some --from-literal=a=b", &["configmap/some created"]),
            succeeds("create secret generic key --from-literal=a=b", &["secret/key created"]),
            succeeds("create job once --image=busybox -- sleep 1", &["job.batch/once created"]),
            succeeds(
                "create role reader --verb=get,list --resource=pods,deployments.apps",
                &["role.rbac.authorization.k8s.io/reader created"],
            ),
            succeeds(
                "create rolebinding readers --role=reader --user=jane",
                &["rolebinding.rbac.authorization.k8s.io/readers created"],
            ),
            succeeds("create serviceaccount robot", &["serviceaccount/robot created"]),
            succeeds("create quota all --hard=pods=2", &["resourcequota/all created"]),
            succeeds(
                "create ingress door --rule=foo.com/bar=web:80",
                &["ingress.networking.k8s.io/door created"],
            ),
            succeeds("run alone --image=nginx", &["pod/alone created"]),
            succeeds("expose deployment web --port=80 --name=front", &["service/front exposed"]),
            succeeds(
                "autoscale deployment web --min=1 --max=5 --cpu-percent=80",
                &["horizontalpodautoscaler.autoscaling/web autoscaled"],
            ),
            succeeds(
                "new: create cronjob often --image=busybox --schedule='*/5 * * * *' -- date",
                &["cronjob.batch/often created"],
            ),
            succeeds("new: create job now --from=cronjob/often", &["job.batch/now created"]),
            succeeds(
                "new: create pdb web --selector=app=web --min-available=1",
                &["poddisruptionbudget.policy/web created"],
            ),
            succeeds("new: create token robot --duration=30m", &["eyJ"]),
            fails(
                "new: create token nobody",
                &[r#"error: failed to create token: serviceaccounts "nobody" not found"#],
            ),
            succeeds(
                "get deploy,svc,ing,hpa,quota,role,rolebinding,sa,secret,cm",
                &[
                    "deployment.apps/web 0/2 0 0",
                    "service/node NodePort 10.",
                    "ingress.networking.k8s.io/door <none> foo.com 80",
                    "horizontalpodautoscaler.autoscaling/web Deployment/web cpu: <unknown>/80% 1 5 0",
                    "rolebinding.rbac.authorization.k8s.io/readers Role/reader",
                    "serviceaccount/default 0",
                    "secret/key Opaque 1",
                    "configmap/kube-root-ca.crt 1",
                ],
            ),
            succeeds(
                "get all",
                &["pod/alone 0/1 Pending 0", "service/front ClusterIP", "job.batch/once Running 0/1"],
            ),
            succeeds("delete namespace NS-more", &[r#"namespace "NS-more" deleted"#]),
        ]);
    });
}

#[test]
fn invalid_input_is_rejected_with_messages_of_kubernetes() {
    let mistyped =
        r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": 1}}"#;
    let unknown = r#"{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {"foo": 1,
        "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i", "imagee": "j"}]}}}}"#;
    with_each_kubectl("bad-input", |kubectl| {
        kubectl.run_commands(&[
            fails("create configmap Bad_Name", &["a lowercase RFC 1123 subdomain must consist of"]),
            fails("run x --image=nginx --labels='a=b c'", &["a valid label must be"]),
            fails_with_input("create -f -", "{bad", &["error"]),
            fails_with_input("create -f -", "kind: Nothing\napiVersion: v1\n", &["no matches for kind \"Nothing\""]),
            fails_with_input(
                "create --validate=false -f -",
                mistyped,
                &[r#"ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct field ConfigMap.data of type string"#],
            ),
            fails_with_input(
                "old: create -f -",
                unknown,
                &[r#"ValidationError(Deployment.spec): unknown field "foo" in io.k8s.api.apps.v1.DeploymentSpec"#],
            ),
            fails_with_input(
                "new: create -f -",
                unknown,
                &[r#"Deployment in version "v1" cannot be handled as a Deployment: strict decoding error: unknown field "spec.foo", unknown field "spec.template.spec.containers[0].imagee""#],
            ),
            succeeds_with_input(
                "old: create --validate=false -f -",
                unknown,
                &[r#"Warning: unknown field "spec.foo""#, "deployment.apps/d created"],
            ),
            succeeds_with_input(
                "new: create --validate=warn -f -",
                unknown,
                &[r#"Warning: unknown field "spec.foo""#, "deployment.apps/d created"],
            ),
            fails("create deployment d --image=nginx", &[r#"deployments.apps "d" already exists"#]),
            fails("-n nowhere create configmap c", &[]),
            succeeds(
                "create configmap dry --dry-run=server -o yaml",
                &["name: dry", "uid: ", "!resourceVersion"],
            ),
            fails("get configmap dry", &[r#"configmaps "dry" not found"#]),
        ]);
    });
}
