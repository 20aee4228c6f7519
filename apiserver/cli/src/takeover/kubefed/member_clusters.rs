//! The clusters of KubeFed: connects to them with KubeFed's credentials, and joins them.

use std::sync::Arc;

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::remote::{AuthInfo, Redacted, RemoteApi, RestConfig};
use client::{Api, Patch, ResourcePath, TaskGroup, WriteOptions, ignore_not_found};
use clusters::{JoinError, JoinSpec};
use karmada_api::Cluster;
use karmada_api::resources::CLUSTERS;
use serde_json::{Value, json};

use crate::convert::kubefed::cluster::SECRETS_NAMESPACE;
use crate::output;

/// A cluster of KubeFed.
pub(super) struct KubefedCluster {
    pub(super) name: String,
    pub(super) api: Arc<dyn Api>,
    pub(super) spec: JoinSpec,
    pub(super) labels: Value,
}

/// Takes the converted Clusters and their Secrets out of the manifests, and connects to them.
pub(super) fn connect(
    manifests: &mut Vec<Value>,
    tasks: &TaskGroup,
) -> anyhow::Result<Vec<KubefedCluster>> {
    let is_secret =
        |m: &Value| m["kind"] == "Secret" && m["metadata"]["namespace"] == SECRETS_NAMESPACE;
    let is_cluster = |m: &Value| m["kind"] == "Cluster" && m["spec"]["syncMode"] == "Push";
    let (secrets, rest): (Vec<Value>, Vec<Value>) = manifests.drain(..).partition(is_secret);
    let (clusters, rest): (Vec<Value>, Vec<Value>) = rest.into_iter().partition(is_cluster);
    *manifests = rest;
    let connect = |cluster: &Value| {
        let name = cluster["metadata"]["name"].as_str().unwrap_or_default();
        let mut secrets = secrets.iter();
        let secret = secrets.find(|secret| secret["metadata"]["name"] == name);
        let connected = connect_cluster(name, cluster, secret, tasks);
        connected.with_context(|| format!("KubeFedCluster {name}"))
    };
    clusters.iter().map(connect).collect()
}

fn connect_cluster(
    name: &str,
    cluster: &Value,
    secret: Option<&Value>,
    tasks: &TaskGroup,
) -> anyhow::Result<KubefedCluster> {
    let data = |key: &str| -> anyhow::Result<Option<Vec<u8>>> {
        let encoded = secret.and_then(|secret| secret["data"][key].as_str());
        let decoded = encoded.map(|text| STANDARD.decode(text)).transpose();
        decoded.with_context(|| format!("{key} of its Secret is not base64"))
    };
    let token = data("token")?.context("its Secret with the token is missing")?;
    let token = String::from_utf8(token).context("the token of its Secret is not text")?;
    let spec = &cluster["spec"];
    let endpoint = spec["apiEndpoint"].as_str().unwrap_or_default();
    let mut config = RestConfig::new(endpoint).context("spec.apiEndpoint")?;
    config.insecure_skip_tls_verify = spec["insecureSkipTLSVerification"] == true;
    if !config.insecure_skip_tls_verify {
        config.ca = data("caBundle")?;
    }
    if let Some(proxy) = spec["proxyURL"].as_str() {
        config.set_proxy(proxy).context("spec.proxyURL")?;
    }
    config.auth = AuthInfo {
        token: Some(Redacted(token)),
        ..AuthInfo::default()
    };
    let zones = spec["zones"].as_array().into_iter().flatten();
    let join_spec = JoinSpec {
        region: spec["region"].as_str().map(str::to_owned),
        zones: zones.filter_map(Value::as_str).map(str::to_owned).collect(),
        ..JoinSpec::for_member(name, &config).map_err(anyhow::Error::msg)?
    };
    Ok(KubefedCluster {
        name: name.to_owned(),
        api: Arc::new(RemoteApi::new(config, tasks)?),
        spec: join_spec,
        labels: cluster["metadata"]["labels"].clone(),
    })
}

/// Fails, with all reasons, if another control plane manages a cluster.
pub(super) async fn check_unmanaged(
    control: &dyn Api,
    clusters: &[KubefedCluster],
) -> anyhow::Result<()> {
    let mut failures = Vec::new();
    for KubefedCluster { name, api, .. } in clusters {
        let report = clusters::find_other_managers(control, &**api, name).await;
        for failure in report.failures {
            failures.push(format!("cluster {name}: {failure}"));
        }
        for warning in report.warnings {
            output::print_progress(format!("cluster {name}: {warning}"));
        }
    }
    if failures.is_empty() {
        return Ok(());
    }
    bail!("nothing was changed:\n{}", failures.join("\n"))
}

impl KubefedCluster {
    /// Joins the cluster, unless it has joined already, and gives it its labels, by which policies
    /// may select it.
    pub(super) async fn join(&self, control: &dyn Api) -> anyhow::Result<()> {
        let progress = |text: &str| output::print_progress(format!("{}: {text}", self.name));
        let joined = Box::pin(clusters::join(control, &*self.api, &self.spec, &progress)).await;
        match joined {
            Ok(_) => {}
            Err(JoinError::NameTaken(_)) => self.check_joined(control).await?,
            Err(error) => return Err(error.into()),
        }
        if self.labels.is_null() {
            return Ok(());
        }
        let at = ResourcePath::object(&CLUSTERS, "", &self.name);
        let patch = json!({"metadata": {"labels": self.labels}});
        let options = WriteOptions::default();
        control.patch(at, Patch::Merge(patch), &options).await?;
        Ok(())
    }

    /// Fails if another cluster has joined under this name.
    async fn check_joined(&self, control: &dyn Api) -> anyhow::Result<()> {
        let at = ResourcePath::object(&CLUSTERS, "", &self.name);
        let existing = ignore_not_found(control.get(at).await)?;
        let existing = existing.context("the cluster was deleted meanwhile; run again")?;
        let cluster = existing.decode::<Cluster>()?;
        let (registered, endpoint) = (&cluster.spec.api_endpoint, &self.spec.endpoint);
        if existing.meta().deleting || registered.trim_end_matches('/') != endpoint {
            bail!(
                "cluster {} has joined with the endpoint {registered}, and KubeFed's is {endpoint}",
                self.name
            );
        }
        Ok(())
    }
}
