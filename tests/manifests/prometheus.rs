//! A Prometheus process with its own directory and port, and a client of its API.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use harness::{Daemon, port};
use serde_json::{Value, json};

const QUERY_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// A Prometheus that scrapes one target every second. Dropping it ends the process.
pub(crate) struct Prometheus {
    daemon: Daemon,
    port: u16,
}

/// The server to scrape, with the client certificate for it.
pub(crate) struct ScrapeTarget<'a> {
    /// `host:port`
    pub(crate) address: &'a str,
    /// Directory with `ca.crt`, `admin.crt` and `admin.key`.
    pub(crate) pki: PathBuf,
}

impl Prometheus {
    pub(crate) fn start(
        program: &Path,
        dir: &Path,
        target: &ScrapeTarget<'_>,
        rules: &Value,
    ) -> Self {
        let file = |name: &str| target.pki.join(name).display().to_string();
        let config = json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": [{
                "job_name": "flotilla",
                "scheme": "https",
                "tls_config": {
                    "ca_file": file("ca.crt"), "cert_file": file("admin.crt"),
                    "key_file": file("admin.key"), "server_name": "localhost",
                },
                "static_configs": [{"targets": [target.address]}],
            }],
        });
        // JSON is valid YAML.
        std::fs::write(dir.join("prometheus.yml"), config.to_string()).unwrap();
        std::fs::write(dir.join("rules.yaml"), rules.to_string()).unwrap();
        let port = port::free_port();
        let arguments = [
            format!("--config.file={}", dir.join("prometheus.yml").display()),
            format!("--storage.tsdb.path={}", dir.join("tsdb").display()),
            format!("--web.listen-address=127.0.0.1:{port}"),
            "--log.level=warn".into(),
        ];
        let daemon = Daemon::start(program, arguments.into(), &dir.join("prometheus.log"));
        Self { daemon, port }
    }

    /// Calls the API and returns the `data` of the response.
    pub(crate) async fn get_api(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<Value, String> {
        let query: Vec<String> = query
            .iter()
            .map(|(k, v)| format!("{k}={}", percent_encode(v)))
            .collect();
        let path = format!("/api/v1/{path}?{}", query.join("&"));
        let port = self.port;
        let actual = tokio::task::spawn_blocking(move || http_get(port, &path));
        let text = actual.await.unwrap().map_err(|e| e.to_string())?;
        let response: Value =
            machinery::json::from_str(&text).map_err(|e| format!("{e}: {text}"))?;
        match response["status"].as_str() {
            Some("success") => Ok(response["data"].clone()),
            _ => Err(response["error"].to_string()),
        }
    }

    /// Evaluates an expression now and returns its samples.
    pub(crate) async fn query(&self, expression: &str) -> Result<Vec<Value>, String> {
        let data = self.get_api("query", &[("query", expression)]).await?;
        Ok(data["result"].as_array().cloned().unwrap_or_default())
    }

    /// Waits until an expression has a sample that is a number; returns its samples.
    pub(crate) async fn wait_for_data(&self, expression: &str) -> Vec<Value> {
        let end = Instant::now() + QUERY_TIMEOUT;
        loop {
            let samples = self.query(expression).await;
            match &samples {
                Ok(values) if values.iter().any(is_number) => return values.clone(),
                _ => assert!(
                    Instant::now() < end,
                    "{expression}: {samples:?}\n{}",
                    self.daemon.log_tail()
                ),
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// Whether a sample is a finite number: Grafana draws no NaN.
pub(crate) fn is_number(sample: &Value) -> bool {
    let text = sample["value"][1].as_str().unwrap_or("NaN");
    text.parse::<f64>().is_ok_and(f64::is_finite)
}

fn http_get(port: u16, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    let body = reply.split_once("\r\n\r\n").map(|(_, body)| body);
    Ok(body.unwrap_or_default().to_owned())
}

fn percent_encode(text: &str) -> String {
    text.bytes().map(|b| format!("%{b:02X}")).collect()
}
