//! Automatic failover, which is not Karmada's: a policy with the annotation
//! `flotilla.io/failover: auto` has what is on a cluster that stays not Ready brought
//! elsewhere, whichever feature gates are open.
//!
//! Replacements come first: the old copy stays, under a task with `suppressDeletion`
//! that the graceful eviction controller leaves alone, until they are healthy. If the
//! cluster is Ready again before that, everything is as it was.

mod decide;
#[cfg(test)]
mod properties;
mod shell;

pub(super) use shell::Controller;

#[cfg(test)]
mod tests;
