//! The workloads of the manifests, started on this machine: the programs with their arguments,
//! and the files of the mounted Secrets.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use auth::pki::Pki;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use harness::daemon::TestDir;
use harness::{ApiServerClient, Daemon, port, tools};
use jiff::Timestamp;
use machinery::Gvr;
use serde_json::Value;

const START_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
static SECRETS: Gvr = Gvr::from_static("", "v1", "secrets");

/// The pod spec of the only workload of a kind.
fn pod_spec<'a>(installed: &'a BTreeMap<String, Value>, kind: &str) -> &'a Value {
    let workload = installed.values().find(|o| o["kind"] == kind);
    &workload.unwrap()["spec"]["template"]["spec"]
}

/// The arguments of that workload's container.
pub(crate) fn container_arguments(installed: &BTreeMap<String, Value>, kind: &str) -> Vec<String> {
    let container = &pod_spec(installed, kind)["containers"][0];
    let list = |field: &str| container[field].as_array().cloned().unwrap_or_default();
    let command = list("command").into_iter().skip(1);
    let all = command.chain(list("args"));
    all.map(|a| a.as_str().unwrap().to_owned()).collect()
}

/// The etcd of the manifests, with the certificates that Flotilla creates.
pub(crate) struct InstalledEtcd {
    daemon: Daemon,
    ctl: PathBuf,
    address: String,
    dir: TestDir,
}

impl InstalledEtcd {
    /// Waits for the Secret with the certificates, as the kubelet does, and starts etcd.
    pub(crate) async fn start(
        host: &ApiServerClient,
        installed: &BTreeMap<String, Value>,
        port: u16,
    ) -> Self {
        let [program, ctl] = tools(["etcd-3.5", "etcdctl-3.5"]).unwrap();
        let dir = TestDir::new();
        let volume = &pod_spec(installed, "StatefulSet")["volumes"][0]["secret"];
        let name = volume["secretName"].as_str().unwrap();
        let secret = host
            .wait_until_exists(&SECRETS, "flotilla-system", name)
            .await;
        let decode = |key: &str| {
            let text = secret["data"][key].as_str().unwrap_or_default();
            STANDARD.decode(text).unwrap()
        };
        let certs = dir.path().join("certs");
        std::fs::create_dir(&certs).unwrap();
        for item in volume["items"].as_array().unwrap() {
            let text = |field: &str| item[field].as_str().unwrap();
            let key = text("key");
            assert!(
                !["ca.key", "client.key"].contains(&key),
                "etcd needs no {key}"
            );
            std::fs::write(certs.join(text("path")), decode(key)).unwrap();
        }
        for file in ["client.crt", "client.key"] {
            std::fs::write(dir.path().join(file), decode(file)).unwrap();
        }
        let address = format!("127.0.0.1:{port}");
        let (peer, metrics) = (port::free_port(), port::free_port());
        let path = |name: &str| dir.path().join(name).display().to_string();
        let local = |argument: String| {
            argument
                .replace("/etc/etcd/certs", &path("certs"))
                .replace("/var/lib/etcd", &path(""))
                .replace("0.0.0.0:2379", &address)
                .replace("flotilla-etcd.flotilla-system.svc:2379", &address)
                .replace("127.0.0.1:2380", &format!("127.0.0.1:{peer}"))
                .replace("0.0.0.0:2381", &format!("127.0.0.1:{metrics}"))
        };
        let arguments = container_arguments(installed, "StatefulSet")
            .into_iter()
            .map(local);
        let log = dir.path().join("etcd.log");
        let mut etcd = Self {
            daemon: Daemon::start(&program, arguments.collect(), &log),
            ctl,
            address,
            dir,
        };
        etcd.wait_until_started().await;
        etcd
    }

    async fn wait_until_started(&mut self) {
        let end = Instant::now() + START_TIMEOUT;
        while self.list_keys("https", &self.client_flags()).is_none() {
            self.daemon.assert_running();
            assert!(Instant::now() < end, "{}", self.daemon.log_tail());
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// The flags of etcdctl for Flotilla's own certificate.
    fn client_flags(&self) -> Vec<String> {
        let (ca, dir) = (self.ca_flag(), self.dir.path());
        let file = |name: &str| dir.join(name).display().to_string();
        let [certificate, key] = [file("client.crt"), file("client.key")];
        vec![ca, format!("--cert={certificate}"), format!("--key={key}")]
    }

    fn ca_flag(&self) -> String {
        format!(
            "--cacert={}",
            self.dir.path().join("certs/ca.crt").display()
        )
    }

    /// Lists the keys below `/registry/`; `None` if etcdctl fails.
    fn list_keys(&self, scheme: &str, flags: &[String]) -> Option<String> {
        let mut command = Command::new(&self.ctl);
        command
            .env("ETCDCTL_API", "3")
            .arg(format!("--endpoints={scheme}://{}", self.address))
            .args(["--command-timeout=3s", "--dial-timeout=3s"])
            .args(flags)
            .args(["get", "--prefix", "--keys-only", "/registry/"]);
        let out = harness::process::run(&command);
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        out.status.success().then_some(text)
    }

    /// Asserts that Flotilla's certificate reads the keys that Flotilla has written, and that
    /// clients without TLS, without a certificate, or with one of another CA read nothing.
    pub(crate) fn assert_requires_client_certificate(&self) {
        let keys = self.list_keys("https", &self.client_flags()).unwrap();
        assert!(keys.contains("/registry/"), "Flotilla uses another store");
        assert_eq!(self.list_keys("http", &[]), None, "without TLS");
        assert_eq!(
            self.list_keys("https", &[self.ca_flag()]),
            None,
            "without certificate"
        );
        let foreign = self.foreign_client_flags(&self.dir.path().join("foreign"));
        assert_eq!(self.list_keys("https", &foreign), None, "of another CA");
    }

    fn foreign_client_flags(&self, dir: &Path) -> Vec<String> {
        let now = Timestamp::now();
        let pki = Pki::open(dir, &[], now).unwrap();
        let client = pki.sign_client_certificate("flotilla", &[], now).unwrap();
        let file = |name: &str| dir.join(name).display().to_string();
        std::fs::write(file("client.crt"), client.certificate_pem).unwrap();
        std::fs::write(file("client.key"), client.key_pem).unwrap();
        let flags = [("cert", "client.crt"), ("key", "client.key")];
        let flags = flags.map(|(flag, name)| format!("--{flag}={}", file(name)));
        [vec![self.ca_flag()], flags.to_vec()].concat()
    }
}
