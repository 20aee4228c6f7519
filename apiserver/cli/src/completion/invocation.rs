//! The words before the cursor: the server, the namespace, and the arguments so far.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgMatches, Command};
use client::remote::RestConfig;
use client::remote::kubeconfig::KubeconfigLoadingRules;

use crate::kubeconfig_flags::context_namespace;
use crate::member_clusters::member_config;

/// The flags and arguments before the cursor.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Invocation {
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
    cluster_kubeconfig: Option<PathBuf>,
    namespace: Option<String>,
    clusters: Vec<String>,
    pub(super) arguments: Vec<String>,
}

impl Invocation {
    /// Reads the words as the command line that they begin; `None` if they ask for help.
    pub(super) fn parse(command_line: &Command, words: &[OsString]) -> Option<Self> {
        if words.iter().any(|word| word == "--") {
            return None;
        }
        let lenient = command_line.clone().ignore_errors(true);
        let matches = lenient.clone().try_get_matches_from(words).ok()?;
        let mut built = lenient;
        built.build();
        let (mut command, mut matches) = (&built, &matches);
        while let Some((name, of_subcommand)) = matches.subcommand() {
            command = command.find_subcommand(name)?;
            matches = of_subcommand;
        }
        let flag = |longs: &[&str]| flag_values(command, matches, longs).pop();
        Some(Self {
            kubeconfig: flag(&["kubeconfig", "karmada-config"]).map(PathBuf::from),
            context: flag(&["karmada-context", "context"]),
            cluster_kubeconfig: flag(&["cluster-kubeconfig"]).map(PathBuf::from),
            namespace: flag(&["namespace"]),
            clusters: flag_values(command, matches, &["cluster", "clusters"]),
            arguments: positional_values(command, matches),
        })
    }

    fn rules(&self) -> KubeconfigLoadingRules {
        match &self.kubeconfig {
            Some(path) => KubeconfigLoadingRules::from_file(path),
            None => KubeconfigLoadingRules::from_environment(),
        }
    }

    /// The contexts for `--context`, or, for `--cluster-context`, those of the member's
    /// kubeconfig.
    pub(super) fn contexts(&self, of_cluster: bool) -> Vec<String> {
        let rules = match &self.cluster_kubeconfig {
            Some(path) if of_cluster => KubeconfigLoadingRules::from_file(path),
            None if of_cluster => KubeconfigLoadingRules::from_environment(),
            _ => self.rules(),
        };
        rules.context_names().unwrap_or_default()
    }

    /// The control plane, and the namespace of the command there.
    pub(super) fn control_plane(&self) -> anyhow::Result<(RestConfig, String)> {
        let context = self.context.clone();
        let config = KubeconfigLoadingRules {
            context,
            ..self.rules()
        }
        .load()?;
        let namespace = self.namespace.clone();
        let namespace = namespace.unwrap_or_else(|| context_namespace(&config));
        Ok((config, namespace))
    }

    /// The server that has the objects: a member if one is named, else the control plane.
    pub(super) fn object_server(&self) -> anyhow::Result<(RestConfig, String)> {
        let (config, namespace) = self.control_plane()?;
        let config = match self.clusters.as_slice() {
            [member] => member_config(&config, member)?,
            _ => config,
        };
        Ok((config, namespace))
    }

    pub(super) fn names_one_member(&self) -> bool {
        self.clusters.len() == 1
    }
}

fn flag_values(command: &Command, matches: &ArgMatches, longs: &[&str]) -> Vec<String> {
    let named = |arg: &&clap::Arg| arg.get_long().is_some_and(|long| longs.contains(&long));
    let flags = command.get_arguments().filter(named);
    let values = flags.filter_map(|arg| matches.get_raw(arg.get_id().as_str()));
    let values = values.flatten().map(|v| v.to_string_lossy().into_owned());
    values.filter(|value| !value.is_empty()).collect()
}

fn positional_values(command: &Command, matches: &ArgMatches) -> Vec<String> {
    let values = command.get_positionals();
    let values = values.filter_map(|arg| matches.get_raw(arg.get_id().as_str()));
    let values = values.flatten().map(|v| v.to_string_lossy().into_owned());
    values.collect()
}
