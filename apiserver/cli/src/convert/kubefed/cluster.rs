//! Converts a KubeFedCluster and its Secret to a Cluster in push mode.

use anyhow::Context;
use serde_json::{Value, json};

use super::inventory::{Inventory, name, namespace, object_text};
use crate::convert::conversion::{Conversion, Severity};

/// Where the Secrets of clusters lie that `flotilla join` writes.
const SECRETS_NAMESPACE: &str = "karmada-cluster";

pub(super) fn convert(
    cluster: &Value,
    inventory: &Inventory,
    conversion: &mut Conversion,
) -> anyhow::Result<()> {
    let text = object_text(cluster);
    let spec = &cluster["spec"];
    let endpoint = spec["apiEndpoint"].as_str();
    let endpoint = endpoint.context("spec.apiEndpoint: must be set")?;
    let mut converted = json!({
        "apiVersion": "cluster.karmada.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": name(cluster)},
        "spec": {
            "syncMode": "Push",
            "apiEndpoint": if endpoint.contains("://") {
                endpoint.to_owned()
            } else {
                format!("https://{endpoint}")
            },
        },
    });
    let status = &cluster["status"];
    for (from, to) in [
        (&cluster["metadata"]["labels"], "/metadata/labels"),
        (&spec["proxyURL"], "/spec/proxyURL"),
        (&status["region"], "/spec/region"),
        (&status["zones"], "/spec/zones"),
    ] {
        let is_empty = from.is_null() || *from == json!("") || *from == json!([]);
        let (parent, field) = to.rsplit_once('/').unwrap_or_default();
        if let (false, Some(parent)) = (is_empty, converted.pointer_mut(parent)) {
            parent[field] = from.clone();
        }
    }
    for disabled in spec["disabledTLSValidations"]
        .as_array()
        .into_iter()
        .flatten()
    {
        if disabled == "*" {
            converted["spec"]["insecureSkipTLSVerification"] = json!(true);
        } else {
            let message = format!("{disabled} cannot be switched off alone; \"*\" can");
            conversion.report(
                Severity::Loss,
                &text,
                "spec.disabledTLSValidations",
                &message,
            );
        }
    }
    let message = "requests through the cluster proxy need a token that impersonates; flotilla join, with the cluster's kubeconfig, creates it";
    conversion.report(Severity::Note, &text, "spec.impersonatorSecretRef", message);
    add_secret(cluster, inventory, &mut converted, conversion)?;
    conversion.prerequisites.push(converted);
    Ok(())
}

/// Adds the Secret with the cluster's token, beside which the certificate authority is kept here.
fn add_secret(
    cluster: &Value,
    inventory: &Inventory,
    converted: &mut Value,
    conversion: &mut Conversion,
) -> anyhow::Result<()> {
    let secret_name = cluster["spec"]["secretRef"]["name"].as_str();
    let secret_name = secret_name.context("spec.secretRef.name: must be set")?;
    converted["spec"]["secretRef"] = json!({"namespace": SECRETS_NAMESPACE, "name": name(cluster)});
    let Some(secret) = inventory.secret(namespace(cluster), secret_name) else {
        let message = format!(
            "the Secret {}/{secret_name} is not among the manifests; create the Secret {SECRETS_NAMESPACE}/{} with its token, and the cluster's caBundle",
            namespace(cluster),
            name(cluster),
        );
        conversion.report(
            Severity::Note,
            &object_text(cluster),
            "spec.secretRef",
            &message,
        );
        return Ok(());
    };
    let mut data = json!({"token": secret["data"]["token"]});
    for bundle in [&secret["data"]["ca.crt"], &cluster["spec"]["caBundle"]] {
        if bundle.as_str().is_some_and(|bundle| !bundle.is_empty()) {
            data["caBundle"] = bundle.clone();
        }
    }
    conversion.prerequisites.push(json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"namespace": SECRETS_NAMESPACE, "name": name(cluster)},
        "data": data,
    }));
    Ok(())
}
