//! The flag `--feature-gates`, which several commands share.

use clap::Args;
use karmada_api::FeatureGates;

#[derive(Args, Clone, Copy)]
#[group(id = "gates")]
#[command(next_help_heading = "Feature gate flags")]
pub struct FeatureGateArgs {
    /// A set of key=value pairs that describe feature gates for alpha/experimental
    /// features, with Karmada's names; AllAlpha and AllBeta set those that are not named.
    #[arg(
        long,
        value_name = "GATES",
        default_value = "",
        hide_default_value = true
    )]
    pub feature_gates: FeatureGates,
}
