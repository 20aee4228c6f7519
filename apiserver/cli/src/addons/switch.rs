//! The commands `flotilla addons enable` and `flotilla addons disable`.

use std::io::BufRead;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use client::{ShutdownToken, TaskGroup};
use karmada_api::addons::{Addon, AddonStatus, DISABLED, ENABLED};
use machinery::duration;

use super::config_map::AddonsConfigMap;
use super::names::addons_of;
use super::server_flags::AddonsServerArgs;
use crate::output;

/// Enable addons of a running control plane.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flotilla addons enable all\n  flotilla addons enable karmada-search karmada-descheduler"
)]
pub(super) struct EnableAddonsArgs {
    #[command(flatten)]
    switch: SwitchAddonsArgs,
}

/// Disable addons of a running control plane. What they have made stays.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  flotilla addons disable all --force\n  flotilla addons disable karmada-search karmada-descheduler -f"
)]
pub(super) struct DisableAddonsArgs {
    #[command(flatten)]
    switch: SwitchAddonsArgs,
    /// Disable addons without prompting for confirmation.
    #[arg(short, long)]
    force: bool,
}

#[derive(Args)]
struct SwitchAddonsArgs {
    /// The names of the addons, or all.
    #[arg(value_name = "ADDON")]
    names: Vec<String>,
    #[command(flatten)]
    server: AddonsServerArgs,
    /// How long to wait until the server has acted, as in 30s or 2m.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration::parse)]
    timeout: Duration,
    /// Run the command in dry-run mode, without making any server requests that write.
    #[arg(long)]
    dry_run: bool,
}

pub(super) async fn enable(arguments: EnableAddonsArgs) -> anyhow::Result<()> {
    let addons = addons_of(&arguments.switch.names)?;
    arguments.switch.run(&addons, true).await
}

pub(super) async fn disable(arguments: DisableAddonsArgs) -> anyhow::Result<()> {
    let addons = addons_of(&arguments.switch.names)?;
    let names = arguments.switch.names.join(" ");
    output::print_line(format!("Disable Karmada addon [{names}]"));
    if !arguments.force && !arguments.switch.dry_run && !confirm(std::io::stdin().lock())? {
        return Ok(());
    }
    arguments.switch.run(&addons, false).await
}

/// Asks until the answer is yes or no.
fn confirm(mut input: impl BufRead) -> anyhow::Result<bool> {
    loop {
        output::print_line("Please type (y)es or (n)o and then press enter:");
        let mut line = String::new();
        if input.read_line(&mut line)? == 0 {
            bail!("no answer; --force disables without asking");
        }
        match line.trim().to_lowercase().as_str() {
            "y" | "yes" => return Ok(true),
            "n" | "no" => return Ok(false),
            _ => {}
        }
    }
}

/// Why the addons are not all as desired, by what the server reports; empty if they are.
fn differences(addons: &[Addon], desired: &str, statuses: &[AddonStatus]) -> Vec<String> {
    let differs = |addon: &Addon| {
        let reported_status = statuses.iter().find(|status| status.name == addon.name());
        match reported_status {
            Some(status) if status.status == desired => None,
            Some(status) => Some(format!("{addon} is {}", status.status)),
            None => Some(format!("{addon} is not reported")),
        }
    };
    addons.iter().filter_map(differs).collect()
}

impl SwitchAddonsArgs {
    async fn run(&self, addons: &[Addon], enabled: bool) -> anyhow::Result<()> {
        let tasks = TaskGroup::new(ShutdownToken::new());
        let outcome = self.switch(addons, enabled, &tasks).await;
        tasks.stop().await;
        outcome
    }

    async fn switch(
        &self,
        addons: &[Addon],
        enabled: bool,
        tasks: &TaskGroup,
    ) -> anyhow::Result<()> {
        let verb = if enabled { "enable" } else { "disable" };
        let map = AddonsConfigMap::connect(&self.server, tasks).await?;
        for addon in addons {
            output::print_progress(format!("Start to {verb} addon {addon}"));
        }
        map.set_states(addons, enabled, self.dry_run)
            .await
            .with_context(|| format!("ConfigMap {}/flotilla-addons", map.namespace))?;
        if !self.dry_run {
            self.wait(&map, addons, enabled).await?;
        }
        let dry_run = if self.dry_run { " (dry run)" } else { "" };
        for addon in addons {
            output::print_line(format!("Successfully {verb} addon {addon}{dry_run}"));
        }
        Ok(())
    }

    /// Waits until the server reports that it has acted.
    async fn wait(
        &self,
        map: &AddonsConfigMap,
        addons: &[Addon],
        enabled: bool,
    ) -> anyhow::Result<()> {
        let desired = if enabled { ENABLED } else { DISABLED };
        let mut left = differences(addons, desired, &[]);
        let watching = map.watch_statuses(|statuses| {
            left = differences(addons, desired, &statuses);
            left.is_empty()
        });
        match tokio::time::timeout(self.timeout, watching).await {
            Ok(watched) => watched,
            Err(_) => bail!(
                "the server has not acted within {} s: {}",
                self.timeout.as_secs_f64(),
                left.join(", ")
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_clear_answer_counts() {
        for (input, expected) in [
            ("y\n", Some(true)),
            ("maybe\nYES\n", Some(true)),
            ("no\n", Some(false)),
            ("\n", None),
        ] {
            assert_eq!(confirm(input.as_bytes()).ok(), expected, "{input:?}");
        }
    }

    #[test]
    fn what_the_server_has_not_done_is_named() {
        let status = |name: &str, status: &str| AddonStatus {
            name: name.to_owned(),
            status: status.to_owned(),
            reason: String::new(),
            message: String::new(),
        };
        let reported = [
            status("karmada-search", "enabled"),
            status("flotilla-autoscalers", "unhealthy"),
        ];
        let left = |addons: &[Addon]| differences(addons, ENABLED, &reported);
        assert!(left(&[Addon::Search]).is_empty());
        assert_eq!(
            left(&[Addon::Autoscalers, Addon::Search, Addon::Descheduler]),
            [
                "flotilla-autoscalers is unhealthy",
                "karmada-descheduler is not reported"
            ]
        );
    }
}
