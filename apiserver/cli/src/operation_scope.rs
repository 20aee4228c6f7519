//! The flags that select the control plane or member clusters (`--operation-scope`,
//! `--cluster`), as karmadactl has them.

use anyhow::bail;

/// Where a command works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OperationScope {
    /// The control plane.
    Karmada,
    /// Member clusters.
    Members,
    /// The control plane and member clusters.
    All,
}

impl OperationScope {
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        match text {
            "karmada" => Ok(Self::Karmada),
            "members" => Ok(Self::Members),
            "all" => Ok(Self::All),
            _ => bail!("not support OperationScope: {text}"),
        }
    }

    /// The scope that the flags ask for: names of clusters without a scope ask for
    /// members. karmadactl ignores the names then.
    pub(crate) fn resolve(scope: Option<Self>, has_clusters: bool) -> anyhow::Result<Self> {
        match (scope, has_clusters) {
            (Some(Self::Karmada), true) => {
                bail!("clusters cannot be given with --operation-scope=karmada; leave one out")
            }
            (Some(scope), _) => Ok(scope),
            (None, true) => Ok(Self::Members),
            (None, false) => Ok(Self::Karmada),
        }
    }

    pub(crate) fn has_control_plane(self) -> bool {
        self != Self::Members
    }

    pub(crate) fn has_members(self) -> bool {
        self != Self::Karmada
    }
}
