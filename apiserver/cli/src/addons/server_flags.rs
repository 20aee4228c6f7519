//! The flags that select the control plane of the addons.

use clap::Args;

use crate::kubeconfig_flags::{ControlPlaneFlags, KubeconfigArgs};

/// The flags that all of the commands have.
#[derive(Args)]
pub(super) struct AddonsServerArgs {
    #[command(flatten)]
    pub(super) control: KubeconfigArgs<ControlPlaneFlags>,
    /// The namespace of the ConfigMap flotilla-addons; by default that in which Flotilla is
    /// installed, or karmada-system of a standalone server.
    #[arg(short, long, value_name = "NAMESPACE")]
    pub(super) namespace: Option<String>,
}
