//! Tests of the modes in which each flag of `flotilla serve` has an effect.

use std::collections::BTreeSet;

use clap::{Arg, Command, CommandFactory, Parser};

use crate::cli::Cli;
use crate::flag_modes::{ExplicitFlagIds, FLAGS, FlagEffectiveMode, ServeModeFlags};
use crate::serve::ServeArgs;

#[derive(Parser)]
struct ServeCommandLine {
    #[command(flatten)]
    explicit_flags: ExplicitFlagIds,
    #[command(flatten)]
    _serve: ServeArgs,
}

const MODES: [ServeModeFlags; 4] = [
    ServeModeFlags {
        behind_host: false,
        leader_elect: false,
    },
    ServeModeFlags {
        behind_host: false,
        leader_elect: true,
    },
    ServeModeFlags {
        behind_host: true,
        leader_elect: false,
    },
    ServeModeFlags {
        behind_host: true,
        leader_elect: true,
    },
];

fn serve() -> Command {
    let mut cli = Cli::command();
    cli.build();
    cli.find_subcommand("serve").unwrap().clone()
}

#[test]
fn every_flag_has_a_scope() {
    let command = serve();
    let everywhere = ["verbosity", "help", "version"];
    let ids = command.get_arguments().map(|a| a.get_id().as_str());
    let flags: BTreeSet<&str> = ids.filter(|id| !everywhere.contains(id)).collect();
    let classified: BTreeSet<&str> = FLAGS.iter().map(|(id, _)| *id).collect();
    assert_eq!(classified.len(), FLAGS.len(), "a flag is listed twice");
    let new: Vec<_> = flags.difference(&classified).collect();
    assert!(new.is_empty(), "add the scope of these flags: {new:?}");
    let removed: Vec<_> = classified.difference(&flags).collect();
    assert!(removed.is_empty(), "these flags do not exist: {removed:?}");
    for flag in command.get_arguments() {
        let id = flag.get_id().as_str().replace('_', "-");
        if flags.contains(flag.get_id().as_str()) {
            assert_eq!(flag.get_long(), Some(&*id));
        }
    }
}

/// A valid value of a flag.
fn value(flag: &Arg) -> Option<String> {
    if !flag.get_action().takes_values() {
        return None;
    }
    let default = flag.get_default_values().first();
    let possible = || {
        flag.get_possible_values()
            .first()
            .map(|v| v.get_name().to_owned())
    };
    let default = default.map(|v| v.to_string_lossy().into_owned());
    Some(
        default
            .filter(|v| !v.is_empty())
            .or_else(possible)
            .unwrap_or_else(|| "x".into()),
    )
}

#[test]
fn a_flag_is_refused_where_it_has_no_effect() {
    let command = serve();
    let mut refusals = 0;
    for (id, acts) in FLAGS
        .iter()
        .filter(|(_, acts)| *acts != FlagEffectiveMode::Always)
    {
        let flag = command.get_arguments().find(|a| a.get_id() == id).unwrap();
        let long = format!("--{}", flag.get_long().unwrap());
        let argument = match value(flag) {
            Some(value) => format!("{long}={value}"),
            None => long.clone(),
        };
        let line = ServeCommandLine::try_parse_from([
            "x",
            "--data-dir=d",
            "--etcd-servers=http://e",
            &argument,
        ])
        .unwrap();
        for mode in MODES {
            let fits = match acts {
                FlagEffectiveMode::Always => true,
                FlagEffectiveMode::Standalone => !mode.behind_host,
                FlagEffectiveMode::BehindHost => mode.behind_host,
                FlagEffectiveMode::LeaderElection => mode.leader_elect,
            };
            let checked = line.explicit_flags.check(mode).map_err(|e| e.to_string());
            assert_eq!(checked.is_ok(), fits, "{long} {mode:?}: {checked:?}");
            if let Err(why) = checked {
                let expected = format!("{long} has an effect only ");
                assert!(why.starts_with(&expected), "{why}");
                refusals += 1;
            }
        }
    }
    assert!(refusals > 0);
    // A flag that is not set is never refused.
    let plain = ServeCommandLine::try_parse_from(["x", "--data-dir", "d"]).unwrap();
    for mode in MODES {
        plain.explicit_flags.check(mode).unwrap();
    }
}

#[test]
fn flags_of_etcd_require_its_servers() {
    for flag in ["--etcd-prefix=/p", "--etcd-cafile=f", "--etcd-certfile=f"] {
        assert!(
            ServeCommandLine::try_parse_from(["x", "--data-dir", "d", flag]).is_err(),
            "{flag}"
        );
    }
}
