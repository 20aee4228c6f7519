//! The document of `/version`.

use serde_json::{Value, json};

/// The Kubernetes version that the server is compatible with, and its own build.
#[derive(Clone, Debug, Default)]
pub struct VersionInfo {
    pub major: String,
    pub minor: String,
    /// `vX.Y.Z+flotilla.V`; clients parse it as a semantic version.
    pub git_version: String,
    pub git_commit: String,
    /// RFC 3339.
    pub build_date: String,
    /// `linux/amd64`
    pub platform: String,
}

impl VersionInfo {
    /// Builds `v1.36.0+flotilla.0.1.0` and the like, with this machine's platform.
    pub fn new(major: &str, minor: &str, crate_version: &str) -> Self {
        let os = match std::env::consts::OS {
            "macos" => "darwin",
            other => other,
        };
        let arch = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        Self {
            major: major.into(),
            minor: minor.into(),
            git_version: format!("v{major}.{minor}.0+flotilla.{crate_version}"),
            git_commit: "unknown".into(),
            build_date: "1970-01-01T00:00:00Z".into(),
            platform: format!("{os}/{arch}"),
        }
    }

    /// The document of `/version`.
    pub fn to_json(&self) -> Value {
        json!({
            "major": self.major,
            "minor": self.minor,
            "emulationMajor": self.major,
            "emulationMinor": self.minor,
            "minCompatibilityMajor": self.major,
            "minCompatibilityMinor": self.minor,
            "gitVersion": self.git_version,
            "gitCommit": self.git_commit,
            "gitTreeState": "clean",
            "buildDate": self.build_date,
            // Required fields that clients only display.
            "goVersion": "none",
            "compiler": "rustc",
            "platform": self.platform,
        })
    }
}
