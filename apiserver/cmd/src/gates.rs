//! The flag by which optional behaviour is switched, the same wherever it stands.

use clap::Args;
use openapi::karmada::FeatureGates;

#[derive(Args, Clone, Copy)]
#[group(id = "gates")]
pub(crate) struct Flags {
    /// Optional behaviour to switch on or off, by Karmada's names: Name=true,Other=false;
    /// AllAlpha and AllBeta stand for what is not named.
    #[arg(
        long,
        value_name = "GATES",
        default_value = "",
        hide_default_value = true
    )]
    pub(crate) feature_gates: FeatureGates,
}
