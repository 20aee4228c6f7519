//! The command `flotilla man`, which prints manual pages.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Args, Command};
use clap_mangen::Man;

use crate::output;

/// Print the manual page of a command, or write those of all commands into a directory.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flotilla man serve\n  flotilla man token create\n  flotilla man --output-dir man1"
)]
pub struct ManArgs {
    /// The command; without one, flotilla itself.
    #[arg(value_name = "COMMAND", conflicts_with = "output_dir")]
    commands: Vec<String>,
    /// The directory for the pages of all commands; it is created if it is missing.
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,
}

pub fn run(arguments: &ManArgs, command_line: Command) -> anyhow::Result<()> {
    if let Some(dir) = &arguments.output_dir {
        std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        return clap_mangen::generate_to(command_line, dir)
            .with_context(|| format!("the manual pages in {}", dir.display()));
    }
    let mut page = Vec::new();
    Man::new(find_command(command_line, &arguments.commands)?).render(&mut page)?;
    output::print_line(String::from_utf8(page)?.trim_end());
    Ok(())
}

/// The command that these words name.
fn find_command(mut command_line: Command, words: &[String]) -> anyhow::Result<Command> {
    // It gives each command its whole name, and defines flags that are defined when they are needed.
    command_line.build();
    let mut command = &command_line;
    for word in words {
        let Some(subcommand) = command.find_subcommand(word) else {
            bail!("there is no command {:?}", words.join(" "));
        };
        command = subcommand;
    }
    Ok(command.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command_line() -> Command {
        let create = Command::new("create").about("Create a token");
        Command::new("flotilla").subcommand(Command::new("token").subcommand(create))
    }

    #[test]
    fn a_command_is_found_by_its_words() {
        let words = ["token", "create"].map(str::to_owned);
        let command = find_command(command_line(), &words).unwrap();
        assert_eq!(command.get_display_name(), Some("flotilla-token-create"));
        let unknown = find_command(command_line(), &["tokens".to_owned()]);
        let message = unknown.unwrap_err().to_string();
        assert_eq!(message, "there is no command \"tokens\"");
    }

    #[test]
    fn each_command_has_a_page() {
        let dir = std::env::temp_dir().join(format!("flotilla-man-{}", std::process::id()));
        let arguments = ManArgs {
            commands: Vec::new(),
            output_dir: Some(dir.clone()),
        };
        run(&arguments, command_line()).unwrap();
        let page = std::fs::read_to_string(dir.join("flotilla-token-create.1")).unwrap();
        let files = std::fs::read_dir(&dir).unwrap().count();
        std::fs::remove_dir_all(&dir).unwrap();
        assert!(page.contains("Create a token"), "{page}");
        assert_eq!(files, 3);
    }
}
