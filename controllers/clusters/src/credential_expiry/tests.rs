//! Tests of the condition, the event and the metric of credentials that expire. The clock of
//! the fixture begins at 2026-01-01.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::{SignedDuration, Timestamp};
use karmada_api::resources::CLUSTERS;
use machinery::{Gvr, Object};
use serde_json::{Value, json};

use super::expiry::{agent_certificate, credentials_condition, expiring_credentials, next_check};
use crate::fixture::{ClustersFixture, cluster, condition_of};
use crate::options::{AgentCertificateValidity, ClusterControllersSettings};

static SECRETS: Gvr = Gvr::from_static("", "v1", "secrets");
const START: i64 = 1_767_225_600;
const DAY: i64 = 24 * 60 * 60;

fn token(expires: Option<i64>) -> String {
    let claims = match expires {
        Some(expires) => json!({"exp": expires}),
        None => json!({"sub": "system:serviceaccount:a:b"}),
    };
    format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()))
}

fn secret(token: &str, bundle: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "m1", "namespace": "kc"},
        "data": {"token": STANDARD.encode(token), "caBundle": STANDARD.encode(bundle)}})
}

fn authority(until: Timestamp) -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::default();
    let until: std::time::SystemTime = until.into();
    params.not_after = until.into();
    params.self_signed(&key).unwrap().pem()
}

#[test]
fn tokens_and_authorities_expire() {
    let at = |days: i64| Timestamp::from_second(START + days * DAY).unwrap();
    let bundle = format!("{}{}", authority(at(50)), authority(at(10)));
    let value = secret(&token(Some(START + DAY)), &bundle);
    let actual = expiring_credentials(&Object::from_value(&value).unwrap());
    let actual: Vec<_> = actual.iter().map(|c| (&*c.label, c.expires)).collect();
    assert_eq!(actual, [("kc/m1/token", at(1)), ("kc/m1/caBundle", at(50))]);
    for endless in [token(None), "opaque".to_owned(), "a.!.c".to_owned()] {
        let value = secret(&endless, "no certificate");
        let actual = expiring_credentials(&Object::from_value(&value).unwrap());
        assert_eq!(actual, [], "{endless}");
    }
}

#[test]
fn the_next_check_is_when_something_changes() {
    let value = secret(&token(Some(START + 40 * DAY)), "");
    let credentials = expiring_credentials(&Object::from_value(&value).unwrap());
    let at = |days: i64| Timestamp::from_second(START + days * DAY).unwrap();
    for (now, days) in [(0, Some(10)), (10, Some(30)), (39, Some(1)), (40, None)] {
        let next = next_check(credentials.first(), at(now));
        let expected = days.map(|days| SignedDuration::from_secs(days * DAY + 1));
        assert_eq!(next, expected, "{now}");
        let soon = credentials_condition(credentials.first(), false, at(now)).is_some();
        assert_eq!(soon, now >= 10, "{now}");
    }
}

#[test]
fn a_short_certificate_that_is_renewed_is_no_warning() {
    let at = |hours: i64| Timestamp::from_second(START + hours * 3600).unwrap();
    let day = agent_certificate(at(24), SignedDuration::from_hours(24));
    assert_eq!(day.warn_from, at(24) - SignedDuration::from_mins(144));
    let year = agent_certificate(at(8760), SignedDuration::from_hours(8760));
    assert_eq!(year.warn_from, at(8760 - 720));
}

// proves: CRT-agent
#[tokio::test(start_paused = true)]
async fn an_agent_warns_before_its_certificate_expires() {
    let at = |days: i64| Timestamp::from_second(START + days * DAY).unwrap();
    for (until, warned) in [(20, true), (40, false)] {
        let fixture = ClustersFixture::with_events(ClusterControllersSettings {
            agent_cluster: Some("m1".into()),
            agent_certificate: Some(AgentCertificateValidity {
                from: at(until - 365),
                until: at(until),
            }),
            ..ClusterControllersSettings::default()
        });
        fixture.host.seed(&CLUSTERS, cluster("m1", "Pull"));
        fixture.wait_until_idle().await;
        let actual = fixture.cluster("m1");
        let (status, reason) = condition_of(&actual, "AgentCertificateValid");
        let expected = match warned {
            true => ("False", "CredentialsExpireSoon"),
            false => ("", ""),
        };
        assert_eq!((status, reason), expected, "{until}");
        let events = fixture.recorded_events("CredentialsExpireSoon");
        assert_eq!(!events.is_empty(), warned, "{events:?}");
        fixture.tasks.stop().await;
    }
}

// proves: CRT-member
#[tokio::test(start_paused = true)]
async fn a_token_that_expires_soon_is_a_condition_and_an_event_until_it_is_replaced() {
    let fixture = ClustersFixture::with_events(ClusterControllersSettings::default());
    fixture
        .host
        .seed(&SECRETS, secret(&token(Some(START + 31 * DAY)), ""));
    fixture.host.seed(&CLUSTERS, cluster("m1", "Push"));
    fixture.wait_until_idle().await;
    let condition = |cluster: &Value| {
        let (status, reason) = condition_of(cluster, "CredentialsValid");
        (status.to_owned(), reason.to_owned())
    };
    assert_eq!(condition(&fixture.cluster("m1")).0, "", "31 days are left");
    fixture
        .host
        .seed(&SECRETS, secret(&token(Some(START + 20 * DAY)), ""));
    let warned = fixture
        .wait_for_cluster("m1", |c| condition(c).1 == "CredentialsExpireSoon")
        .await;
    assert_eq!(condition(&warned).0, "False");
    fixture.wait_until_idle().await;
    assert_eq!(
        fixture.recorded_events("CredentialsExpireSoon"),
        [(
            "Cluster".to_owned(),
            "the token in the Secret kc/m1 expires at 2026-01-21T00:00:00Z; replace it before"
                .to_owned()
        )]
    );
    fixture
        .host
        .seed(&SECRETS, secret(&token(Some(START - DAY)), ""));
    fixture
        .wait_for_cluster("m1", |c| condition(c).1 == "CredentialsExpired")
        .await;
    fixture.host.seed(&SECRETS, secret(&token(None), ""));
    fixture
        .wait_for_cluster("m1", |c| condition(c).1 == "CredentialsValid")
        .await;
    fixture.tasks.stop().await;
}

/// The cached Cluster lacks the condition all the while.
// proves: CRT-own-writes
#[tokio::test(start_paused = true)]
async fn a_condition_whose_event_is_late_ends_with_a_new_token() {
    let fixture = ClustersFixture::start();
    let until = |days: i64| secret(&token(Some(START + days * DAY)), "");
    fixture.host.seed(&SECRETS, until(60));
    fixture.host.seed(&CLUSTERS, cluster("m1", "Push"));
    fixture.wait_until_idle().await;
    fixture.host.pause_watches(&CLUSTERS);
    for (days, expected) in [(20, "CredentialsExpireSoon"), (60, "CredentialsValid")] {
        fixture.host.seed(&SECRETS, until(days));
        fixture
            .wait_for_cluster("m1", |c| condition_of(c, "CredentialsValid").1 == expected)
            .await;
    }
    fixture.host.resume_watches(&CLUSTERS);
    fixture.tasks.stop().await;
}
