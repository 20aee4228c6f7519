//! Renders the manifests of an installation: the files of `manifests/install` with the
//! operator's options, in the order in which they are applied. Pure.

use anyhow::{Context, anyhow};
use machinery::Gvr;
use serde_json::{Value, json};

const FLOTILLA_MANIFEST: &str = include_str!("../../../../manifests/install/flotilla.yaml");
const AGENTS_MANIFEST: &str = include_str!("../../../../manifests/install/agents.yaml");
const ETCD_MANIFEST: &str = include_str!("../../../../manifests/install/etcd.yaml");

/// The names in the manifests.
pub(super) const NAMESPACE: &str = "flotilla-system";
pub(super) const NAME: &str = "flotilla";
/// The mount path of the Secret with the client certificate for etcd.
const ETCD_SECRET_MOUNT: &str = "/etc/flotilla/etcd";

/// The options of an installation.
#[derive(Clone, Debug)]
pub(super) struct InstallOptions {
    pub(super) namespace: String,
    pub(super) image: String,
    pub(super) replicas: u32,
    /// The URLs of an existing etcd; empty: one is installed.
    pub(super) etcd_servers: Vec<String>,
    pub(super) etcd_prefix: Option<String>,
    /// A Secret with `ca.crt`, `tls.crt` and `tls.key`.
    pub(super) etcd_secret: Option<String>,
    pub(super) host_workloads: Option<String>,
    pub(super) await_takeover: bool,
}

/// All objects of an installation.
pub(super) fn render(choices: &InstallOptions) -> anyhow::Result<Vec<Value>> {
    let own_etcd = choices.etcd_servers.is_empty();
    let files = [
        Some(FLOTILLA_MANIFEST),
        Some(AGENTS_MANIFEST),
        own_etcd.then_some(ETCD_MANIFEST),
    ];
    let mut all = Vec::new();
    for document in files.into_iter().flatten().flat_map(documents) {
        let mut object: Value = serde_saphyr::from_str(document)
            .with_context(|| format!("a manifest of this binary: {document}"))?;
        set_namespace(&mut object, &choices.namespace);
        if object["kind"] == "Deployment" && object["metadata"]["name"] == NAME {
            configure_deployment(&mut object, choices)?;
        }
        all.push(object);
    }
    Ok(all)
}

fn documents(file: &str) -> impl Iterator<Item = &str> {
    file.split("\n---\n")
}

/// Replaces the default namespace in an object and in its references.
fn set_namespace(object: &mut Value, namespace: &str) {
    match object {
        Value::String(text) => {
            if text == NAMESPACE {
                namespace.clone_into(text);
            } else if text.contains(NAMESPACE) {
                // In DNS names of Services: NAME.NAMESPACE.svc.
                let (old, new) = (format!(".{NAMESPACE}."), format!(".{namespace}."));
                *text = text.replace(&old, &new);
            }
        }
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| set_namespace(item, namespace)),
        Value::Object(fields) => fields
            .values_mut()
            .for_each(|field| set_namespace(field, namespace)),
        _ => {}
    }
}

fn configure_deployment(deployment: &mut Value, choices: &InstallOptions) -> anyhow::Result<()> {
    deployment["spec"]["replicas"] = choices.replicas.into();
    let pod = &mut deployment["spec"]["template"]["spec"];
    if let Some(secret) = &choices.etcd_secret {
        let mount = json!({"name": "etcd", "mountPath": ETCD_SECRET_MOUNT, "readOnly": true});
        push(&mut pod["containers"][0]["volumeMounts"], mount)?;
        let volume = json!({"name": "etcd", "secret": {"secretName": secret}});
        push(&mut pod["volumes"], volume)?;
    }
    let container = &mut pod["containers"][0];
    container["image"] = choices.image.as_str().into();
    let arguments = &mut container["args"];
    if !choices.etcd_servers.is_empty() {
        set_flag(arguments, "etcd-servers", &choices.etcd_servers.join(","))?;
        // The operator of that etcd provides its certificates.
        remove_flag(arguments, "etcd-certificates-secret");
    }
    if let Some(prefix) = &choices.etcd_prefix {
        set_flag(arguments, "etcd-prefix", prefix)?;
    }
    if choices.etcd_secret.is_some() {
        for (flag, file) in [
            ("etcd-cafile", "ca.crt"),
            ("etcd-certfile", "tls.crt"),
            ("etcd-keyfile", "tls.key"),
        ] {
            set_flag(arguments, flag, &format!("{ETCD_SECRET_MOUNT}/{file}"))?;
        }
    }
    if let Some(value) = &choices.host_workloads {
        set_flag(arguments, "host-workloads", value)?;
    }
    if choices.await_takeover {
        push(arguments, "--await-takeover".into())?;
    }
    Ok(())
}

fn push(list: &mut Value, item: Value) -> anyhow::Result<()> {
    let list = list.as_array_mut();
    list.ok_or_else(|| anyhow!("a list is missing in the Deployment"))?
        .push(item);
    Ok(())
}

/// Sets a flag in a list of arguments.
fn set_flag(arguments: &mut Value, flag: &str, value: &str) -> anyhow::Result<()> {
    let (start, argument) = (format!("--{flag}="), format!("--{flag}={value}"));
    let list = arguments.as_array_mut().into_iter().flatten();
    let mut occurrences = list.filter(|a| a.as_str().is_some_and(|a| a.starts_with(&start)));
    match occurrences.next() {
        Some(existing) => *existing = argument.into(),
        None => push(arguments, argument.into())?,
    }
    Ok(())
}

fn remove_flag(arguments: &mut Value, flag: &str) {
    let start = format!("--{flag}=");
    if let Some(list) = arguments.as_array_mut() {
        list.retain(|a| a.as_str().is_none_or(|a| !a.starts_with(&start)));
    }
}

/// The resource of an object of the manifests.
pub(super) fn resource(object: &Value) -> anyhow::Result<Gvr> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let plural = match kind {
        "NetworkPolicy" => "networkpolicies".to_owned(),
        other => format!("{}s", other.to_lowercase()),
    };
    let api_version = object["apiVersion"].as_str();
    let api_version = api_version.with_context(|| format!("a {kind} without apiVersion"))?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    Ok(Gvr::new(group, version, plural))
}

/// Encodes objects as the documents of one file.
pub(crate) fn encode_manifests(objects: &[Value], json: bool) -> anyhow::Result<String> {
    if json {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        return Ok(serde_json::to_string_pretty(&list)?);
    }
    let documents: Result<Vec<String>, _> = objects.iter().map(serde_saphyr::to_string).collect();
    Ok(documents?.join("---\n").trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn install_options() -> InstallOptions {
        InstallOptions {
            namespace: "fleet".into(),
            image: "registry.example.com/flotilla:1".into(),
            replicas: 3,
            etcd_servers: Vec::new(),
            etcd_prefix: None,
            etcd_secret: None,
            host_workloads: None,
            await_takeover: false,
        }
    }

    fn find<'a>(all: &'a [Value], kind: &str, name: &str) -> &'a Value {
        let is = |o: &&Value| o["kind"] == kind && o["metadata"]["name"] == name;
        all.iter().find(is).unwrap()
    }

    fn arguments(all: &[Value]) -> Vec<&str> {
        let pod = &find(all, "Deployment", NAME)["spec"]["template"]["spec"];
        let list = pod["containers"][0]["args"].as_array().unwrap();
        list.iter().map(|a| a.as_str().unwrap()).collect()
    }

    #[test]
    fn the_namespace_is_replaced_everywhere() {
        let all = render(&install_options()).unwrap();
        let text = encode_manifests(&all, false).unwrap();
        assert!(!text.contains(NAMESPACE), "{text}");
        let reader = find(&all, "RoleBinding", "flotilla-auth-reader");
        assert_eq!(reader["metadata"]["namespace"], "kube-system");
        assert_eq!(reader["subjects"][0]["namespace"], "fleet");
        assert!(arguments(&all).contains(&"--etcd-servers=https://flotilla-etcd.fleet.svc:2379"));
        assert_eq!(all[0]["kind"], "Namespace", "the first object");
        let deployment = find(&all, "Deployment", NAME);
        assert_eq!(deployment["spec"]["replicas"], 3);
    }

    #[test]
    fn an_existing_etcd_replaces_the_installed_one() {
        let all = render(&InstallOptions {
            etcd_servers: vec!["https://a:2379".into(), "https://b:2379".into()],
            etcd_prefix: Some("/fleet".into()),
            etcd_secret: Some("etcd-client".into()),
            host_workloads: Some("propagate".into()),
            ..install_options()
        })
        .unwrap();
        assert!(all.iter().all(|o| o["kind"] != "StatefulSet"));
        let arguments = arguments(&all);
        for expected in [
            "--etcd-servers=https://a:2379,https://b:2379",
            "--etcd-prefix=/fleet",
            "--etcd-cafile=/etc/flotilla/etcd/ca.crt",
            "--etcd-certfile=/etc/flotilla/etcd/tls.crt",
            "--etcd-keyfile=/etc/flotilla/etcd/tls.key",
            "--host-workloads=propagate",
        ] {
            assert!(arguments.contains(&expected), "{expected} in {arguments:?}");
        }
        let pod = &find(&all, "Deployment", NAME)["spec"]["template"]["spec"];
        assert_eq!(pod["volumes"][1]["secret"]["secretName"], "etcd-client");
        let mounts = &pod["containers"][0]["volumeMounts"];
        assert_eq!(mounts[1]["mountPath"], ETCD_SECRET_MOUNT);
    }

    #[test]
    fn pods_are_unprivileged() {
        let all = render(&install_options()).unwrap();
        for kind in ["Deployment", "StatefulSet"] {
            for of in all.iter().filter(|o| o["kind"] == kind) {
                let pod = &of["spec"]["template"]["spec"];
                let context = &pod["securityContext"];
                assert_eq!(context["runAsNonRoot"], true);
                assert_eq!(context["seccompProfile"]["type"], "RuntimeDefault");
                let context = &pod["containers"][0]["securityContext"];
                assert_eq!(context["allowPrivilegeEscalation"], false);
                assert_eq!(context["readOnlyRootFilesystem"], true);
                assert_eq!(context["capabilities"]["drop"], json!(["ALL"]));
            }
        }
        let text = encode_manifests(&all, true).unwrap();
        assert!(!text.contains("BEGIN CERTIFICATE"));
    }

    #[test]
    fn every_object_has_its_resource() {
        for object in render(&install_options()).unwrap() {
            let gvr = resource(&object).unwrap();
            assert!(!gvr.resource.is_empty() && !gvr.version.is_empty());
        }
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"});
        let gvr = resource(&role).unwrap();
        assert_eq!(
            (&*gvr.group, &*gvr.resource),
            ("rbac.authorization.k8s.io", "clusterroles")
        );
    }
}
