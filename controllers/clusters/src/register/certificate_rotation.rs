//! Renews the certificate of an agent before it expires (Karmada's
//! `pkg/controllers/certificate/cert_rotation_controller.go`): the kubeconfig in the agent's
//! Secret gets another key and certificate, which the agent reads from its file.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use client::remote::kubeconfig::KubeconfigLoadingRules;
use client::{Api, Error, ResourcePath, TaskGroup, WriteOptions};
use flotilla_runtime::{ReconcileAction, Workqueue, run_workers};
use machinery::certificate_request::certificate_validity;
use machinery::time::Clock;
use serde_json::Value;

use super::member_objects::KUBECONFIG_SECRET;
use super::{AgentCertificateSpec, request_certificate};
use crate::join::objects::SECRETS;

/// How long a renewal may wait for its certificate.
const ISSUE_TIMEOUT: Duration = Duration::from_secs(300);

/// When the certificate of an agent is renewed.
#[derive(Clone, Debug)]
pub struct CertificateRotationOptions {
    pub cluster: String,
    /// The namespace of the agent in the member.
    pub agent_namespace: String,
    pub checking_interval: Duration,
    /// The fraction of its lifetime that a certificate has left when it is renewed.
    pub remaining_time_threshold: f64,
}

/// Renews the certificate until `tasks` stop.
pub fn run_certificate_rotation(
    control: &Arc<dyn Api>,
    member: &Arc<dyn Api>,
    options: CertificateRotationOptions,
    clock: &Arc<dyn Clock>,
    tasks: &TaskGroup,
) {
    let queue: Workqueue<()> = Workqueue::new();
    queue.add(());
    let rotation = Arc::new(CertificateRotation {
        control: Arc::clone(control),
        member: Arc::clone(member),
        options,
        clock: Arc::clone(clock),
    });
    run_workers(tasks, "cert-rotation", &queue, 1, move |()| {
        let rotation = Arc::clone(&rotation);
        async move {
            rotation.check().await?;
            let interval = rotation.options.checking_interval;
            Ok::<_, Error>(ReconcileAction::RequeueAfter(interval))
        }
    });
}

struct CertificateRotation {
    control: Arc<dyn Api>,
    member: Arc<dyn Api>,
    options: CertificateRotationOptions,
    clock: Arc<dyn Clock>,
}

impl CertificateRotation {
    async fn check(&self) -> Result<(), Error> {
        let namespace = &self.options.agent_namespace;
        let at = ResourcePath::object(&SECRETS, namespace, KUBECONFIG_SECRET);
        let mut secret = self.member.get(at).await?.value()?;
        let kubeconfig = decoded_kubeconfig(&secret)?;
        let config = KubeconfigLoadingRules::parse(&kubeconfig);
        let config = config.map_err(|e| Error::Protocol(e.to_string()))?;
        let Some(current) = config.auth.client_certificate else {
            return Err(Error::Protocol(
                "the agent's kubeconfig has no certificate".into(),
            ));
        };
        let pem = String::from_utf8_lossy(&current.certificate).into_owned();
        let (from, until) = certificate_validity(&pem)
            .ok_or_else(|| Error::Protocol("the agent's certificate cannot be read".into()))?;
        let now = self.clock.now().as_second();
        if !is_due(from, until, now, self.options.remaining_time_threshold) {
            return Ok(());
        }
        let lifetime = i32::try_from(until - from).unwrap_or(i32::MAX);
        let cluster = &self.options.cluster;
        // A renewal that was interrupted has left its key behind with its process.
        let name = format!("{cluster}-{now}");
        let spec = AgentCertificateSpec {
            name: &name,
            cluster,
            expiration_seconds: lifetime,
            registration: None,
        };
        let issued = request_certificate(&*self.control, &spec, ISSUE_TIMEOUT);
        let issued = issued.await?;
        let renewed = kubeconfig
            .replace(
                &STANDARD.encode(&current.certificate),
                &STANDARD.encode(&issued.certificate_pem),
            )
            .replace(
                &STANDARD.encode(&current.key.0),
                &STANDARD.encode(&issued.key_pem),
            );
        secret["data"][KUBECONFIG_SECRET] = STANDARD.encode(renewed).into();
        let options = WriteOptions::default();
        self.member.update(at, secret.into(), &options).await?;
        Ok(())
    }
}

fn decoded_kubeconfig(secret: &Value) -> Result<String, Error> {
    let data = secret["data"][KUBECONFIG_SECRET].as_str();
    let text = data.and_then(|text| STANDARD.decode(text).ok());
    let text = text.and_then(|bytes| String::from_utf8(bytes).ok());
    text.ok_or_else(|| Error::Protocol(format!("the Secret {KUBECONFIG_SECRET} is empty")))
}

/// Whether less than the fraction `threshold` of the lifetime is left. Times are seconds.
fn is_due(from: i64, until: i64, now: i64, threshold: f64) -> bool {
    let lifetime = Duration::from_secs(u64::try_from(until - from).unwrap_or_default());
    let left = Duration::from_secs(u64::try_from(until - now).unwrap_or_default());
    left < lifetime.mul_f64(threshold.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_renewed_in_the_last_part_of_its_life() {
        for (now, due) in [
            (0, false),
            (80, false),
            (81, true),
            (100, true),
            (200, true),
        ] {
            assert_eq!(is_due(0, 100, now, 0.2), due, "{now}");
        }
        assert!(!is_due(0, 100, 99, 0.0), "the threshold may turn it off");
    }
}
