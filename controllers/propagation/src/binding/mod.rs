//! Bindings become works: one per target cluster, with its replicas and overrides.
//!
//! Enters: bindings, their templates, override policies, works. Leaves: works made,
//! changed and deleted; the binding's finalizer removed. Writes through the control
//! plane's API only.

mod cleanup;
mod events;
mod manifest;
mod override_changes;
mod shell;

pub(crate) use shell::BindingController;
