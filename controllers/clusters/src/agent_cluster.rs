//! The Cluster that an agent registers, with the Secrets that it reports.

use client::{Api, Error, ResourcePath, WriteOptions, ignore_not_found};
use karmada_api::resources::CLUSTERS;
use karmada_api::{Cluster, names};
use machinery::Object;
use serde_json::{Value, json};

use crate::join::{
    JoinSpec, ReportedSecrets, cluster_identity, control_plane_id, obtain_member_credentials,
    set_secret_owners, write_credentials,
};

/// The cluster of an agent, as the agent registers it.
#[derive(Clone, Debug, Default)]
pub struct AgentClusterSpec {
    pub name: String,
    /// Where the control plane reaches the member, if it can.
    pub api_endpoint: Option<String>,
    pub proxy_url: Option<String>,
    pub provider: Option<String>,
    pub region: Option<String>,
    pub zones: Vec<String>,
    /// The namespace of the reported Secrets, in the member and in the control plane.
    pub secret_namespace: String,
    pub secrets: ReportedSecrets,
}

/// Creates the Cluster of an agent, after the Secrets that it refers to. One of the same name
/// and member is used as it is, and its Secrets are written again; another is an error.
pub async fn register_agent_cluster(
    control: &dyn Api,
    member: &dyn Api,
    spec: &AgentClusterSpec,
) -> Result<Object, Error> {
    let identity = cluster_identity(member).await.map_err(protocol)?;
    let at = ResourcePath::object(&CLUSTERS, "", &spec.name);
    let existing = ignore_not_found(control.get(at).await)?;
    let mut reported = spec.secrets;
    if let Some(object) = &existing {
        let registered = object.decode::<Cluster>()?;
        let registered = &registered.spec;
        if !identity.matches(&registered.id) || registered.sync_mode != "Pull" {
            return Err(Error::Protocol(format!(
                "the cluster name {:?} has been registered for another cluster or mode",
                spec.name
            )));
        }
        // An agent may not change its Cluster: what that does not refer to has no use.
        reported.credentials &= registered.secret_ref.is_some();
        reported.impersonator &= registered.impersonator_secret_ref.is_some();
    }
    let secrets = report_secrets(control, member, spec, reported).await?;
    let object = match existing {
        Some(object) => object,
        None => {
            let at = ResourcePath::collection(&CLUSTERS, "");
            let body = cluster(spec, &identity.id);
            let options = WriteOptions::default();
            control.create(at, body.into(), &options).await?
        }
    };
    let owned = set_secret_owners(control, &spec.secret_namespace, &secrets, &object).await;
    owned.map_err(protocol)?;
    Ok(object)
}

fn protocol(error: crate::JoinError) -> Error {
    Error::Protocol(error.to_string())
}

/// Writes the Secrets; returns their names.
async fn report_secrets(
    control: &dyn Api,
    member: &dyn Api,
    spec: &AgentClusterSpec,
    reported: ReportedSecrets,
) -> Result<Vec<String>, Error> {
    if reported == ReportedSecrets::default() {
        return Ok(Vec::new());
    }
    let accounts = JoinSpec {
        name: spec.name.clone(),
        namespace: spec.secret_namespace.clone(),
        ..JoinSpec::default()
    };
    let manager = control_plane_id(control).await;
    let manager = manager.as_deref();
    let obtained = obtain_member_credentials(member, &accounts, manager, reported, &|_| {}).await;
    let credentials = obtained.map_err(protocol)?;
    let namespace = &spec.secret_namespace;
    let written = write_credentials(control, &spec.name, namespace, &credentials).await;
    written.map_err(protocol)?;
    Ok(credentials.secret_names(&spec.name))
}

fn cluster(spec: &AgentClusterSpec, id: &str) -> Value {
    let mut body = json!({
        "apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
        "metadata": {"name": spec.name},
        "spec": {"syncMode": "Pull", "id": id},
    });
    for (field, text) in [
        ("apiEndpoint", &spec.api_endpoint),
        ("proxyURL", &spec.proxy_url),
        ("provider", &spec.provider),
        ("region", &spec.region),
    ] {
        if let Some(text) = text.as_deref().filter(|text| !text.is_empty()) {
            body["spec"][field] = text.into();
        }
    }
    if !spec.zones.is_empty() {
        body["spec"]["zones"] = json!(spec.zones);
    }
    let reference = |name: String| json!({"namespace": spec.secret_namespace, "name": name});
    if spec.secrets.credentials {
        body["spec"]["secretRef"] = reference(spec.name.clone());
    }
    if spec.secrets.impersonator {
        let name = names::impersonation_secret_name(&spec.name);
        body["spec"]["impersonatorSecretRef"] = reference(name);
    }
    body
}
