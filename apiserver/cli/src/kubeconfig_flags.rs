//! The flags that select the server of a command: a kubeconfig and one of its contexts.

use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use clap::Args;
use client::remote::kubeconfig::KubeconfigLoadingRules;
use client::remote::{RemoteApi, RestConfig};
use client::{Api, TaskGroup};

/// How the flags of a kind of server are named and described.
pub trait KubeconfigFlagSet {
    const KUBECONFIG_HELP: &'static str;
    const CONTEXT_FLAG: &'static str;
    const CONTEXT_HELP: &'static str;
}

/// The control plane, with the flags of karmadactl.
pub struct ControlPlaneFlags;

impl KubeconfigFlagSet for ControlPlaneFlags {
    const KUBECONFIG_HELP: &'static str =
        "Kubeconfig of the control plane; $KUBECONFIG or ~/.kube/config by default";
    const CONTEXT_FLAG: &'static str = "karmada-context";
    const CONTEXT_HELP: &'static str = "Context of the control plane; the current one by default";
}

/// The cluster into which Flotilla is installed.
pub(crate) struct HostClusterFlags;

impl KubeconfigFlagSet for HostClusterFlags {
    const KUBECONFIG_HELP: &'static str =
        "Kubeconfig of the cluster; $KUBECONFIG or ~/.kube/config by default";
    const CONTEXT_FLAG: &'static str = "context";
    const CONTEXT_HELP: &'static str = "Context in that kubeconfig; the current one by default";
}

/// The flags that select a server.
#[derive(Args)]
pub struct KubeconfigArgs<F: KubeconfigFlagSet> {
    #[arg(long, value_name = "FILE", help = F::KUBECONFIG_HELP)]
    kubeconfig: Option<PathBuf>,
    #[arg(long = F::CONTEXT_FLAG, value_name = "CONTEXT", help = F::CONTEXT_HELP)]
    context: Option<String>,
    #[arg(skip)]
    flags: PhantomData<F>,
}

impl<F: KubeconfigFlagSet> KubeconfigArgs<F> {
    pub(crate) fn new(kubeconfig: Option<PathBuf>, context: Option<String>) -> Self {
        Self {
            kubeconfig,
            context,
            flags: PhantomData,
        }
    }

    pub(crate) fn kubeconfig(&self) -> Option<&Path> {
        self.kubeconfig.as_deref()
    }

    pub(crate) fn context(&self) -> Option<&str> {
        self.context.as_deref()
    }

    /// The server and our credentials there.
    pub fn load_config(&self) -> anyhow::Result<RestConfig> {
        let source = match &self.kubeconfig {
            Some(path) => KubeconfigLoadingRules::from_file(path),
            None => KubeconfigLoadingRules::from_environment(),
        };
        let context = self.context.clone();
        Ok(KubeconfigLoadingRules { context, ..source }.load()?)
    }

    pub(crate) fn connect(&self, tasks: &TaskGroup) -> anyhow::Result<Arc<dyn Api>> {
        Ok(self.connect_with_namespace(tasks)?.0)
    }

    /// Connects; also returns the namespace of the context, `default` if it has none.
    pub(crate) fn connect_with_namespace(
        &self,
        tasks: &TaskGroup,
    ) -> anyhow::Result<(Arc<dyn Api>, String)> {
        let config = self.load_config()?;
        let namespace = context_namespace(&config);
        Ok((Arc::new(RemoteApi::new(config, tasks)?), namespace))
    }
}

/// The namespace of the context, `default` if it has none.
pub(crate) fn context_namespace(config: &RestConfig) -> String {
    match config.namespace.as_str() {
        "" => "default".to_owned(),
        namespace => namespace.to_owned(),
    }
}

/// The namespace of a command line, or else that of the context.
pub(crate) fn namespace_or_context(namespace: Option<&String>, config: &RestConfig) -> String {
    namespace.map_or_else(|| context_namespace(config), String::clone)
}

/// Loads the kubeconfig of a member cluster; without a file, that of the environment.
pub(crate) fn load_cluster_config(
    file: Option<&Path>,
    context: Option<String>,
) -> anyhow::Result<RestConfig> {
    let rules = cluster_rules(file);
    KubeconfigLoadingRules { context, ..rules }
        .load()
        .context("the cluster's kubeconfig")
}

/// Loads the kubeconfig of a member cluster: without a context, the one that has the name of
/// the cluster, if there is one, else the current one.
pub(crate) fn load_named_cluster_config(
    file: &Path,
    context: Option<String>,
    cluster: &str,
) -> anyhow::Result<RestConfig> {
    let context = match context {
        Some(context) => Some(context),
        None => {
            let named = cluster_rules(Some(file)).has_context(cluster);
            let named = named.context("the cluster's kubeconfig")?;
            named.then(|| cluster.to_owned())
        }
    };
    load_cluster_config(Some(file), context)
}

fn cluster_rules(file: Option<&Path>) -> KubeconfigLoadingRules {
    match file {
        Some(file) => KubeconfigLoadingRules::from_file(file),
        None => KubeconfigLoadingRules::from_environment(),
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Parser)]
    struct TestCli<F: KubeconfigFlagSet> {
        #[command(flatten)]
        server: KubeconfigArgs<F>,
    }

    #[test]
    fn each_kind_of_server_has_a_context_flag_of_its_own() {
        let line = ["x", "--kubeconfig", "f", "--karmada-context", "c"];
        let control = TestCli::<ControlPlaneFlags>::try_parse_from(line).unwrap();
        assert_eq!(control.server.context.as_deref(), Some("c"));
        assert!(TestCli::<HostClusterFlags>::try_parse_from(line).is_err());
        let line = ["x", "--context", "c"];
        let host = TestCli::<HostClusterFlags>::try_parse_from(line).unwrap();
        assert_eq!(host.server.context.as_deref(), Some("c"));
        let help = TestCli::<HostClusterFlags>::command().render_help();
        let help = help.to_string();
        assert!(help.contains(HostClusterFlags::CONTEXT_HELP), "{help}");
    }
}
