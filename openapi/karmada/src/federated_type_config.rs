//! Typed view of KubeFed's FederatedTypeConfig (`core.kubefed.io/v1beta1`).

use serde::Deserialize;

/// The namespace whose FederatedTypeConfigs count. It is KubeFed's own.
pub const TYPE_CONFIG_NAMESPACE: &str = "kube-federation-system";
const DISABLED: &str = "Disabled";

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct FederatedTypeConfig {
    spec: FederatedTypeConfigSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FederatedTypeConfigSpec {
    target_type: TargetApiResource,
    /// `Enabled` or `Disabled`.
    propagation: String,
    /// `Enabled` or `Disabled`; empty: enabled.
    status_collection: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct TargetApiResource {
    group: String,
    version: String,
    kind: String,
}

impl FederatedTypeConfig {
    pub fn group(&self) -> &str {
        &self.spec.target_type.group
    }

    pub fn version(&self) -> &str {
        &self.spec.target_type.version
    }

    pub fn kind(&self) -> &str {
        &self.spec.target_type.kind
    }

    pub fn propagates(&self) -> bool {
        self.spec.propagation != DISABLED
    }

    pub fn collects_status(&self) -> bool {
        self.spec.status_collection != DISABLED
    }
}
