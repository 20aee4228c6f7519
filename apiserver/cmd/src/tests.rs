//! Tests of the definitions of flags: their headings, the modes in which they have an effect, and
//! that the manuals name flags which exist.

use std::path::{Path, PathBuf};

use clap::{Arg, Command, CommandFactory, Parser};

use crate::cli::Cli;
use crate::flag_modes::{EffectiveMode, ExplicitFlagIds, ServeModeFlags};
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
/// Flags of every command.
const COMMON_FLAGS: [&str; 3] = ["verbosity", "help", "version"];
/// Flags of other programs that the manuals name alone.
const FOREIGN_FLAGS: [&str; 8] = [
    "allow-privileged",
    "cluster-signing-duration",
    "edit",
    "kube-api-burst",
    "kube-api-qps",
    "master",
    "parallelism",
    "set",
];
/// A command that a manual adds as an example.
const EXAMPLE_COMMAND: &str = "cluster-names";

fn flotilla() -> Command {
    let mut cli = Cli::command();
    cli.build();
    cli
}

fn flags(command: &Command) -> impl Iterator<Item = &Arg> {
    let all = command.get_arguments();
    all.filter(|flag| !COMMON_FLAGS.contains(&flag.get_id().as_str()))
}

#[test]
fn every_flag_of_a_server_has_a_heading() {
    let headings = |name: &str| {
        let cli = flotilla();
        let mut headings: Vec<String> = Vec::new();
        for flag in flags(cli.find_subcommand(name).unwrap()) {
            let heading = flag.get_help_heading();
            let heading = heading.unwrap_or_else(|| panic!("{name}: {flag} has no heading"));
            if !headings.iter().any(|listed| listed == heading) {
                headings.push(heading.to_owned());
            }
            assert!(flag.get_help().is_some(), "{name}: {flag} has no help");
        }
        headings
    };
    assert_eq!(
        headings("serve"),
        [
            "Generic flags",
            "Secure serving flags",
            "Etcd flags",
            "Auditing flags",
            "Traces flags",
            "Host flags",
            "Authentication flags",
            "Authorization flags",
            "Leader election flags",
            "Resource propagation flags",
            "Cluster and failover flags",
            "Scheduler flags",
            "Scheduler estimator flags",
            "Controller flags",
            "FederatedHPA flags",
            "Staged rollout flags",
            "Interpreter flags",
            "Feature gate flags",
            "Logs flags",
        ]
    );
    assert_eq!(
        headings("agent"),
        [
            "Connection flags",
            "Cluster flags",
            "Certificate rotation flags",
            "Leader election flags",
            "Metrics and health probe flags",
            "Interpreter flags",
            "Feature gate flags",
            "Logs flags",
        ]
    );
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
    let cli = flotilla();
    let command = cli.find_subcommand("serve").unwrap();
    let mut refusals = 0;
    for flag in flags(command) {
        let Some(effective) = flag.get::<EffectiveMode>() else {
            continue;
        };
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
            let fits = match effective {
                EffectiveMode::Standalone => !mode.behind_host,
                EffectiveMode::BehindHost => mode.behind_host,
                EffectiveMode::LeaderElection => mode.leader_elect,
            };
            let checked = line.explicit_flags.check::<ServeArgs>(mode);
            let checked = checked.map_err(|e| e.to_string());
            assert_eq!(checked.is_ok(), fits, "{long} {mode:?}: {checked:?}");
            if let Err(reason) = checked {
                let expected = format!("{long} has an effect only ");
                assert!(reason.starts_with(&expected), "{reason}");
                refusals += 1;
            }
        }
    }
    // Each flag of a mode is refused in two of the four modes.
    assert!(refusals >= 2 * 30, "{refusals}");
    // A flag that is not set is never refused.
    let plain = ServeCommandLine::try_parse_from(["x", "--data-dir", "d"]).unwrap();
    for mode in MODES {
        plain.explicit_flags.check::<ServeArgs>(mode).unwrap();
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

fn collect_manuals(folder: &Path, manuals: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_manuals(&path, manuals);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            manuals.push(path);
        }
    }
}

/// The lines of the blocks of code of a manual, and its spans of code.
fn snippets(text: &str) -> Vec<String> {
    let (mut snippets, mut prose, mut inside_block) = (Vec::new(), String::new(), false);
    for line in text.replace("\\\n", " ").lines() {
        if line.trim_start().starts_with("```") {
            inside_block = !inside_block;
        } else if inside_block {
            snippets.push(line.to_owned());
        } else {
            prose.push_str(line);
            prose.push('\n');
        }
    }
    snippets.extend(prose.split('`').skip(1).step_by(2).map(str::to_owned));
    snippets
}

/// Whether one of the commands has a flag. `--oidc-*` are all flags with that prefix.
fn is_flag(commands: &[&Command], word: &str) -> bool {
    let name = word.trim_start_matches('-');
    let name = name.split(['=', '.', ',']).next().unwrap();
    let is_named = |long: &str| match name.strip_suffix('*') {
        Some(prefix) => long.starts_with(prefix),
        None => long == name,
    };
    let mut all = commands.iter().flat_map(|command| command.get_arguments());
    all.any(|flag| {
        flag.get_long_and_visible_aliases()
            .is_some_and(|longs| longs.into_iter().any(is_named))
    })
}

fn collect_commands<'a>(command: &'a Command, commands: &mut Vec<&'a Command>) {
    commands.push(command);
    for below in command.get_subcommands() {
        collect_commands(below, commands);
    }
}

#[test]
fn manuals_name_commands_and_flags_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut manuals = vec![root.join("README.md")];
    for folder in ["apiserver", "controllers", "manifests", "openapi"] {
        collect_manuals(&root.join(folder), &mut manuals);
    }
    let cli = flotilla();
    let mut all = Vec::new();
    collect_commands(&cli, &mut all);
    let (mut checked, mut wrong) = (0, Vec::new());
    for manual in manuals {
        for snippet in snippets(&std::fs::read_to_string(&manual).unwrap()) {
            let words: Vec<&str> = snippet.split_whitespace().collect();
            let words = words.strip_prefix(&["$"]).unwrap_or(&words);
            let mut command = &cli;
            let commands = match words.first() {
                Some(&"flotilla") => {
                    let mut rest = words.iter().skip(1);
                    while let Some(below) = rest.next().and_then(|w| command.find_subcommand(w)) {
                        command = below;
                    }
                    let argument = words.get(1).copied().unwrap_or("-");
                    let is_command = command.get_name() != cli.get_name()
                        || argument.starts_with('-')
                        || argument == EXAMPLE_COMMAND;
                    if !is_command {
                        wrong.push(format!("{}: no such command: {snippet}", manual.display()));
                    }
                    vec![command]
                }
                // A line of three dashes separates documents of YAML.
                Some(word) if word.starts_with("--") && *word != "---" => all.clone(),
                _ => continue,
            };
            for word in words
                .iter()
                .filter(|word| word.len() > 2 && word.starts_with("--"))
            {
                checked += 1;
                if !is_flag(&commands, word) && !FOREIGN_FLAGS.contains(&&word[2..]) {
                    wrong.push(format!("{}: {snippet}: {word}", manual.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(checked > 50, "{checked}");
}

#[test]
fn flags_of_karmada_that_a_takeover_compares_are_those_of_serve() {
    let cli = flotilla();
    let serve = cli.find_subcommand("serve").unwrap();
    for (name, default) in flotilla_cli::takeover::karmada_flags::SAME_FLAGS {
        let mut all = serve.get_arguments();
        let flag = all.find(|flag| flag.get_long() == Some(name));
        let flag = flag.unwrap_or_else(|| panic!("--{name}"));
        let values = flag.get_default_values().iter();
        let values: Vec<_> = values.map(|value| value.to_string_lossy()).collect();
        // A flag without a value is off.
        let is_switch = !flag.get_action().takes_values() && default == "false";
        assert!(
            is_switch || values.join(",") == default,
            "--{name}: {values:?}"
        );
    }
}
