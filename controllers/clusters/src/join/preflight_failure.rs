//! The failures of the checks before a join: each with its reason and what to do. Pure.

use std::fmt;
use std::time::Duration;

use client::Error;
use jiff::{SignedDuration, Timestamp};

/// A member may be this many seconds ahead of the control plane, or behind.
const MAX_CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(60);
/// The controllers give a health probe of a member 10 s; a member that takes half of that is
/// not Ready whenever it is busy.
const MAX_RESPONSE_TIME: Duration = Duration::from_secs(5);
/// The oldest version with which Flotilla is tested.
const OLDEST_VERSION: (u32, u32) = (1, 20);

/// The subject of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreflightCheck {
    Reachable,
    Tls,
    Credentials,
    Ready,
    Rights,
    Version,
    ClockSkew,
    Timeouts,
    AlreadyManaged,
}

impl PreflightCheck {
    pub const ALL: [Self; 9] = [
        Self::Reachable,
        Self::Tls,
        Self::Credentials,
        Self::Ready,
        Self::Rights,
        Self::Version,
        Self::ClockSkew,
        Self::Timeouts,
        Self::AlreadyManaged,
    ];

    /// Whether the member has answered when this fails.
    pub(crate) fn is_after_connection(self) -> bool {
        !matches!(self, Self::Reachable | Self::Tls | Self::Credentials)
    }

    /// The name by which the failure can be ignored.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reachable => "Reachable",
            Self::Tls => "TLS",
            Self::Credentials => "Credentials",
            Self::Ready => "Ready",
            Self::Rights => "Rights",
            Self::Version => "Version",
            Self::ClockSkew => "ClockSkew",
            Self::Timeouts => "Timeouts",
            Self::AlreadyManaged => "AlreadyManaged",
        }
    }
}

/// A failed check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreflightFailure {
    pub check: PreflightCheck,
    pub reason: String,
    pub remedy: String,
}

impl fmt::Display for PreflightFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.check.name();
        write!(f, "[ERROR {name}]: {}; {}", self.reason, self.remedy)
    }
}

pub(super) fn failure(
    check: PreflightCheck,
    reason: impl Into<String>,
    remedy: impl Into<String>,
) -> PreflightFailure {
    PreflightFailure {
        check,
        reason: reason.into(),
        remedy: remedy.into(),
    }
}

/// Why the first request to the member failed.
pub(super) fn connection_failure(error: &Error) -> PreflightFailure {
    match error {
        Error::Transport { message, .. } if is_tls(message) => tls_failure(error, message),
        Error::Transport { message, .. } => failure(
            PreflightCheck::Reachable,
            format!("the member does not answer: {error}"),
            unreachable_remedy(message),
        ),
        Error::Status(status) if status.code == 401 => failure(
            PreflightCheck::Credentials,
            "the member refuses the credentials of the kubeconfig (401 Unauthorized)",
            "check the user of the context, and whether its token or certificate has expired",
        ),
        Error::Status(_) | Error::Protocol(_) => failure(
            PreflightCheck::Reachable,
            format!("the server answers /version with an error: {error}"),
            "check that server in the kubeconfig is the address of an API server",
        ),
    }
}

fn is_tls(message: &str) -> bool {
    ["TLS", "certificate"].iter().any(|w| message.contains(w))
}

fn tls_failure(error: &Error, message: &str) -> PreflightFailure {
    let causes = [
        (
            "BadSignature",
            "the authority in certificate-authority-data of the kubeconfig has the name of the member's authority and another key; take the certificate of the member's own",
        ),
        (
            "UnknownIssuer",
            "put the authority that signed the member's certificate into certificate-authority-data of the kubeconfig",
        ),
        (
            "NotValidForName",
            "use an address in server that the certificate names, or issue a certificate for this one",
        ),
        (
            "not valid for name",
            "use an address in server that the certificate names, or issue a certificate for this one",
        ),
        (
            "xpired",
            "renew the certificate of the member, or set the clock of this machine",
        ),
        (
            "NotValidYet",
            "set the clock of this machine, or that of the machine that issued the certificate",
        ),
    ];
    let cause_and_remedy = causes.iter().find(|(cause, _)| message.contains(cause));
    let remedy = cause_and_remedy.map_or(
        "check that server in the kubeconfig is an https address of the member",
        |(_, remedy)| remedy,
    );
    failure(
        PreflightCheck::Tls,
        format!("the TLS connection to the member fails: {error}"),
        remedy,
    )
}

fn unreachable_remedy(message: &str) -> &'static str {
    if message.contains("proxy") {
        "check proxy-url in the kubeconfig, and that the proxy lets connections to the member pass"
    } else if message.contains("refused") {
        "check that its API server runs and that server in the kubeconfig has its port"
    } else if message.contains("lookup") || message.contains("resolve") {
        "check the host of server in the kubeconfig, and the DNS of this machine"
    } else {
        "check routes and firewalls to it; a member that cannot be reached is registered with `flotilla register`"
    }
}

/// The failure of a version that is too old; none for one that cannot be read.
pub(super) fn version_failure(git_version: &str) -> Option<PreflightFailure> {
    let numbers = git_version.trim_start_matches('v');
    let mut parts = numbers
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse::<u32>().ok());
    let version = (parts.next().flatten()?, parts.next().flatten()?);
    let (major, minor) = OLDEST_VERSION;
    (version < OLDEST_VERSION).then(|| {
        failure(
            PreflightCheck::Version,
            format!("the member runs Kubernetes {git_version}; the oldest tested version is v{major}.{minor}"),
            "upgrade the member",
        )
    })
}

/// The failure of clocks that differ.
pub(super) fn clock_failure(member: Timestamp, control: Timestamp) -> Option<PreflightFailure> {
    let skew = member.duration_since(control);
    (skew.abs() > MAX_CLOCK_SKEW).then(|| {
        let side = if skew.is_negative() {
            "behind"
        } else {
            "ahead of"
        };
        failure(
            PreflightCheck::ClockSkew,
            format!(
                "the clock of the member is {} s {side} that of the control plane",
                skew.abs().as_secs()
            ),
            "synchronize both with NTP: tokens, certificates and leases depend on the time",
        )
    })
}

/// The failure of a member that takes too long for the timeouts of the controllers.
pub(super) fn response_time_failure(slowest: Duration) -> Option<PreflightFailure> {
    (slowest > MAX_RESPONSE_TIME).then(|| {
        failure(
            PreflightCheck::Timeouts,
            format!(
                "the member took {:.1} s to answer a small request; the control plane gives it 10 s",
                slowest.as_secs_f64()
            ),
            "check the load of its API server and the network in between, or register it with an agent (`flotilla register`)",
        )
    })
}

/// The failure of a kubeconfig whose name of the server a Cluster cannot hold.
pub(super) fn server_name_failure(name: &str) -> PreflightFailure {
    failure(
        PreflightCheck::Tls,
        format!(
            "the kubeconfig verifies the member by tls-server-name {name:?}, which a Cluster cannot hold"
        ),
        "use an address in server that the certificate names",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transport(message: &str) -> Error {
        Error::Transport {
            host: "m:6443".into(),
            message: message.into(),
        }
    }

    #[test]
    fn each_reason_for_no_answer_has_its_remedy() {
        for (message, check, remedy) in [
            (
                "Connection refused (os error 111)",
                PreflightCheck::Reachable,
                "check that its API server runs",
            ),
            (
                "failed to lookup address information",
                PreflightCheck::Reachable,
                "DNS",
            ),
            (
                "no connection within 10 s",
                PreflightCheck::Reachable,
                "flotilla register",
            ),
            (
                "proxy refused: HTTP/1.1 403",
                PreflightCheck::Reachable,
                "check proxy-url",
            ),
            (
                "TLS: invalid peer certificate: UnknownIssuer",
                PreflightCheck::Tls,
                "certificate-authority-data",
            ),
            (
                "TLS: invalid peer certificate: NotValidForName",
                PreflightCheck::Tls,
                "that the certificate names",
            ),
            (
                "TLS: invalid peer certificate: Expired",
                PreflightCheck::Tls,
                "renew the certificate",
            ),
            (
                "TLS: received corrupt message",
                PreflightCheck::Tls,
                "an https address",
            ),
        ] {
            let actual = connection_failure(&transport(message));
            assert_eq!(actual.check, check, "{message}");
            assert!(actual.remedy.contains(remedy), "{actual}");
            assert!(actual.to_string().contains(message), "{actual}");
        }
    }

    #[test]
    fn versions_before_the_oldest_tested_one_fail() {
        for (version, fails) in [
            ("v1.19.16", true),
            ("v1.9.0", true),
            ("v1.20.2", false),
            ("v1.36.0+flotilla", false),
            ("v2.0", false),
            ("unknown", false),
        ] {
            assert_eq!(version_failure(version).is_some(), fails, "{version}");
        }
    }

    #[test]
    fn clocks_may_differ_by_a_minute() {
        let at = |second| Timestamp::from_second(second).unwrap();
        assert_eq!(clock_failure(at(60), at(0)), None);
        let ahead = clock_failure(at(3600), at(0)).unwrap();
        assert!(ahead.reason.contains("3600 s ahead of"), "{ahead}");
        let behind = clock_failure(at(0), at(61)).unwrap();
        assert!(behind.reason.contains("61 s behind"), "{behind}");
    }

    #[test]
    fn slow_members_fail() {
        assert_eq!(response_time_failure(Duration::from_secs(5)), None);
        let slow = response_time_failure(Duration::from_millis(6100)).unwrap();
        assert!(slow.reason.contains("6.1 s"), "{slow}");
    }
}
