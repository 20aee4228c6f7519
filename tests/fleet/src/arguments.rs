//! The arguments of the benchmark.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context, bail};

use crate::sizes::{FleetSize, SIZES};

/// The size to measure, and the server.
pub struct FleetArguments {
    pub size: &'static FleetSize,
    /// The binary under test.
    pub server: PathBuf,
    /// Further flags of it.
    pub flags: Vec<String>,
    /// Whether the server is killed in the middle of the rollout.
    pub kill: bool,
}

impl FleetArguments {
    /// Parses arguments; `server` is the binary under test without `--server`. `None`: help is asked
    /// for.
    pub fn parse(
        arguments: impl Iterator<Item = String>,
        server: &str,
    ) -> anyhow::Result<Option<Self>> {
        let mut parsed = (None, PathBuf::from(server), false);
        let mut flags = Vec::new();
        for argument in arguments {
            match argument.as_str() {
                "--help" => return Ok(None),
                "--kill" => parsed.2 = true,
                // cargo passes it to every benchmark.
                "--bench" => {}
                other => match other.split_once('=') {
                    Some(("--server", path)) => parsed.1 = path.into(),
                    Some(("--flag", flag)) => flags.push(flag.to_owned()),
                    _ if other.starts_with('-') => bail!("unknown argument {other}"),
                    _ => parsed.0 = Some(FleetSize::find(other).context("unknown size")?),
                },
            }
        }
        let (size, server, kill) = parsed;
        let size = size.context("no size")?;
        if kill && size.is_staged {
            bail!("--kill does not apply to {}", size.name);
        }
        Ok(Some(Self {
            size,
            server,
            flags,
            kill,
        }))
    }

    /// The text of `--help`.
    pub fn help() -> String {
        let mut text = "cargo bench -p flotilla --bench fleet -- SIZE [--kill] [--server=PATH] [--flag=FLAG]\n\n\
                        --kill         ends the server with SIGKILL in the middle, and starts it again\n\
                        --server=PATH  measures this binary\n\
                        --flag=FLAG    starts it with this flag, such as --flag=--etcd-servers=URL\n\nSizes:\n"
            .to_owned();
        for size in &SIZES {
            let _ = writeln!(text, "  {:<13} {}", size.name, size.description);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_name_a_size_and_a_server() {
        let parse = |text: &str| {
            let arguments = text.split(' ').map(str::to_owned);
            let parsed = FleetArguments::parse(arguments, "/own");
            parsed.map(|parsed| parsed.map(|a| (a.size.name, a.server, a.kill)))
        };
        let own = ("smoke", PathBuf::from("/own"), false);
        assert_eq!(parse("smoke --bench").unwrap(), Some(own));
        let other = ("300x3", PathBuf::from("/other"), true);
        assert_eq!(parse("--kill --server=/other 300x3").unwrap(), Some(other));
        let flags = ["--flag=--etcd-servers=http://a", "300x3"].map(str::to_owned);
        let parsed = FleetArguments::parse(flags.into_iter(), "/own").unwrap();
        assert_eq!(parsed.unwrap().flags, ["--etcd-servers=http://a"]);
        assert_eq!(parse("--help").unwrap(), None);
        for wrong in ["3", "--kill", "smoke --quick", "rollout --kill"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(FleetArguments::help().contains("1000x100"));
    }
}
