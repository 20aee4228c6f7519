//! Writes the candidates for a word in the format that the script of a shell reads.

use std::ffi::OsString;
use std::io::{Error, Write};
use std::path::Path;

use clap::Command;
use clap_complete::engine::{self, CompletionCandidate};
use clap_complete::env::EnvCompleter;

use super::words::CompletedWords;

/// Set by the scripts of bash, zsh and elvish: what they split the answer at.
const SEPARATOR_VARIABLE: &str = "_CLAP_IFS";

/// A shell with the script of `clap_complete`, and answers of our own: for words that bash has
/// split, and without flags where no dash is typed, as kubectl completes.
pub(super) struct ScriptCompleter<'a> {
    pub(super) script: &'a dyn EnvCompleter,
    pub(super) words: &'a CompletedWords,
}

impl EnvCompleter for ScriptCompleter<'_> {
    fn name(&self) -> &'static str {
        self.script.name()
    }

    fn is(&self, name: &str) -> bool {
        self.script.is(name)
    }

    fn write_registration(
        &self,
        variable: &str,
        name: &str,
        binary: &str,
        completer: &str,
        script: &mut dyn Write,
    ) -> Result<(), Error> {
        self.script
            .write_registration(variable, name, binary, completer, script)
    }

    fn write_complete(
        &self,
        command_line: &mut Command,
        _: Vec<OsString>,
        current_dir: Option<&Path>,
        answer: &mut dyn Write,
    ) -> Result<(), Error> {
        let words = self.words;
        let candidates =
            engine::complete(command_line, words.words.clone(), words.index, current_dir)?;
        let is_flag_typed = words.current().to_string_lossy().starts_with('-');
        let lines = candidates.iter().filter_map(|candidate| {
            let value = candidate.get_value().to_string_lossy();
            if value.starts_with('-') && !is_flag_typed {
                return None;
            }
            let value = value.strip_prefix(&words.joined_prefix).unwrap_or(&value);
            Some(format_candidate(self.script.name(), value, candidate))
        });
        let lines: Vec<String> = lines.collect();
        let separator = std::env::var(SEPARATOR_VARIABLE).unwrap_or_else(|_| "\n".to_owned());
        answer.write_all(lines.join(&separator).as_bytes())?;
        match self.script.name() {
            "fish" | "powershell" if !lines.is_empty() => answer.write_all(b"\n"),
            _ => Ok(()),
        }
    }
}

/// The candidate, with the first line of its help where the shell shows it.
fn format_candidate(shell: &str, value: &str, candidate: &CompletionCandidate) -> String {
    let help = candidate.get_help().map(ToString::to_string);
    let help = help.as_deref().and_then(|help| help.lines().next());
    let escape = |text: &str| text.replace('\\', "\\\\");
    match (shell, help) {
        ("zsh", None) => escape(value).replace(':', "\\:"),
        ("zsh", Some(help)) => format!("{}:{}", escape(value).replace(':', "\\:"), escape(help)),
        ("fish" | "powershell", Some(help)) => format!("{value}\t{help}"),
        _ => value.to_owned(),
    }
}
