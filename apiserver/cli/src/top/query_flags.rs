//! The flags of `flotilla top`, and the members that they select.

use std::time::Duration;

use anyhow::bail;
use clap::Args;
use client::TaskGroup;
use client::remote::{RemoteApi, RestConfig};
use machinery::duration;

use super::resource_usage::UsageOrder;
use crate::kubectl::ControlPlaneArgs;
use crate::member_clusters::{MemberFailure, MemberServer, connect_members};
use crate::output;
use crate::printers::{OutputFormat, encode_output};

/// The flags of all that asks members.
#[derive(Args)]
pub(super) struct MemberQueryArgs {
    /// Members to ask; all registered ones by default.
    #[arg(short = 'C', long, value_name = "NAME,...", value_delimiter = ',')]
    pub(super) clusters: Vec<String>,
    /// Do not print headers.
    #[arg(long)]
    pub(super) no_headers: bool,
    /// Output format: json or yaml.
    #[arg(short, long, value_name = "FORMAT", value_parser = ["json", "yaml"])]
    output: Option<String>,
    /// How long a member may take to answer; one that takes longer is left out.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration::parse)]
    pub(super) request_timeout: Duration,
    #[command(flatten)]
    control: ControlPlaneArgs,
}

/// The flags of lists of metrics.
#[derive(Args)]
pub(super) struct MetricsQueryArgs {
    /// Sort by cpu or memory, the greatest first.
    #[arg(long, value_name = "FIELD", default_value = "")]
    sort_by: String,
    /// Accepted for scripts of karmadactl: metrics are always requested as JSON.
    #[arg(long, hide = true, default_value_t = true, num_args = 0..=1, require_equals = true,
        default_missing_value = "true", action = clap::ArgAction::Set)]
    use_protocol_buffers: bool,
    #[command(flatten)]
    pub(super) members: MemberQueryArgs,
}

impl MetricsQueryArgs {
    pub(super) fn order(&self) -> anyhow::Result<UsageOrder> {
        match self.sort_by.as_str() {
            "" => Ok(UsageOrder::Name),
            "cpu" => Ok(UsageOrder::Cpu),
            "memory" => Ok(UsageOrder::Memory),
            _ => bail!("--sort-by accepts only cpu or memory"),
        }
    }
}

/// The control plane and its members, for one command.
pub(super) struct QueriedFleet {
    pub(super) config: RestConfig,
    pub(super) control: RemoteApi,
    pub(super) members: Vec<MemberServer>,
}

impl MemberQueryArgs {
    pub(super) async fn connect(&self, tasks: &TaskGroup) -> anyhow::Result<QueriedFleet> {
        let config = self.control.load_config()?;
        let control = RemoteApi::new(config.clone(), tasks)?;
        let members = connect_members(&control, &config, &self.clusters, tasks).await?;
        Ok(QueriedFleet {
            config,
            control,
            members,
        })
    }

    /// The value as a document, if one is asked for.
    pub(super) fn encode(&self, value: &impl serde::Serialize) -> anyhow::Result<Option<String>> {
        let format = match self.output.as_deref() {
            Some("json") => Some(OutputFormat::Json),
            Some("yaml") => Some(OutputFormat::Yaml),
            _ => None,
        };
        encode_output(format, value)
    }
}

/// Warns of each member that has failed.
pub(super) fn print_failures<'a>(failures: impl Iterator<Item = (&'a str, &'a MemberFailure)>) {
    for (cluster, failure) in failures {
        output::print_progress(failure.warning(cluster));
    }
}
