//! A Prometheus of its own directory and port, and what can be asked of it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use harness::{Daemon, port};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(200);

/// Scrapes one target every second. Dropping it ends it.
pub(crate) struct Prometheus {
    daemon: Daemon,
    port: u16,
}

/// What is scraped, and as whom.
pub(crate) struct Target<'a> {
    /// `host:port`
    pub(crate) address: &'a str,
    /// Directory with `ca.crt`, `admin.crt` and `admin.key`.
    pub(crate) pki: PathBuf,
}

impl Prometheus {
    pub(crate) fn start(program: &Path, dir: &Path, target: &Target<'_>, rules: &Value) -> Self {
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
        // What is JSON is YAML.
        std::fs::write(dir.join("prometheus.yml"), config.to_string()).unwrap();
        std::fs::write(dir.join("rules.yaml"), rules.to_string()).unwrap();
        let port = port::free();
        let arguments = [
            format!("--config.file={}", dir.join("prometheus.yml").display()),
            format!("--storage.tsdb.path={}", dir.join("tsdb").display()),
            format!("--web.listen-address=127.0.0.1:{port}"),
            "--log.level=warn".into(),
        ];
        let daemon = Daemon::start(program, arguments.into(), &dir.join("prometheus.log"));
        Self { daemon, port }
    }

    /// `data` of an answer of the API.
    pub(crate) async fn ask(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, String> {
        let query: Vec<String> = query
            .iter()
            .map(|(k, v)| format!("{k}={}", encode(v)))
            .collect();
        let path = format!("/api/v1/{path}?{}", query.join("&"));
        let port = self.port;
        let got = tokio::task::spawn_blocking(move || get(port, &path));
        let text = got.await.unwrap().map_err(|e| e.to_string())?;
        let answer: Value = serde_json::from_str(&text).map_err(|e| format!("{e}: {text}"))?;
        match answer["status"].as_str() {
            Some("success") => Ok(answer["data"].clone()),
            _ => Err(answer["error"].to_string()),
        }
    }

    /// The values of an expression now.
    pub(crate) async fn query(&self, expression: &str) -> Result<Vec<Value>, String> {
        let data = self.ask("query", &[("query", expression)]).await?;
        Ok(data["result"].as_array().cloned().unwrap_or_default())
    }

    /// Until an expression has values that are numbers.
    pub(crate) async fn until(&self, expression: &str) -> Vec<Value> {
        let end = Instant::now() + PATIENCE;
        loop {
            let seen = self.query(expression).await;
            match &seen {
                Ok(values) if values.iter().any(is_number) => return values.clone(),
                _ => assert!(
                    Instant::now() < end,
                    "{expression}: {seen:?}\n{}",
                    self.daemon.log_end()
                ),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Whether a sample shows something: Grafana draws no NaN.
pub(crate) fn is_number(sample: &Value) -> bool {
    let text = sample["value"][1].as_str().unwrap_or("NaN");
    text.parse::<f64>().is_ok_and(f64::is_finite)
}

fn get(port: u16, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    let body = reply.split_once("\r\n\r\n").map(|(_, body)| body);
    Ok(body.unwrap_or_default().to_owned())
}

fn encode(text: &str) -> String {
    text.bytes().map(|b| format!("%{b:02X}")).collect()
}
