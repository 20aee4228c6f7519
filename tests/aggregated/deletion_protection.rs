//! Objects of the host that must not be deleted, while Flotilla runs and while it does not.

use client::{DeleteOptions, ListOptions, ResourcePath};
use harness::ApiServerClient;
use harness::objects::{CONFIG_MAPS, config_map};
use serde_json::json;

use crate::aggregated::aggregated_control_plane::AggregatedControlPlane;

const NS: &str = "protected";
const DELETION_PROTECTED_LABEL: &str = "resourcetemplate.karmada.io/deletion-protected";

/// Starts Flotilla again with these flags.
pub(crate) async fn run_scenario(control_plane: &mut AggregatedControlPlane, flags: &[&str]) {
    control_plane.client.create_namespace(NS).await;
    check_deletion_protection(&control_plane.client).await;
    check_deletion_protection_while_stopped(control_plane, flags).await;
}

/// The host calls the deletion protection webhook before it deletes a protected object.
async fn check_deletion_protection(host: &ApiServerClient) {
    let mut protected = config_map(NS, "kept", "1");
    protected["metadata"]["labels"] = json!({DELETION_PROTECTED_LABEL: "Always"});
    host.create(protected).await;
    let mut free = config_map(NS, "free", "1");
    free["metadata"]["labels"] = json!({DELETION_PROTECTED_LABEL: "sometimes"});
    host.create(free).await;
    host.delete(&CONFIG_MAPS, NS, "free").await;
    let options = DeleteOptions::default();
    let at = ResourcePath::object(&CONFIG_MAPS, NS, "kept");
    let error = host.api.delete(at, &options).await.unwrap_err();
    let status = error.status().unwrap();
    assert_eq!(status.code, 403, "{status:?}");
    assert!(
        status.message.contains(DELETION_PROTECTED_LABEL),
        "{status:?}"
    );
    let (all, everything) = (
        ResourcePath::collection(&CONFIG_MAPS, NS),
        ListOptions::default(),
    );
    let many = host.api.delete_collection(all, &options, &everything);
    assert!(many.await.is_err());
    host.wait_until_exists(&CONFIG_MAPS, NS, "kept").await;
    let unlock = json!({"metadata": {"labels": {DELETION_PROTECTED_LABEL: null}}});
    host.merge_patch(&CONFIG_MAPS, NS, "kept", unlock).await;
    host.delete(&CONFIG_MAPS, NS, "kept").await;
}

/// While Flotilla is down, the host rejects the deletion of labelled objects and does not call
/// the webhook for others.
async fn check_deletion_protection_while_stopped(
    control_plane: &mut AggregatedControlPlane,
    flags: &[&str],
) {
    for (name, labels) in [
        ("labelled", json!({DELETION_PROTECTED_LABEL: "sometimes"})),
        ("free", json!({})),
    ] {
        let mut object = config_map(NS, name, "1");
        object["metadata"]["labels"] = labels;
        control_plane.client.create(object).await;
    }
    control_plane.kill();
    control_plane.client.delete(&CONFIG_MAPS, NS, "free").await;
    let at = ResourcePath::object(&CONFIG_MAPS, NS, "labelled");
    let options = DeleteOptions::default();
    let error = control_plane
        .client
        .api
        .delete(at, &options)
        .await
        .unwrap_err();
    let status = error.status().unwrap();
    assert_eq!(status.code, 500, "{status:?}");
    let hook = "resourcedeletionprotection.karmada.io";
    assert!(status.message.contains(hook), "{status:?}");
    control_plane.start_flotilla_with(flags);
    control_plane.wait_until_available().await;
    control_plane
        .client
        .delete(&CONFIG_MAPS, NS, "labelled")
        .await;
}
