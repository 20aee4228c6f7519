//! Serves `/healthz`, `/livez` and `/readyz`: 200 `ok`, or 500 with a line per check
//! (`server/healthz/healthz.go`).

use std::sync::Arc;

use http::Response;

use crate::metrics::ApiServerMetrics;
use crate::requestinfo::QueryParams;
use crate::response_body::ServerResponseBody;
use crate::response_writers;

/// Runs a health check and returns why it failed; must be quick and not block.
pub type HealthProbe = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// A named health check.
#[derive(Clone)]
pub struct HealthCheck {
    pub name: String,
    /// Part of `/livez` and `/healthz` too; every check is part of `/readyz`.
    pub live: bool,
    pub probe: HealthProbe,
}

impl HealthCheck {
    /// A check of `/readyz` only.
    pub fn readiness(
        name: impl Into<String>,
        probe: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            live: false,
            probe: Arc::new(probe),
        }
    }

    /// A check of `/livez`, `/healthz` and `/readyz`.
    pub fn liveness(
        name: impl Into<String>,
        probe: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self {
            live: true,
            ..Self::readiness(name, probe)
        }
    }
}

/// Serves a health path; `None` when the path is none.
pub(crate) fn serve(
    checks: &[HealthCheck],
    metrics: &ApiServerMetrics,
    path: &str,
    query: &QueryParams,
) -> Option<Response<ServerResponseBody>> {
    let mut parts = path.trim_start_matches('/').splitn(2, '/');
    let (kind, check_name) = (parts.next()?, parts.next());
    let in_scope = |c: &&HealthCheck| kind == "readyz" || c.live;
    if !matches!(kind, "healthz" | "livez" | "readyz") {
        return None;
    }
    if let Some(name) = check_name {
        let check = checks.iter().filter(in_scope).find(|c| c.name == name)?;
        return Some(match (check.probe)() {
            Ok(()) => response_writers::write_text(200, "ok".into()),
            Err(error) => {
                tracing::info!(check = %check.name, why = %error, "health check failed");
                let text = "internal server error: reason withheld\n";
                response_writers::write_text(500, text.into())
            }
        });
    }
    let excluded: Vec<&str> = query.all("exclude").flat_map(|v| v.split(',')).collect();
    let mut lines = String::new();
    let mut healthy = true;
    for check in checks.iter().filter(in_scope) {
        if excluded.contains(&check.name.as_str()) {
            lines.push_str(&format!("[+]{} excluded: ok\n", check.name));
            continue;
        }
        let result = (check.probe)();
        metrics.set_health(&check.name, kind, result.is_ok());
        match result {
            Ok(()) => lines.push_str(&format!("[+]{} ok\n", check.name)),
            Err(error) => {
                healthy = false;
                tracing::info!(check = %check.name, why = %error, "health check failed");
                lines.push_str(&format!("[-]{} failed: reason withheld\n", check.name));
            }
        }
    }
    let unknown: Vec<&str> = excluded
        .into_iter()
        .filter(|name| !name.is_empty() && !checks.iter().any(|c| c.name == *name))
        .collect();
    if !unknown.is_empty() {
        lines.push_str(&format!(
            "warn: some health checks cannot be excluded: no matches for {unknown:?}\n"
        ));
    }
    Some(if !healthy {
        response_writers::write_text(500, format!("{lines}{kind} check failed\n"))
    } else if query.get("verbose").is_some() {
        response_writers::write_text(200, format!("{lines}{kind} check passed\n"))
    } else {
        response_writers::write_text(200, "ok".into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VersionInfo;
    use http_body_util::BodyExt;

    #[tokio::test]
    async fn health_responses_match_kubernetes() {
        let checks = [
            HealthCheck::liveness("ping", || Ok(())),
            HealthCheck::readiness("informer-sync", || Err("2 left".into())),
        ];
        let metrics = ApiServerMetrics::new(
            flotilla_metrics::MetricsRegistry::new(),
            false,
            &VersionInfo::default(),
        );
        let ask = async |path: &str, query: &str| {
            let query = QueryParams::parse(Some(query));
            let reply = serve(&checks, &metrics, path, &query)?;
            let code = reply.status().as_u16();
            let body = reply.into_body().collect().await.unwrap().to_bytes();
            Some((code, String::from_utf8(body.to_vec()).unwrap()))
        };
        let response = |code: u16, text: &str| Some((code, text.to_owned()));
        assert_eq!(ask("/livez", "").await, response(200, "ok"));
        assert_eq!(
            ask("/livez", "verbose").await,
            response(200, "[+]ping ok\nlivez check passed\n")
        );
        assert_eq!(
            ask("/readyz", "").await,
            response(
                500,
                "[+]ping ok\n[-]informer-sync failed: reason withheld\nreadyz check failed\n"
            )
        );
        assert_eq!(
            ask("/readyz", "exclude=informer-sync").await,
            response(200, "ok")
        );
        assert_eq!(ask("/readyz/ping", "").await, response(200, "ok"));
        assert_eq!(ask("/livez/informer-sync", "").await, None);
        let unknown = ask("/livez", "exclude=x&verbose").await.unwrap();
        assert!(unknown.0 == 200 && unknown.1.contains("no matches for [\"x\"]"));
    }
}
