//! The flags of the keys of service account tokens.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use auth::pki::Pki;
use auth::token::ServiceAccountTokens;
use clap::Args;

use crate::authentication_flags;
use crate::flag_modes::EffectiveMode;

/// The keys that sign and verify service account tokens.
#[derive(Args, Clone, Default)]
#[command(next_help_heading = authentication_flags::HELP_HEADING)]
pub(crate) struct ServiceAccountKeyArgs {
    /// File containing PEM-encoded x509 RSA or ECDSA private or public keys, used to verify
    /// service account tokens. The file can contain multiple keys, and the flag can be
    /// specified multiple times. The key that signs verifies in any case.
    #[arg(long, value_name = "FILE", value_delimiter = ',', add = EffectiveMode::Standalone)]
    service_account_key_file: Vec<PathBuf>,
    /// Path to the file that contains the current private key of the service account token
    /// issuer; by default a key that the server creates. Tokens of another key are valid while
    /// --service-account-key-file lists it.
    #[arg(long, value_name = "FILE", add = EffectiveMode::Standalone)]
    service_account_signing_key_file: Option<PathBuf>,
}

impl ServiceAccountKeyArgs {
    /// Reads the keys.
    pub(crate) fn issuer(&self, pki: &Pki) -> anyhow::Result<ServiceAccountTokens> {
        let mut issuer = match &self.service_account_signing_key_file {
            None => ServiceAccountTokens::new(&pki.token_key_pem)?,
            Some(_) if self.service_account_key_file.is_empty() => {
                bail!("--service-account-signing-key-file requires --service-account-key-file")
            }
            Some(file) => {
                let issuer = ServiceAccountTokens::new(&read(file)?);
                let flag = "--service-account-signing-key-file";
                issuer.with_context(|| format!("{flag} {}", file.display()))?
            }
        };
        for file in &self.service_account_key_file {
            let added = issuer.add_verification_keys(&read(file)?);
            added.with_context(|| format!("--service-account-key-file {}", file.display()))?;
        }
        Ok(issuer)
    }
}

fn read(file: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}
