//! Which credentials of a member are reported to the control plane.

use std::fmt;
use std::str::FromStr;

const CREDENTIALS: &str = "KubeCredentials";
const IMPERSONATOR: &str = "KubeImpersonator";
const NONE: &str = "None";

/// The Secrets that are reported (`--report-secrets`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportedSecrets {
    /// `KubeCredentials`: the token of the control plane's account, which may do anything.
    pub credentials: bool,
    /// `KubeImpersonator`: the token of the account that impersonates users.
    pub impersonator: bool,
}

impl ReportedSecrets {
    pub const ALL: Self = Self {
        credentials: true,
        impersonator: true,
    };
}

impl fmt::Display for ReportedSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.credentials, self.impersonator) {
            (true, true) => "KubeCredentials,KubeImpersonator",
            (true, false) => CREDENTIALS,
            (false, true) => IMPERSONATOR,
            (false, false) => NONE,
        })
    }
}

impl FromStr for ReportedSecrets {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut secrets = Self::default();
        for name in text.split(',') {
            match name {
                CREDENTIALS => secrets.credentials = true,
                IMPERSONATOR => secrets.impersonator = true,
                NONE if text == NONE => {}
                NONE => return Err(format!("{NONE} cannot be combined with other secrets")),
                _ => {
                    return Err(format!(
                        "valid values are {CREDENTIALS}, {IMPERSONATOR} and {NONE}, not {name:?}"
                    ));
                }
            }
        }
        Ok(secrets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_are_those_of_karmada() {
        for (text, credentials, impersonator) in [
            ("KubeCredentials,KubeImpersonator", true, true),
            ("KubeCredentials", true, false),
            ("KubeImpersonator", false, true),
            ("None", false, false),
        ] {
            let secrets: ReportedSecrets = text.parse().unwrap();
            assert_eq!(
                (secrets.credentials, secrets.impersonator),
                (credentials, impersonator)
            );
            assert_eq!(secrets.to_string(), text);
        }
        for text in ["", "none", "None,KubeCredentials", "Other"] {
            assert!(text.parse::<ReportedSecrets>().is_err(), "{text}");
        }
    }
}
