//! `kubectl` commands that create objects, with generators and from files.

use crate::kubectl::{ok, refused, refused_with, with, with_each};

#[test]
fn generators_create_objects() {
    with_each("generators", |kubectl| {
        kubectl.run(&[
            ok("create namespace NS-more", &["namespace/NS-more created"]),
            ok(
                "create deployment web --image=nginx:1.25 --replicas=2",
                &["deployment.apps/web created"],
            ),
            ok("create service clusterip web --tcp=80:8080", &["service/web created"]),
            ok("create service nodeport node --tcp=80", &["service/node created"]),
            ok("create configmap some --from-literal=a=b", &["configmap/some created"]),
            ok("create secret generic key --from-literal=a=b", &["secret/key created"]),
            ok("create job once --image=busybox -- sleep 1", &["job.batch/once created"]),
            ok(
                "create role reader --verb=get,list --resource=pods,deployments.apps",
                &["role.rbac.authorization.k8s.io/reader created"],
            ),
            ok(
                "create rolebinding readers --role=reader --user=jane",
                &["rolebinding.rbac.authorization.k8s.io/readers created"],
            ),
            ok("create serviceaccount robot", &["serviceaccount/robot created"]),
            ok("create quota all --hard=pods=2", &["resourcequota/all created"]),
            ok(
                "create ingress door --rule=foo.com/bar=web:80",
                &["ingress.networking.k8s.io/door created"],
            ),
            ok("run alone --image=nginx", &["pod/alone created"]),
            ok("expose deployment web --port=80 --name=front", &["service/front exposed"]),
            ok(
                "autoscale deployment web --min=1 --max=5 --cpu-percent=80",
                &["horizontalpodautoscaler.autoscaling/web autoscaled"],
            ),
            ok(
                "new: create cronjob often --image=busybox --schedule='*/5 * * * *' -- date",
                &["cronjob.batch/often created"],
            ),
            ok("new: create job now --from=cronjob/often", &["job.batch/now created"]),
            ok(
                "new: create pdb web --selector=app=web --min-available=1",
                &["poddisruptionbudget.policy/web created"],
            ),
            ok("new: create token robot --duration=30m", &["eyJ"]),
            refused(
                "new: create token nobody",
                &[r#"error: failed to create token: serviceaccounts "nobody" not found"#],
            ),
            ok(
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
            ok(
                "get all",
                &["pod/alone 0/1 Pending 0", "service/front ClusterIP", "job.batch/once Running 0/1"],
            ),
            ok("delete namespace NS-more", &[r#"namespace "NS-more" deleted"#]),
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
    with_each("bad-input", |kubectl| {
        kubectl.run(&[
            refused("create configmap Bad_Name", &["a lowercase RFC 1123 subdomain must consist of"]),
            refused("run x --image=nginx --labels='a=b c'", &["a valid label must be"]),
            refused_with("create -f -", "{bad", &["error"]),
            refused_with("create -f -", "kind: Nothing\napiVersion: v1\n", &["no matches for kind \"Nothing\""]),
            refused_with(
                "create --validate=false -f -",
                mistyped,
                &[r#"ConfigMap in version "v1" cannot be handled as a ConfigMap: json: cannot unmarshal number into Go struct field ConfigMap.data of type string"#],
            ),
            refused_with(
                "old: create -f -",
                unknown,
                &[r#"ValidationError(Deployment.spec): unknown field "foo" in io.k8s.api.apps.v1.DeploymentSpec"#],
            ),
            refused_with(
                "new: create -f -",
                unknown,
                &[r#"Deployment in version "v1" cannot be handled as a Deployment: strict decoding error: unknown field "spec.foo", unknown field "spec.template.spec.containers[0].imagee""#],
            ),
            with(
                "old: create --validate=false -f -",
                unknown,
                &[r#"Warning: unknown field "spec.foo""#, "deployment.apps/d created"],
            ),
            with(
                "new: create --validate=warn -f -",
                unknown,
                &[r#"Warning: unknown field "spec.foo""#, "deployment.apps/d created"],
            ),
            refused("create deployment d --image=nginx", &[r#"deployments.apps "d" already exists"#]),
            refused("-n nowhere create configmap c", &[]),
            ok(
                "create configmap dry --dry-run=server -o yaml",
                &["name: dry", "uid: ", "!resourceVersion"],
            ),
            refused("get configmap dry", &[r#"configmaps "dry" not found"#]),
        ]);
    });
}
