//! Finds out whether a server is the control plane that a bootstrap token belongs to, and its
//! authority: by the signed ConfigMap `kube-public/cluster-info` (as `kubeadm join` does).

use std::time::Duration;

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::remote::{RemoteApi, RestConfig};
use client::{Api, ResourcePath, TaskGroup};
use machinery::Gvr;
use machinery::bootstrap_token::{
    BootstrapToken, CLUSTER_INFO, CLUSTER_INFO_NAMESPACE, KUBECONFIG_KEY, SIGNATURE_KEY_PREFIX,
};
use machinery::certificate_request::public_key_pins;
use serde::Deserialize;
use serde_json::Value;

static CONFIG_MAPS: Gvr = Gvr::from_static("", "v1", "configmaps");
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// How the server is verified.
pub(crate) struct DiscoveryOptions<'a> {
    /// `host:port`.
    pub(crate) endpoint: &'a str,
    pub(crate) token: &'a BootstrapToken,
    /// `sha256:` and the digest of a public key; none: the signature alone is verified.
    pub(crate) ca_cert_hashes: &'a [String],
    pub(crate) timeout: Duration,
}

#[derive(Deserialize)]
struct ClusterInfoKubeconfig {
    clusters: Vec<NamedCluster>,
}

#[derive(Deserialize)]
struct NamedCluster {
    cluster: ClusterWithAuthority,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct ClusterWithAuthority {
    certificate_authority_data: String,
}

/// The authority of the server, as PEM.
pub(crate) async fn discover_ca(
    options: &DiscoveryOptions<'_>,
    tasks: &TaskGroup,
) -> anyhow::Result<Vec<u8>> {
    let deadline = tokio::time::Instant::now() + options.timeout;
    let mut config = RestConfig::new(&format!("https://{}", options.endpoint))?;
    config.insecure_skip_tls_verify = true;
    let kubeconfig = wait_for_cluster_info(config.clone(), options, deadline, tasks).await?;
    let ca = cluster_ca(&kubeconfig)?;
    if options.ca_cert_hashes.is_empty() {
        return Ok(ca);
    }
    check_pins(&ca, options.ca_cert_hashes)?;
    // Once more, now with the pinned authority verified.
    config.insecure_skip_tls_verify = false;
    config.ca = Some(ca.clone());
    let verified = wait_for_cluster_info(config, options, deadline, tasks).await?;
    if verified != kubeconfig {
        bail!(
            "the second kubeconfig from the {CLUSTER_INFO} ConfigMap (using validated TLS) was different from the first"
        );
    }
    Ok(ca)
}

/// The kubeconfig of the ConfigMap, whose signature is that of the token.
async fn wait_for_cluster_info(
    config: RestConfig,
    options: &DiscoveryOptions<'_>,
    deadline: tokio::time::Instant,
    tasks: &TaskGroup,
) -> anyhow::Result<String> {
    let api = RemoteApi::new(config, tasks)?;
    loop {
        let missing = match signed_cluster_info(&api, options.token).await {
            Ok(Some((kubeconfig, signature))) => {
                if options.token.verifies(&signature, &kubeconfig) {
                    return Ok(kubeconfig);
                }
                bail!(
                    "failed to verify JWS signature of received cluster info object, can't trust this API Server"
                );
            }
            Ok(None) => anyhow::anyhow!(
                "could not find a JWS signature in the {CLUSTER_INFO} ConfigMap for token ID {:?}",
                options.token.id
            ),
            Err(e) => e,
        };
        // The signature comes a moment after its token.
        if tokio::time::Instant::now() + RETRY_INTERVAL > deadline {
            return Err(missing);
        }
        tokio::time::sleep(RETRY_INTERVAL).await;
    }
}

async fn signed_cluster_info(
    api: &dyn Api,
    token: &BootstrapToken,
) -> anyhow::Result<Option<(String, String)>> {
    let at = ResourcePath::object(&CONFIG_MAPS, CLUSTER_INFO_NAMESPACE, CLUSTER_INFO);
    let map: Value = api.get(at).await?.value()?;
    let text = |key: &str| map["data"][key].as_str().map(str::to_owned);
    let kubeconfig = text(KUBECONFIG_KEY).with_context(|| {
        format!("there is no {KUBECONFIG_KEY} key in the {CLUSTER_INFO} ConfigMap. This API Server isn't set up for token bootstrapping, can't connect")
    })?;
    let signature = text(&format!("{SIGNATURE_KEY_PREFIX}{}", token.id));
    Ok(signature.map(|signature| (kubeconfig, signature)))
}

fn cluster_ca(kubeconfig: &str) -> anyhow::Result<Vec<u8>> {
    let parsed: ClusterInfoKubeconfig = serde_saphyr::from_str(kubeconfig).with_context(|| {
        format!("couldn't parse the kubeconfig file in the {CLUSTER_INFO} ConfigMap")
    })?;
    let [only] = parsed.clusters.as_slice() else {
        bail!(
            "expected the kubeconfig file in the {CLUSTER_INFO} ConfigMap to have a single cluster, but it had {}",
            parsed.clusters.len()
        );
    };
    let ca = STANDARD.decode(&only.cluster.certificate_authority_data);
    ca.with_context(|| format!("failed to parse cluster CA from the {CLUSTER_INFO} ConfigMap"))
}

fn check_pins(ca: &[u8], hashes: &[String]) -> anyhow::Result<()> {
    let malformed = |hash: &&String| {
        let digest = hash.strip_prefix("sha256:");
        !digest.is_some_and(|d| d.len() == 64 && d.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    if let Some(hash) = hashes.iter().find(malformed) {
        bail!("invalid discovery token CA certificate hash: {hash:?} is not sha256:<hex>");
    }
    let pem = std::str::from_utf8(ca).context("the cluster CA is not PEM")?;
    let pins = public_key_pins(pem).map_err(anyhow::Error::msg)?;
    let is_pinned = |hash: &String| pins.contains(&hash.to_ascii_lowercase());
    if hashes.iter().any(is_pinned) {
        return Ok(());
    }
    bail!(
        "cluster CA found in {CLUSTER_INFO} ConfigMap is invalid: none of the public keys {pins:?} are pinned"
    )
}
