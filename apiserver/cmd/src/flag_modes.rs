//! The modes of `flotilla serve` in which each flag has an effect. A flag that is set in
//! another mode is an error, so that no operator relies on it.

use std::collections::BTreeSet;

use anyhow::bail;
use clap::builder::ArgExt;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

/// The mode in which a flag has an effect: part of the flag's definition. A flag without it has
/// an effect in every mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EffectiveMode {
    /// Only in a standalone server.
    Standalone,
    /// Only behind another API server.
    BehindHost,
    /// Only with leader election.
    LeaderElection,
}

impl ArgExt for EffectiveMode {}

/// The mode in which `serve` runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServeModeFlags {
    pub(crate) behind_host: bool,
    pub(crate) leader_elect: bool,
}

/// The ids of the flags that are set on the command line. It must be the first field of
/// the arguments, since clap moves the values of later fields out of the matches.
pub(crate) struct ExplicitFlagIds(BTreeSet<String>);

impl FromArgMatches for ExplicitFlagIds {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let ids = matches.ids().map(clap::Id::as_str);
        let set = ids.filter(|id| matches.value_source(id) == Some(ValueSource::CommandLine));
        Ok(Self(set.map(str::to_owned).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for ExplicitFlagIds {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl ExplicitFlagIds {
    /// Fails for the first flag of a command's `Flags` that has no effect in a mode.
    pub(crate) fn check<Flags: Args>(&self, mode: ServeModeFlags) -> anyhow::Result<()> {
        let command = Flags::augment_args(Command::new(""));
        let mut explicit = command.get_arguments().filter(|flag| self.contains(flag));
        let unmet = explicit.find_map(|flag| {
            let condition = flag.get::<EffectiveMode>()?.unmet_condition(mode)?;
            Some((flag.get_long()?, condition))
        });
        match unmet {
            Some((name, condition)) => bail!("--{name} has an effect only {condition}"),
            None => Ok(()),
        }
    }

    fn contains(&self, flag: &Arg) -> bool {
        self.0.contains(flag.get_id().as_str())
    }
}

impl EffectiveMode {
    /// The condition under which a flag has an effect, if it has none in this mode.
    fn unmet_condition(self, mode: ServeModeFlags) -> Option<&'static str> {
        let (acts, condition) = match self {
            Self::Standalone => (
                !mode.behind_host,
                "when Flotilla serves alone, without --kubeconfig and --in-cluster",
            ),
            Self::BehindHost => (
                mode.behind_host,
                "behind another API server (--kubeconfig or --in-cluster)",
            ),
            Self::LeaderElection => (
                mode.leader_elect,
                "with leader election (--etcd-servers or --leader-elect)",
            ),
        };
        (!acts).then_some(condition)
    }
}
