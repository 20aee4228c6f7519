//! `kubectl logs` and `kubectl exec` in a simulated cluster, directly and through the cluster
//! proxy.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::Command;

use crate::compat::test_server::{BINARY, CompatTestServer};
use harness::http_client::{HttpTestClient, cluster_proxy_path, within_timeout};
use harness::process::{RunningCommand, run_with_input};

/// A control plane with one joined simulated cluster, `m1`.
pub(crate) struct ContainersFixture {
    pub(crate) control: CompatTestServer,
    member: CompatTestServer,
}

impl ContainersFixture {
    pub(crate) fn start() -> Self {
        let (control, member) = (CompatTestServer::start(), CompatTestServer::start_member());
        let mut join = Command::new(BINARY);
        join.args(["join", "m1", "--cluster-kubeconfig"])
            .arg(member.kubeconfig())
            .arg("--kubeconfig")
            .arg(control.kubeconfig());
        let joined = harness::process::run(&join);
        assert!(joined.status.success(), "{joined:?}");
        Self { control, member }
    }
}

/// A kubectl command for a server, whose URL has the path `prefix`.
fn kubectl_command(
    program: &Path,
    test_server: &CompatTestServer,
    prefix: &str,
    line: &str,
) -> Command {
    let mut command = Command::new(program);
    let server = format!("https://{}{prefix}", test_server.admin.address);
    command
        .arg("--kubeconfig")
        .arg(test_server.kubeconfig())
        .args(["--server", &server, "--cache-dir"])
        .arg(test_server.kubeconfig().with_extension("cache"))
        .args(line.split(' '));
    command
}

/// Runs a command to its end; returns its exit code, standard output and standard error.
fn run(command: &Command, input: &[u8]) -> (i32, Vec<u8>, String) {
    let out = run_with_input(command, input);
    let errors = String::from_utf8_lossy(&out.stderr).into_owned();
    (out.status.code().unwrap_or(-1), out.stdout, errors)
}

/// Runs a command until it has printed `count` lines, and kills it.
fn first_lines(command: &Command, count: usize) -> Vec<String> {
    let mut running = RunningCommand::start(command);
    let output = BufReader::new(running.child.stdout.take().unwrap());
    output.lines().take(count).map(Result::unwrap).collect()
}

async fn wait_until_ok(target: &HttpTestClient, path: &str) {
    within_timeout(path, async {
        while target.get(path).await.code != 200 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_logs_and_exec_work_directly_and_through_the_proxy() {
    let Some(kubectls) = harness::tools(["kubectl-old", "kubectl-new", "kubectl-1.36"]) else {
        return;
    };
    let fixture = tokio::task::spawn_blocking(ContainersFixture::start)
        .await
        .unwrap();
    wait_until_ok(&fixture.control.admin, &cluster_proxy_path("m1", "/api")).await;
    let prefix = cluster_proxy_path("m1", "");
    tokio::task::spawn_blocking(move || {
        let direct = (&fixture.member, "");
        let through = (&fixture.control, prefix.as_str());
        let run_kubectl = |line: &str| {
            run(
                &kubectl_command(&kubectls[1], through.0, through.1, line),
                b"",
            )
        };
        let created = run_kubectl("create deployment web --image=nginx:1.27 --replicas=2");
        assert_eq!(created.0, 0, "{created:?}");
        let ready = run_kubectl("wait --for=condition=Available --timeout=60s deployment/web");
        assert_eq!(ready.0, 0, "{ready:?}");
        for program in &kubectls {
            for (test_server, prefix) in [direct, through] {
                check_logs_and_exec(&|line: &str| {
                    kubectl_command(program, test_server, prefix, line)
                });
            }
        }
        for (test_server, prefix) in [direct, through] {
            check_websockets(&|line: &str| {
                kubectl_command(&kubectls[2], test_server, prefix, line)
            });
        }
    })
    .await
    .unwrap();
}

/// Checks that the newest kubectl uses WebSockets, without falling back to SPDY.
fn check_websockets(kubectl: &dyn Fn(&str) -> Command) {
    let (_, pods, _) = run(&kubectl("get pods -o name"), b"");
    let pods = String::from_utf8(pods).unwrap();
    let pod = pods.lines().next().unwrap();
    let (_, discovered, _) = run(&kubectl("get --raw /api/v1"), b"");
    let discovered = String::from_utf8(discovered).unwrap();
    for subresource in ["attach", "exec", "log", "portforward"] {
        let name = format!("\"pods/{subresource}\"");
        assert!(discovered.contains(&name), "{name}: {discovered}");
    }
    let (code, output, log) = run(&kubectl(&format!("exec -v=4 -i {pod} -- cat")), b"input");
    assert_eq!((code, output.as_slice()), (0, &b"input"[..]), "{log}");
    assert!(!log.to_lowercase().contains("fallback"), "{log}");
    let mut forward = RunningCommand::start(&kubectl(&format!("port-forward -v=4 {pod} :80")));
    let mut lines = BufReader::new(forward.child.stdout.take().unwrap()).lines();
    let line = lines.next().unwrap().unwrap();
    let address = line.strip_prefix("Forwarding from ").unwrap();
    let address = address.split(" -> ").next().unwrap();
    let mut connection = TcpStream::connect(address).unwrap();
    connection.write_all(b"ping").unwrap();
    connection.shutdown(Shutdown::Write).unwrap();
    let mut echoed = Vec::new();
    connection.read_to_end(&mut echoed).unwrap();
    let mut errors = forward.child.stderr.take().unwrap();
    drop(forward);
    let mut log = String::new();
    errors.read_to_string(&mut log).unwrap();
    let log = log.to_lowercase();
    assert_eq!(echoed, b"ping", "{log}");
    assert!(!log.contains("fallback"), "{log}");
}

/// Checks logs, watches and exec with one kubectl and one server.
fn check_logs_and_exec(kubectl: &dyn Fn(&str) -> Command) {
    let (_, pods, _) = run(&kubectl("get pods -o name"), b"");
    let pods = String::from_utf8(pods).unwrap();
    let pod = pods.lines().next().unwrap().strip_prefix("pod/").unwrap();
    let (code, log, errors) = run(&kubectl(&format!("logs {pod} --timestamps")), b"");
    let log = String::from_utf8(log).unwrap();
    assert_eq!(code, 0, "{errors}");
    let first_line = format!("hollow container nginx of default/{pod}: second 0");
    assert!(log.lines().next().unwrap().ends_with(&first_line), "{log}");
    // The container has not written the last of these lines when the command begins.
    let followed = first_lines(&kubectl(&format!("logs -f --tail=1 {pod}")), 3);
    let second = |line: &String| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    let seconds: Vec<u64> = followed.iter().map(second).collect();
    assert_eq!([seconds[0] + 1, seconds[0] + 2], seconds[1..]);
    let watched = first_lines(&kubectl("get pods -w"), 3);
    assert!(
        watched[1].starts_with("web-") && watched[2].starts_with("web-"),
        "{watched:?}"
    );

    let (code, output, errors) = run(&kubectl(&format!("exec {pod} -- say this and that")), b"");
    assert_eq!(
        (code, output.as_slice()),
        (0, &b"say this and that\n"[..]),
        "{errors}"
    );
    let (code, _, errors) = run(&kubectl(&format!("exec {pod} -- exit 7")), b"");
    assert_eq!(code, 7, "{errors}");
    let input: Vec<u8> = (0..200_000u32).flat_map(u32::to_le_bytes).collect();
    let (code, output, errors) = run(&kubectl(&format!("exec -i {pod} -- cat")), &input);
    assert_eq!(code, 0, "{errors}");
    assert!(output == input, "{} bytes of {}", output.len(), input.len());
    for (line, expected) in [
        (
            format!("logs {pod} -c other"),
            "container other is not valid for pod",
        ),
        (
            format!("logs {pod} --previous"),
            "previous terminated container",
        ),
        ("logs none".to_owned(), "pods \"none\" not found"),
        ("exec none -- date".to_owned(), "pods \"none\" not found"),
    ] {
        let (code, _, errors) = run(&kubectl(&line), b"");
        assert!(code == 1 && errors.contains(expected), "{line}: {errors}");
    }
}
