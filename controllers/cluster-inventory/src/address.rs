//! The address of the control plane, as the ConfigMap `kube-public/cluster-info` publishes it.

use machinery::bootstrap_token::KUBECONFIG_KEY;
use machinery::{Object, yaml};

/// Where clients reach the control plane, and by which authorities they know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ControlPlaneAddress {
    /// An `https` URL without a slash at its end.
    pub(crate) server: String,
    /// PEM in base64; empty for the authorities of the client's machine.
    pub(crate) authority: String,
}

impl ControlPlaneAddress {
    /// `None` if the ConfigMap has none.
    pub(crate) fn from_config_map(map: &Object) -> Option<Self> {
        let map = map.value().ok()?;
        let kubeconfig = yaml::from_str(map["data"][KUBECONFIG_KEY].as_str()?).ok()?;
        let cluster = &kubeconfig["clusters"][0]["cluster"];
        let server = cluster["server"].as_str()?.trim_end_matches('/');
        let authority = cluster["certificate-authority-data"].as_str();
        server.starts_with("https://").then(|| Self {
            server: server.to_owned(),
            authority: authority.unwrap_or_default().to_owned(),
        })
    }

    /// The URL at which a member is reached through the cluster proxy.
    pub(crate) fn of_cluster(&self, cluster: &str) -> String {
        let server = &self.server;
        format!("{server}/apis/cluster.karmada.io/v1alpha1/clusters/{cluster}/proxy")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    // proves: INV-access
    #[test]
    fn the_address_is_that_of_the_kubeconfig() {
        let address = |kubeconfig: &str| {
            let map =
                json!({"metadata": {"name": "cluster-info"}, "data": {"kubeconfig": kubeconfig}});
            ControlPlaneAddress::from_config_map(&Object::from_value(&map).unwrap())
                .map(|address| (address.server, address.authority))
        };
        let of = |server: &str, authority: &str| Some((server.to_owned(), authority.to_owned()));
        for (kubeconfig, expected) in [
            (
                "clusters: [{cluster: {server: 'https://a:6443/', certificate-authority-data: Yg==}}]",
                of("https://a:6443", "Yg=="),
            ),
            (
                "clusters: [{cluster: {server: 'https://a'}}]",
                of("https://a", ""),
            ),
            ("clusters: [{cluster: {server: 'http://a'}}]", None),
            ("clusters: []", None),
            ("{", None),
        ] {
            assert_eq!(address(kubeconfig), expected, "{kubeconfig}");
        }
    }
}
