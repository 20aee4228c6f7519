//! The keys and certificates of a server while it runs: replicas share them through the store, they
//! are renewed before they expire, and a metric says when that is.

mod certificate_expiry;
mod client_authorities;
mod renewal_loop;
mod server_keys;

pub use certificate_expiry::{CertificateUse, report_certificate};
pub use client_authorities::{ClientAuthorities, ClientAuthorityBundle};
pub use renewal_loop::{CHECK_PERIOD, run_renewal_loop};
pub use server_keys::{SHARED_KEYS_KEY, ServerKeysLocation};
