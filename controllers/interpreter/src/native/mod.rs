//! The native rules: the trait that a kind implements, the table of kinds, and shared helpers.
//!
//! Rules read objects as bytes and edit JSON trees. Source: Karmada's
//! `pkg/resourceinterpreter/default/native`.

mod bare_pods;
pub(crate) mod conditions;
mod cron_jobs;
pub(crate) mod dependencies;
#[cfg(test)]
pub(crate) mod fixtures;
mod injected_fields;
mod jobs;
mod native_interpreter;
mod networking;
mod pdb_and_hpa;
pub(crate) mod pod_template;
mod rules;
mod service_accounts;
#[cfg(test)]
mod tests;
mod volumes;
mod workload_conditions;
mod workloads;

pub(crate) use crate::error::Error;
pub(crate) use native_interpreter::NativeInterpreter;
#[cfg(test)]
pub(crate) use native_interpreter::rules_for;
pub use rules::TemplateReplicas;
pub(crate) use rules::{
    CollectedStatus, NativeRules, collected_counter, collected_fields, counter,
    parse_collected_status, parse_object, reflect_whole_status, retain_added_spec_fields,
    retain_field, retain_spec_field,
};
