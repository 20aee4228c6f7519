//! The image that the manifests name by default: that of this version.

/// As in `manifests/install/flotilla.yaml` and in the values of the charts.
pub(crate) const DEFAULT_IMAGE: &str = concat!("flotilla:", env!("CARGO_PKG_VERSION"));
