//! A control plane with two members and a Deployment in both, and runs of the binary.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use harness::objects::{DEPLOYMENTS, POLICIES, deployment, policy};
use harness::process::RunningCommand;
use harness::{FlotillaUpProcess, ServerProcess};
use machinery::Gvr;
use parking_lot::Mutex;
use serde_json::{Value, json};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_flotilla");
/// The path of the editor of `flotilla edit`.
const SYSTEM_PATH: &str = "/usr/bin:/bin";
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct CliFixture {
    up: FlotillaUpProcess,
    /// A kubectl on the `PATH` of the commands; absent if the machine has none.
    tools: Option<PathBuf>,
    /// The test that has written each file into the working folder.
    writers: Mutex<BTreeMap<String, String>>,
}

/// The output of a command.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) errors: String,
}

impl CommandOutput {
    pub(crate) fn succeeded(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.out
    }

    /// Exit code 1 and this text on standard error.
    pub(crate) fn failed_with(self, text: &str) {
        assert_eq!(self.code, 1, "{self:?}");
        assert!(self.errors.contains(text), "no {text:?} in {self:?}");
    }
}

impl CliFixture {
    /// The shared control plane, which the last test that holds it ends. Its clusters are
    /// `member1` and `member2`.
    pub(crate) fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<CliFixture>> = Mutex::new(Weak::new());
        Self::share(&SHARED)
    }

    /// Another one, for tests that register or taint clusters.
    pub(crate) fn with_changing_clusters() -> Arc<Self> {
        static SHARED: Mutex<Weak<CliFixture>> = Mutex::new(Weak::new());
        Self::share(&SHARED)
    }

    fn share(shared: &Mutex<Weak<Self>>) -> Arc<Self> {
        let mut shared = shared.lock();
        if let Some(running) = shared.upgrade() {
            return running;
        }
        let started = Arc::new(Self::start());
        *shared = Arc::downgrade(&started);
        started
    }

    /// A control plane of its own.
    pub(crate) fn start() -> Self {
        let up = FlotillaUpProcess::start(BINARY, 2, &[]);
        let tools = link_kubectl(&up);
        let writers = Mutex::default();
        let fixture = Self { up, tools, writers };
        fixture.propagate_deployment("default");
        fixture
    }

    /// The shared control plane for commands that run kubectl; `None` if the machine has
    /// none, and the test is recorded as skipped.
    pub(crate) fn shared_with_tools() -> Option<Arc<Self>> {
        harness::tools(["kubectl-1.36"])?;
        Some(Self::shared())
    }

    /// Creates the Deployment `web` with two replicas in each member, and waits for it.
    pub(crate) fn propagate_deployment(&self, namespace: &str) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let control = self.up.control_plane();
            if namespace != "default" {
                control.create_namespace(namespace).await;
            }
            let web = deployment(namespace, "web", 2);
            control.create(web.clone()).await;
            control
                .create(policy(namespace, "web", &web, &["member1", "member2"]))
                .await;
            control
                .wait_until(
                    &DEPLOYMENTS,
                    namespace,
                    "web",
                    "ready in both members",
                    |d| d["status"]["readyReplicas"] == 4,
                )
                .await;
            let stored_policy = control.get(&POLICIES, namespace, "web").await;
            assert!(stored_policy.is_some());
        });
    }

    /// Waits until a Deployment has ready replicas in the members.
    pub(crate) fn wait_until_ready(&self, namespace: &str, name: &str, replicas: i64) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let control = self.up.control_plane();
            let is_ready = |d: &Value| d["status"]["readyReplicas"] == replicas;
            control
                .wait_until(&DEPLOYMENTS, namespace, name, "ready", is_ready)
                .await;
        });
    }

    /// Creates an object in the control plane.
    pub(crate) fn create(&self, object: Value) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async { self.up.control_plane().create(object).await });
    }

    /// Waits until the control plane refuses to create an object, in dry runs: it reads quotas from a
    /// cache.
    pub(crate) fn wait_until_refused(&self, resource: &Gvr, namespace: &str, object: &Value) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let control = self.up.control_plane();
            let options = client::WriteOptions {
                dry_run: true,
                ..client::WriteOptions::default()
            };
            harness::api_server_client::wait_until("the refusal", async || {
                let all = client::ResourcePath::collection(resource, namespace);
                let created = control.api.create(all, object.clone().into(), &options);
                created.await.is_err()
            })
            .await;
        });
    }

    /// Creates an object in `member1`.
    pub(crate) fn create_in_member(&self, object: Value) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async { self.up.members()[0].create(object).await });
    }

    /// Deletes an object in the control plane.
    pub(crate) fn delete(&self, resource: &Gvr, namespace: &str, name: &str) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let control = self.up.control_plane();
            control.delete(resource, namespace, name).await;
        });
    }

    /// Deletes an object in `member1`.
    pub(crate) fn delete_in_member(&self, resource: &Gvr, namespace: &str, name: &str) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let members = self.up.members();
            members[0].delete(resource, namespace, name).await;
        });
    }

    /// The working folder of the commands.
    pub(crate) fn dir(&self) -> &Path {
        self.up.dir()
    }

    /// Writes a file into the working folder, whose name no other test may use: they run beside this
    /// one.
    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let test = std::thread::current().name().unwrap_or_default().to_owned();
        let mut writers = self.writers.lock();
        let writer = writers.entry(name.to_owned()).or_insert(test.clone());
        assert_eq!(*writer, test, "both write {name}");
        std::fs::write(self.dir().join(name), content).unwrap();
    }

    /// Writes the file that `--cluster-kubeconfig NAME.kubeconfig` names.
    pub(crate) fn write_kubeconfig(&self, name: &str, kubeconfig: &Value) {
        self.write(&format!("{name}.kubeconfig"), kubeconfig.to_string());
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.command_of(BINARY, arguments)
    }

    pub(crate) fn command_of(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        let path = match &self.tools {
            Some(tools) => format!("{}:{SYSTEM_PATH}", tools.display()),
            None => SYSTEM_PATH.to_owned(),
        };
        command
            .args(arguments)
            .current_dir(self.up.dir())
            .env("KUBECONFIG", self.up.dir().join("kubeconfig"))
            .env("HOME", self.up.dir())
            .env("PATH", path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs a command line; text in single quotes is one word.
    pub(crate) fn run(&self, line: &str) -> CommandOutput {
        run_command(&self.command_line(line))
    }

    fn command_line(&self, line: &str) -> Command {
        let words = harness::kubectl::split_words(line);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        self.command(&words)
    }

    /// Starts a command that runs until it is dropped.
    pub(crate) fn spawn(&self, arguments: &[&str]) -> RunningCommand {
        RunningCommand::start(&self.command(arguments))
    }

    /// The examples in the help of a command, without the name of the binary.
    pub(crate) fn examples(&self, command: &str) -> Vec<String> {
        let help = self.run(&format!("{command} --help")).succeeded();
        let help = help.replace("\\\n   ", "");
        let examples = help
            .lines()
            .filter_map(|line| line.strip_prefix("  flotilla "));
        let examples: Vec<String> = examples.map(str::to_owned).collect();
        assert!(!examples.is_empty(), "{command} --help has no example");
        examples
    }

    /// Runs the examples in the help of a command, in their order.
    pub(crate) fn run_examples(&self, command: &str) {
        self.run_examples_in(command, self.dir());
    }

    /// The same in a folder of its own, for files whose names other tests use too.
    pub(crate) fn run_examples_in(&self, command: &str, folder: &Path) {
        for example in self.examples(command) {
            run_command(self.command_line(&example).current_dir(folder)).succeeded();
        }
    }

    /// Runs a command line until it succeeds with such an output.
    pub(crate) fn wait_for_output(&self, line: &str, is_complete: impl Fn(&str) -> bool) {
        let end = Instant::now() + TIMEOUT;
        loop {
            let output = self.run(line);
            if output.code == 0 && is_complete(&output.out) {
                return;
            }
            assert!(Instant::now() < end, "{line}: {output:?}");
            harness::sleep_blocking(Duration::from_millis(100));
        }
    }

    /// Starts another simulated member with further flags and joins it.
    pub(crate) fn join_member(&self, name: &str, flags: &[&str]) -> ServerProcess {
        let dir = self.up.dir().join(name);
        let member = ServerProcess::start_member(BINARY, &dir, 2, flags);
        let line = format!("join {name} --cluster-kubeconfig {name}/kubeconfig");
        self.run(&line).succeeded();
        let ready = format!("get cluster {name} --no-headers");
        self.wait_for_output(&ready, |out| out.contains(" True "));
        // The member has the rights of the impersonator in a cache of its own.
        self.wait_for_output(&format!("get namespaces -C {name}"), |out| {
            out.contains("kube-system")
        });
        member
    }

    /// Registers a cluster that nothing connects to, or whose address is given.
    pub(crate) fn register_cluster(&self, name: &str, address: Option<&str>) {
        let spec = match address {
            None => json!({"syncMode": "Pull", "id": name}),
            Some(address) => json!({"syncMode": "Pull", "id": name, "apiEndpoint": address,
                "insecureSkipTLSVerification": true,
                "impersonatorSecretRef": {"namespace": "karmada-cluster", "name": "member1-impersonator"}}),
        };
        let cluster = json!({"apiVersion": "cluster.karmada.io/v1alpha1", "kind": "Cluster",
            "metadata": {"name": name}, "spec": spec});
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async { self.up.control_plane().create(cluster).await });
    }

    pub(crate) fn json(&self, line: &str) -> Value {
        let text = self.run(&format!("{line} -o json")).succeeded();
        machinery::json::from_str(&text).unwrap()
    }
}

/// Runs a command to its end.
pub(crate) fn run_command(command: &Command) -> CommandOutput {
    let out = harness::process::run(command);
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    CommandOutput {
        code: out.status.code().unwrap_or(-1),
        out: text(out.stdout),
        errors: text(out.stderr),
    }
}

/// A folder with `kubectl`, and with the binary under the names of its plugins.
fn link_kubectl(up: &FlotillaUpProcess) -> Option<PathBuf> {
    let [kubectl] = harness::tools(["kubectl-1.36"])?;
    let tools = up.dir().join("tools");
    std::fs::create_dir_all(&tools).unwrap();
    let link = |target: &str, name: &str| {
        std::os::unix::fs::symlink(target, tools.join(name)).unwrap();
    };
    link(&kubectl.display().to_string(), "kubectl");
    link(BINARY, "kubectl-flotilla");
    link(BINARY, "kubectl-karmada");
    Some(tools)
}

/// The lines of a table, with one blank between cells.
pub(crate) fn rows(text: &str) -> Vec<String> {
    let line = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.lines().map(line).collect()
}

/// Runs a command line of the binary on a terminal; `None` if the machine has no `script`, and
/// the test is recorded as skipped.
pub(crate) fn spawn_on_terminal(fixture: &CliFixture, line: &str) -> Option<Child> {
    let line = format!("{BINARY} {line}");
    let mut command = fixture.command_of("script", &["-qfec", &line, "/dev/null"]);
    // A closed standard input would end `script`.
    let spawned = command
        .env("SHELL", "/bin/sh")
        .stdin(Stdio::piped())
        .spawn();
    if spawned.is_err() {
        harness::tools::skip("script");
    }
    spawned.ok()
}
