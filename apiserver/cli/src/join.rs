//! The command `flotilla join`, which registers a cluster in push mode.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use client::remote::{ImpersonationConfig, RemoteApi, RestConfig, TlsVerificationExceptions};
use client::{Api, ShutdownToken, TaskGroup};
use clusters::{JoinSpec, PreflightCheck, join_preflight};
use karmada_api::tls_validations::DisabledTlsValidations;
use karmada_api::well_known_keys::DISABLED_TLS_VALIDATIONS;

use crate::kubeconfig_flags::{ControlPlaneFlags, KubeconfigArgs, load_cluster_config};
use crate::output;

/// Ignores every failure of the checks before a join.
const ALL_CHECKS: &str = "all";

/// Register a cluster to the control plane with Push mode.
#[derive(Args)]
#[command(
    after_help = "Example:\n  flotilla join m1 --cluster-kubeconfig m1.kubeconfig --cluster-region eu"
)]
pub struct JoinArgs {
    /// The name of the cluster.
    name: String,
    /// Path of the cluster's kubeconfig; $KUBECONFIG or ~/.kube/config by default.
    #[arg(long, value_name = "FILE")]
    cluster_kubeconfig: Option<PathBuf>,
    /// Context name of the cluster's kubeconfig; the current context by default.
    #[arg(long, value_name = "CONTEXT")]
    cluster_context: Option<String>,
    #[command(flatten)]
    control: KubeconfigArgs<ControlPlaneFlags>,
    #[command(flatten)]
    impersonation: ImpersonationArgs,
    /// Namespace in the control plane and in the cluster where secrets are stored.
    #[arg(long, default_value = "karmada-cluster")]
    cluster_namespace: String,
    /// Provider of the joining cluster.
    #[arg(long, value_name = "NAME")]
    cluster_provider: Option<String>,
    /// The region of the joining cluster.
    #[arg(long, value_name = "NAME")]
    cluster_region: Option<String>,
    /// The zones of the joining cluster.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    cluster_zones: Vec<String>,
    /// Checks whose failures are shown as warnings, as in "ClockSkew,Version"; "all" ignores
    /// the failures of all checks.
    #[arg(long, value_name = "CHECK,...", value_delimiter = ',', value_parser = check_name)]
    ignore_preflight_errors: Vec<String>,
    /// Parts of the verification of the cluster's certificate to leave out: SubjectName,
    /// ValidityPeriod, or both. The chain to the authority is verified.
    #[arg(long, value_name = "PART,...", value_parser = DisabledTlsValidations::parse)]
    disable_tls_validation: Option<DisabledTlsValidations>,
    /// Run the command in dry-run mode, without making any server requests that write.
    #[arg(long)]
    dry_run: bool,
}

/// The user as whom the control plane is asked.
#[derive(Args)]
struct ImpersonationArgs {
    /// Username to impersonate in the control plane: a user, or a service account in a
    /// namespace.
    #[arg(long, value_name = "USER")]
    karmada_as: Option<String>,
    /// Group to impersonate in the control plane; may be repeated.
    #[arg(long, value_name = "GROUP", requires = "karmada_as")]
    karmada_as_group: Vec<String>,
    /// UID to impersonate in the control plane.
    #[arg(long, value_name = "UID", requires = "karmada_as")]
    karmada_as_uid: Option<String>,
}

fn check_name(text: &str) -> Result<String, String> {
    let has_name = |check: &PreflightCheck| check.name().eq_ignore_ascii_case(text);
    if text.eq_ignore_ascii_case(ALL_CHECKS) || PreflightCheck::ALL.iter().any(has_name) {
        return Ok(text.to_owned());
    }
    let names = PreflightCheck::ALL.map(PreflightCheck::name).join(", ");
    Err(format!("the checks are {names}, and {ALL_CHECKS}"))
}

pub async fn run(arguments: JoinArgs) -> anyhow::Result<()> {
    let tasks = TaskGroup::new(ShutdownToken::new());
    let joined = Box::pin(join(&arguments, &tasks)).await;
    tasks.stop().await;
    joined?;
    output::print_line(format!(
        "cluster({}) is joined successfully{}",
        arguments.name,
        if arguments.dry_run { " (dry run)" } else { "" }
    ));
    Ok(())
}

async fn join(arguments: &JoinArgs, tasks: &TaskGroup) -> anyhow::Result<()> {
    clusters::check_cluster_name(&arguments.name)?;
    let mut control = arguments.control.load_config()?;
    control.impersonate = arguments.impersonation.config().or(control.impersonate);
    let control = RemoteApi::new(control, tasks)?;
    let file = arguments.cluster_kubeconfig.as_deref();
    let mut member = load_cluster_config(file, arguments.cluster_context.clone())?;
    if let Some(disabled) = arguments.disable_tls_validation {
        member.tls_exceptions = TlsVerificationExceptions {
            subject_name: disabled.subject_name,
            validity_period: disabled.validity_period,
        };
    }
    let spec = arguments.spec(&member)?;
    let member = RemoteApi::new(member, tasks)?;
    arguments.check(&control, &member, &spec).await?;
    let progress = |text: &str| output::print_progress(text);
    Box::pin(clusters::join(&control, &member, &spec, &progress)).await?;
    Ok(())
}

impl ImpersonationArgs {
    fn config(&self) -> Option<ImpersonationConfig> {
        Some(ImpersonationConfig {
            user: self.karmada_as.clone()?,
            uid: self.karmada_as_uid.clone().unwrap_or_default(),
            groups: self.karmada_as_group.clone(),
            ..ImpersonationConfig::default()
        })
    }
}

impl JoinArgs {
    fn spec(&self, member: &RestConfig) -> anyhow::Result<JoinSpec> {
        let spec = JoinSpec::for_member(&self.name, member).map_err(anyhow::Error::msg)?;
        Ok(JoinSpec {
            namespace: self.cluster_namespace.clone(),
            provider: self.cluster_provider.clone(),
            region: self.cluster_region.clone(),
            zones: self.cluster_zones.clone(),
            annotations: self.annotations(),
            // A name that nobody verifies need not be that of the endpoint.
            tls_server_name: spec.tls_server_name.filter(|_| !self.skips_subject_name()),
            dry_run: self.dry_run,
            ..spec
        })
    }

    fn skips_subject_name(&self) -> bool {
        self.disable_tls_validation
            .is_some_and(|disabled| disabled.subject_name)
    }

    /// The annotations of the Cluster.
    fn annotations(&self) -> BTreeMap<String, String> {
        let disabled = self.disable_tls_validation.iter();
        let disabled = disabled.map(|parts| (DISABLED_TLS_VALIDATIONS.to_owned(), parts.to_text()));
        disabled.collect()
    }

    /// Fails if a check fails that is not ignored.
    async fn check(
        &self,
        control: &dyn Api,
        member: &dyn Api,
        spec: &JoinSpec,
    ) -> anyhow::Result<()> {
        output::print_progress("[preflight] Running pre-flight checks");
        let report = Box::pin(join_preflight(control, member, spec)).await;
        let (ignored, fatal): (Vec<_>, Vec<_>) = report
            .failures
            .into_iter()
            .partition(|failure| self.is_ignored(failure.check));
        let ignored = ignored.iter().map(ToString::to_string);
        for warning in report.warnings.into_iter().chain(ignored) {
            output::print_progress(format!("\t[WARNING]: {warning}"));
        }
        if fatal.is_empty() {
            return Ok(());
        }
        let lines: Vec<String> = fatal.iter().map(|failure| format!("\t{failure}")).collect();
        bail!(
            "error execution phase preflight: [preflight] Some fatal errors occurred:\n{}\n[preflight] If you know what you are doing, you can make a check non-fatal with `--ignore-preflight-errors=...`",
            lines.join("\n")
        )
    }

    fn is_ignored(&self, check: PreflightCheck) -> bool {
        let ignored = |name: &String| {
            name.eq_ignore_ascii_case(ALL_CHECKS) || name.eq_ignore_ascii_case(check.name())
        };
        self.ignore_preflight_errors.iter().any(ignored)
    }
}
