//! Converts a KubeFedCluster and its Secret to a Cluster in push mode.

use anyhow::Context;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use karmada_api::tls_validations::DisabledTlsValidations;
use karmada_api::well_known_keys::DISABLED_TLS_VALIDATIONS;
use serde_json::{Value, json};

use super::fields;
use super::inventory::{Inventory, name, namespace, object_text};
use crate::convert::conversion::{Conversion, Severity};

/// Where the Secrets of clusters lie that `flotilla join` writes.
pub(crate) const SECRETS_NAMESPACE: &str = "karmada-cluster";

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
    fields::text_map(&cluster["metadata"]["labels"], "metadata.labels")?;
    fields::text(&spec["proxyURL"], "spec.proxyURL")?;
    fields::text(&status["region"], "status.region")?;
    fields::text_list(&status["zones"], "status.zones")?;
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
    let validations = &spec["disabledTLSValidations"];
    let validations = fields::text_list(validations, "spec.disabledTLSValidations")?;
    let validations = validations.unwrap_or_default().iter();
    let validations: Vec<&str> = validations.filter_map(Value::as_str).collect();
    let validations = validations.join(",");
    match DisabledTlsValidations::parse(&validations) {
        _ if validations.is_empty() => {}
        _ if validations.split(',').any(|validation| validation == "*") => {
            converted["spec"]["insecureSkipTLSVerification"] = json!(true);
        }
        Ok(parts) => {
            let annotations = json!({DISABLED_TLS_VALIDATIONS: parts.to_text()});
            converted["metadata"]["annotations"] = annotations;
        }
        Err(reason) => {
            let field = "spec.disabledTLSValidations";
            conversion.report(Severity::Loss, &text, field, &reason);
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
    let source = inventory.secret(namespace(cluster), secret_name);
    let token = match source {
        Some(secret) => secret_value(secret, "token").with_context(|| object_text(secret))?,
        None => None,
    };
    let (Some(secret), Some(token)) = (source, token) else {
        let reason = match source {
            Some(_) => "has no token",
            None => "is not among the manifests",
        };
        let message = format!(
            "the Secret {}/{secret_name} {reason}; create the Secret {SECRETS_NAMESPACE}/{} with its token, and the cluster's caBundle",
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
    let mut data = json!({"token": token});
    let bundle = fields::text(&cluster["spec"]["caBundle"], "spec.caBundle")?;
    let bundle = match bundle.filter(|bundle| !bundle.is_empty()) {
        Some(bundle) => Some(bundle.to_owned()),
        None => secret_value(secret, "ca.crt").with_context(|| object_text(secret))?,
    };
    if let Some(bundle) = bundle {
        data["caBundle"] = json!(bundle);
    }
    conversion.prerequisites.push(json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"namespace": SECRETS_NAMESPACE, "name": name(cluster)},
        "data": data,
    }));
    Ok(())
}

/// A value of a Secret in base64. What `stringData` says is stronger, as it is in a server.
fn secret_value(secret: &Value, key: &str) -> anyhow::Result<Option<String>> {
    for map in ["data", "stringData"] {
        fields::object(&secret[map], map)?;
    }
    let plain = fields::text(&secret["stringData"][key], &format!("stringData.{key}"))?;
    let encoded = fields::text(&secret["data"][key], &format!("data.{key}"))?;
    let value = match plain {
        Some(plain) => Some(STANDARD.encode(plain)),
        None => encoded.map(str::to_owned),
    };
    Ok(value.filter(|value| !value.is_empty()))
}
