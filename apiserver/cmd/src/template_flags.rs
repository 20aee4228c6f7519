//! The flags that exclude templates from propagation, and the flag for workloads that the
//! host runs itself.

use std::sync::Arc;

use clap::{Args, ValueEnum};
use client::{Api, InformerFactory};
use controller_context::TemplateFilterOptions;
use flotilla_runtime::HostWorkloadFilter;

use crate::flag_modes::EffectiveMode;

/// The flags for templates.
#[derive(Args, Clone)]
#[group(id = "templates")]
#[command(next_help_heading = "Resource propagation flags")]
pub(crate) struct TemplatePropagationArgs {
    /// Semicolon separated resources that should be skipped from propagating in addition
    /// to the default skip list: group, group/version, group/version/Kind,Kind or
    /// v1/Kind,Kind.
    #[arg(long, value_name = "APIS", value_delimiter = ';')]
    skipped_propagating_apis: Vec<String>,
    /// Comma-separated namespaces that should be skipped from propagating, as regular
    /// expressions that match whole names.
    #[arg(
        long,
        value_name = "REGEXES",
        value_delimiter = ',',
        default_value = "kube-.*"
    )]
    skipped_propagating_namespaces: Vec<String>,
    /// Whether workloads such as Deployments are propagated if the cluster of the API
    /// server to serve behind has nodes, and so runs them itself.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = HostWorkloadPropagationMode::Refuse, add = EffectiveMode::BehindHost)]
    host_workloads: HostWorkloadPropagationMode,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum HostWorkloadPropagationMode {
    /// They are not propagated; a condition of their bindings says so.
    Refuse,
    /// They are propagated to members too; their status remains the host's.
    Propagate,
}

impl TemplatePropagationArgs {
    /// The options of a standalone server, which stores the templates itself.
    pub(crate) fn standalone_options(&self) -> TemplatePropagationOptions {
        TemplatePropagationOptions {
            filter: TemplateFilterOptions {
                skipped_apis: self.skipped_propagating_apis.clone(),
                skipped_namespaces: self.skipped_propagating_namespaces.clone(),
            },
            host_workloads: None,
        }
    }

    /// The options of an aggregated server, whose templates the host stores.
    pub(crate) fn aggregated_options(&self) -> TemplatePropagationOptions {
        TemplatePropagationOptions {
            host_workloads: Some(self.host_workloads),
            ..self.standalone_options()
        }
    }
}

/// The values of the flags; the default is for a standalone server.
#[derive(Clone, Debug, Default)]
pub(crate) struct TemplatePropagationOptions {
    pub(crate) filter: TemplateFilterOptions,
    host_workloads: Option<HostWorkloadPropagationMode>,
}

impl TemplatePropagationOptions {
    /// Watches whether the host runs workloads itself.
    pub(crate) fn watch_host_workloads(
        &self,
        host: &Arc<dyn Api>,
        informers: &InformerFactory,
    ) -> HostWorkloadFilter {
        let Some(choice) = self.host_workloads else {
            return HostWorkloadFilter::default();
        };
        let propagate = choice == HostWorkloadPropagationMode::Propagate;
        HostWorkloadFilter::watch(host, informers, propagate)
    }
}
