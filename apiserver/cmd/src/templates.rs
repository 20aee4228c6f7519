//! Which templates there are, and what becomes of those that a host runs itself.

use clap::{Args, ValueEnum};
use flotilla_runtime::HostWorkloads;

use crate::control::Base;

/// What may be propagated.
#[derive(Args, Clone)]
#[group(id = "templates")]
pub(crate) struct Flags {
    /// APIs that are not propagated, beside those that never are: group,
    /// group/version, group/version/Kind,Kind or v1/Kind,Kind; several with semicolons.
    #[arg(long, value_name = "APIS", value_delimiter = ';')]
    skipped_propagating_apis: Vec<String>,
    /// Namespaces that are not propagated, as regular expressions of whole names.
    #[arg(
        long,
        value_name = "REGEXES",
        value_delimiter = ',',
        default_value = "kube-.*"
    )]
    skipped_propagating_namespaces: Vec<String>,
    /// What becomes of workloads, such as Deployments, where the API server that
    /// Flotilla serves behind has nodes, and so runs them itself.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = OnHost::Refuse)]
    host_workloads: OnHost,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OnHost {
    /// They stay there; their bindings say so.
    Refuse,
    /// They go to the members too, and their status is the host's.
    Propagate,
}

impl Flags {
    /// Of a control plane that keeps its templates itself.
    pub(crate) fn alone(&self) -> Templates {
        Templates {
            options: propagation::Options {
                skipped_apis: self.skipped_propagating_apis.clone(),
                skipped_namespaces: self.skipped_propagating_namespaces.clone(),
                ..propagation::Options::default()
            },
            host: None,
        }
    }

    /// Of a control plane whose templates a host keeps.
    pub(crate) fn behind(&self) -> Templates {
        Templates {
            host: Some(self.host_workloads),
            ..self.alone()
        }
    }
}

/// What the flags mean; the default is that of a control plane alone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Templates {
    pub(crate) options: propagation::Options,
    host: Option<OnHost>,
}

impl Templates {
    /// Who runs workloads on the server of the templates.
    pub(crate) fn workloads(&self, on: &Base) -> HostWorkloads {
        let Some(choice) = self.host else {
            return HostWorkloads::default();
        };
        let propagate = choice == OnHost::Propagate;
        HostWorkloads::follow(&on.api, &on.informers, propagate)
    }
}
