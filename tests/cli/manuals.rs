//! The manuals name commands and flags that exist: in blocks of shell commands, and in spans of code.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cli::fixture::{BINARY, run_command};

/// Folders at the top of the repository that have manuals.
const FOLDERS: [&str; 5] = ["apiserver", "controllers", "manifests", "openapi", "tests"];
/// A command that a manual adds as an example.
const EXAMPLE: &str = "cluster-names";
/// Flags of other programs that a manual names without the program.
const FOREIGN_FLAGS: [&str; 6] = [
    "allow-privileged",
    "edit",
    "kube-api-burst",
    "kube-api-qps",
    "master",
    "parallelism",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn manuals() -> BTreeMap<String, String> {
    let mut folders: Vec<PathBuf> = FOLDERS.iter().map(|f| root().join(f)).collect();
    let mut files = vec![root().join("README.md")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "md") {
                files.push(path);
            }
        }
    }
    let named = files.iter();
    named
        .map(|path| {
            let text = std::fs::read_to_string(path).unwrap();
            (path.display().to_string(), text)
        })
        .collect()
}

/// The commands of a manual: lines of its shell blocks, and spans of code.
fn commands(text: &str) -> Vec<String> {
    let (mut commands, mut prose) = (Vec::new(), String::new());
    let mut block: Option<&str> = None;
    for line in text.replace("\\\n", " ").lines() {
        let fence = line.trim_start().strip_prefix("```");
        match (fence, block) {
            (Some(_), Some(_)) => block = None,
            (Some("sh"), None) => block = Some(""),
            (Some("console"), None) => block = Some("$ "),
            (Some(_), None) => block = Some("none of the lines"),
            (None, Some(prompt)) => {
                let line = line.split(" # ").next().unwrap_or_default();
                commands.extend(line.strip_prefix(prompt).map(str::to_owned));
            }
            (None, None) => prose = prose + line + "\n",
        }
    }
    let spans = prose.split('`').skip(1).step_by(2);
    commands.extend(spans.map(|span| span.replace('\n', " ")));
    let parts = commands.iter().flat_map(|line| line.split(" | "));
    parts.map(|part| part.trim().to_owned()).collect()
}

/// The arguments of a command line that runs the binary.
fn arguments(command: &str) -> Option<Vec<&str>> {
    let words: Vec<&str> = command.split_whitespace().collect();
    match words.as_slice() {
        ["flotilla", arguments @ ..] => Some(arguments.to_vec()),
        ["cargo", "run", ..] => {
            let at = words.iter().position(|word| *word == "--")?;
            Some(words[at + 1..].to_vec())
        }
        _ => None,
    }
}

/// The names of the flags among words.
fn flags(words: &[&str]) -> BTreeSet<String> {
    let long = words.iter().filter_map(|word| word.strip_prefix("--"));
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let names = long.map(|flag| flag.chars().take_while(|c| is_name(*c)).collect::<String>());
    names
        .filter(|name| name.len() > 1 && !name.ends_with('-'))
        .collect()
}

/// Each command of the binary, as its words with blanks, with the flags that its help names.
fn known_commands() -> BTreeMap<String, BTreeSet<String>> {
    let (mut flags_by_command, mut open) = (BTreeMap::new(), vec![String::new()]);
    while let Some(command) = open.pop() {
        let mut help = Command::new(BINARY);
        help.args(command.split_whitespace()).arg("--help");
        let help = run_command(&help).succeeded();
        let subcommands = help
            .lines()
            .skip_while(|line| !line.starts_with("Commands:"))
            .skip(1)
            .take_while(|line| line.starts_with("  "))
            .filter(|line| !line.starts_with("   "))
            .filter_map(|line| line.split_whitespace().next());
        let subcommands = subcommands.filter(|name| *name != "help");
        open.extend(subcommands.map(|name| format!("{command} {name}").trim().to_owned()));
        let words: Vec<&str> = help.split([' ', '\n', '`', '[', ',', '(']).collect();
        flags_by_command.insert(command, flags(&words));
    }
    flags_by_command
}

/// The longest beginning of the arguments that is a command.
fn command_of<'a>(
    arguments: &[&str],
    flags_by_command: &'a BTreeMap<String, BTreeSet<String>>,
) -> (&'a str, &'a BTreeSet<String>) {
    let lengths = (0..=arguments.len()).rev();
    let mut beginnings =
        lengths.filter_map(|n| flags_by_command.get_key_value(&arguments[..n].join(" ")));
    let (command, flags) = beginnings.next().unwrap();
    (command, flags)
}

#[test]
fn manuals_name_commands_and_flags_that_exist() {
    let flags_by_command = known_commands();
    let all: BTreeSet<&String> = flags_by_command.values().flatten().collect();
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for (file, text) in manuals() {
        for command in commands(&text) {
            if let Some(arguments) = arguments(&command) {
                let (name, allowed) = command_of(&arguments, &flags_by_command);
                let takes_none = name.is_empty() && !arguments.is_empty();
                if takes_none && !arguments[0].starts_with('-') && arguments[0] != EXAMPLE {
                    wrong.push(format!("{file}: no such command: {command}"));
                }
                let missing = flags(&arguments);
                let missing = missing.difference(allowed);
                wrong.extend(missing.map(|flag| format!("{file}: no --{flag}: {command}")));
                checked += 1;
            } else if command.starts_with("--") {
                let words: Vec<&str> = command.split_whitespace().collect();
                let missing = flags(&words).into_iter().filter(|flag| !all.contains(flag));
                let missing = missing.filter(|flag| !FOREIGN_FLAGS.contains(&flag.as_str()));
                wrong.extend(missing.map(|flag| format!("{file}: no --{flag} anywhere")));
                checked += 1;
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(checked > 100, "{checked}");
}
