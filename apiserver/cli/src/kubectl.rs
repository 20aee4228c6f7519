//! Runs kubectl against the control plane or, through the cluster proxy, a member.
//!
//! karmadactl is built from kubectl's packages. Here the user's own kubectl does what it
//! does well: streams, editors, patches, descriptions of every kind.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::anyhow;

use crate::kubeconfig_flags::{ControlPlaneFlags, KubeconfigArgs};
use crate::member_clusters::proxy_url;

pub(crate) type ControlPlaneArgs = KubeconfigArgs<ControlPlaneFlags>;

/// kubectl with the flags that select its server: a member if one is named.
pub(crate) fn kubectl_command(
    control: &ControlPlaneArgs,
    member: Option<&str>,
) -> anyhow::Result<Command> {
    let mut command = Command::new("kubectl");
    if let Some(path) = control.kubeconfig() {
        command.arg("--kubeconfig").arg(path);
    }
    if let Some(context) = control.context() {
        command.args(["--context", context]);
    }
    if let Some(member) = member {
        let config = control.load_config()?;
        command.args(["--server", &proxy_url(&config, member)]);
        // kubectl forgets the kubeconfig's name of the server when another is given.
        if let Some(name) = &config.tls_server_name {
            command.args(["--tls-server-name", name]);
        }
    }
    Ok(command)
}

/// Replaces this process with kubectl, so that terminal, signals and exit code are
/// kubectl's. Returns only if that fails.
pub(crate) fn replace_process(mut command: Command) -> anyhow::Error {
    start_error(&command.exec())
}

pub(crate) fn start_error(error: &std::io::Error) -> anyhow::Error {
    if error.kind() == ErrorKind::NotFound {
        return anyhow!(
            "this command runs kubectl, which is not on the PATH; install it (https://kubernetes.io/docs/tasks/tools/) and run the command again"
        );
    }
    anyhow!("kubectl cannot be run: {error}")
}
