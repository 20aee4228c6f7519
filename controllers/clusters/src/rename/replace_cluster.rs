//! Points the name of a cluster at another one: its Works are applied there again.

use client::{Api, ListOptions, Patch, ResourcePath, WriteOptions, ignore_not_found};
use karmada_api::resources::CLUSTERS;
use karmada_api::{Cluster, names};
use machinery::Object;
use serde_json::{Value, json};

use super::rename_error::{RenameError, host_error};
use crate::join::{
    JoinError, JoinSpec, ProgressCallback, ReportedSecrets, cluster_identity, control_plane_id,
    obtain_member_credentials, set_secret_owners, write_credentials,
};

/// The cluster that takes the place of another one, under its name.
#[derive(Clone, Debug)]
pub struct ReplaceSpec {
    /// The name, and how the new member is reached.
    pub join: JoinSpec,
    /// Replaces a cluster that is Ready.
    pub force: bool,
}

/// Points a Cluster at another member. An interrupted replacement is repeated. Returns the id of
/// the new member.
pub async fn replace_cluster(
    control: &dyn Api,
    member: &dyn Api,
    spec: &ReplaceSpec,
    progress: ProgressCallback<'_>,
) -> Result<String, RenameError> {
    let join = &spec.join;
    let at = ResourcePath::object(&CLUSTERS, "", &join.name);
    let object = ignore_not_found(control.get(at).await).map_err(host_error("read the cluster"))?;
    let object = object.ok_or_else(|| RenameError::NotFound(join.name.clone()))?;
    let cluster = object.decode::<Cluster>()?;
    if cluster.spec.sync_mode == "Pull" {
        return Err(RenameError::PullMode(join.name.clone()));
    }
    let identity = cluster_identity(member).await?;
    check_other_names(control, &join.name, |id| identity.matches(id)).await?;
    let is_same = identity.matches(&cluster.spec.id);
    if cluster.is_ready() && !is_same && !spec.force {
        return Err(RenameError::StillReady(join.name.clone()));
    }
    if join.dry_run {
        progress(&format!(
            "cluster {:?} can be pointed at the member with ID {}",
            join.name, identity.id
        ));
        return Ok(identity.id);
    }
    let manager = control_plane_id(control).await;
    let secrets = ReportedSecrets::ALL;
    let credentials =
        obtain_member_credentials(member, join, manager.as_deref(), secrets, progress).await?;
    progress("pointing the cluster at the new member");
    write_credentials(control, &join.name, &join.namespace, &credentials).await?;
    let patch = json!({"spec": replaced_fields(join, &identity.id)});
    let options = WriteOptions::default();
    let patched = control.patch(at, Patch::Merge(patch), &options).await;
    let patched: Object = patched.map_err(host_error("change the cluster"))?;
    let names = credentials.secret_names(&join.name);
    set_secret_owners(control, &join.namespace, &names, &patched).await?;
    Ok(identity.id)
}

/// How the new member is reached.
fn replaced_fields(join: &JoinSpec, id: &str) -> Value {
    let reference = |name: String| json!({"namespace": join.namespace, "name": name});
    json!({
        "id": id,
        "apiEndpoint": join.endpoint,
        "proxyURL": join.proxy_url,
        "proxyHeader": null,
        "insecureSkipTLSVerification": join.insecure_skip_tls_verification.then_some(true),
        "secretRef": reference(join.name.clone()),
        "impersonatorSecretRef": reference(names::impersonation_secret_name(&join.name)),
    })
}

/// Fails if the member has joined under another name.
async fn check_other_names(
    control: &dyn Api,
    name: &str,
    is_member: impl Fn(&str) -> bool,
) -> Result<(), RenameError> {
    let all = ResourcePath::collection(&CLUSTERS, "");
    let listed = control.list(all, &ListOptions::default()).await;
    for object in listed.map_err(host_error("list the clusters"))?.items {
        let cluster = object.decode::<Cluster>()?;
        if object.name() != name && is_member(&cluster.spec.id) {
            return Err(RenameError::Join(JoinError::ClusterIdTaken {
                id: cluster.spec.id.clone(),
                name: object.name().to_owned(),
            }));
        }
    }
    Ok(())
}
