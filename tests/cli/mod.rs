//! The commands of karmadactl as `flotilla` has them: the real binary against a running
//! control plane with simulated members.
//!
//! The tests share one `flotilla up` with two members and use separate namespaces. The
//! examples in the help of commands are run as they are written, in the namespace
//! `default`, whose Deployment `web` is in both members.

/// The control plane, and runs of the binary.
mod fixture;

/// `cordon`, `uncordon` and `taint`.
mod taints;

/// `join` and `unjoin`, with the checks before a join.
mod join;

/// `get` from the control plane and from members.
mod get;

/// `top` of pods, nodes and the fleet.
mod top;

/// `apply` with policies for the applied objects.
mod apply;

/// The commands that kubectl does, and the binary as a plugin of kubectl.
mod kubectl;

/// `convert` of manifests of KubeFed.
mod convert;

/// `promote` of objects in a member.
mod promote;

/// `adopt` of namespaces and clusters.
mod adopt;

/// `rename` and `replace` of clusters.
mod rename;

/// `takeover` of KubeFed.
mod takeover_kubefed;

/// `doctor`, with one failure of the server or a member injected at a time.
mod doctor;

/// `history` and `undo` of moves.
mod history;

/// Exit codes, and how errors begin.
mod exit_codes;

/// Completion with live names, in the protocols of shells and of kubectl.
mod completion;

/// The examples of all commands: that there are some, and that a test runs them.
mod examples;

/// `addons` that are listed, enabled and disabled.
mod addons;

/// What `up` prints to try next.
mod first_steps;

/// ClusterProfiles through kubectl, and their consumers.
mod cluster_inventory;

/// `mcp`, over its standard streams.
mod mcp;

/// `drain` of clusters.
mod drain;

/// `orphan`: templates whose objects outlive them.
mod orphan;

/// `rebalance` of templates.
mod rebalance;

/// `rollout` of staged templates.
mod rollout;

/// The windows of staged templates.
mod rollout_windows;

/// Karmada's user guide, followed alone.
mod guide;

/// The families of that guide, and their effects.
pub(crate) mod guide_families;

/// Waits of kubectl and Helm for templates.
mod readiness;

/// `console`, which serves pages.
mod console;

/// `console` for users with tokens of their own.
mod console_users;
