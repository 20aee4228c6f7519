//! Logs and commands of containers at simulated clusters, with kubectl, directly and
//! through the proxy.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::plane::{BINARY, Plane};
use harness::target::{Target, proxied, soon};

/// A control plane with one cluster, in which a Deployment has two ready pods.
struct Lab {
    control: Plane,
    member: Plane,
}

impl Lab {
    fn start() -> Self {
        let (control, member) = (Plane::start(), Plane::member());
        let joined = Command::new(BINARY)
            .args(["join", "m1", "--cluster-kubeconfig"])
            .arg(member.kubeconfig())
            .arg("--kubeconfig")
            .arg(control.kubeconfig())
            .output()
            .unwrap();
        assert!(joined.status.success(), "{joined:?}");
        Self { control, member }
    }
}

/// kubectl at a server, straight or with a path before everything.
fn kubectl(program: &Path, plane: &Plane, prefix: &str, line: &str) -> Command {
    let mut command = Command::new(program);
    let server = format!("https://{}{prefix}", plane.admin.address);
    command
        .arg("--kubeconfig")
        .arg(plane.kubeconfig())
        .args(["--server", &server, "--cache-dir"])
        .arg(plane.kubeconfig().with_extension("cache"))
        .args(line.split(' '))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Runs to the end; its code, what it printed and what it complained of.
fn run(mut command: Command, input: &[u8]) -> (i32, Vec<u8>, String) {
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let feeding = std::thread::spawn(move || {
        let _ = stdin.write_all(&input);
    });
    let out = child.wait_with_output().unwrap();
    feeding.join().unwrap();
    let complaint = String::from_utf8_lossy(&out.stderr).into_owned();
    (out.status.code().unwrap_or(-1), out.stdout, complaint)
}

/// The first lines of a command that does not end by itself.
fn lines(mut command: Command, count: usize) -> Vec<String> {
    let mut child = command.spawn().unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let lines = output.lines().take(count).map(Result::unwrap).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    lines
}

async fn until_ok(target: &Target, path: &str) {
    soon(path, async {
        while target.get(path).await.code != 200 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_listens_and_talks_to_containers_also_through_the_proxy() {
    let Some(kubectls) = harness::tools(["kubectl-old", "kubectl-new"]) else {
        return;
    };
    let lab = tokio::task::spawn_blocking(Lab::start).await.unwrap();
    until_ok(&lab.control.admin, &proxied("m1", "/api")).await;
    let prefix = proxied("m1", "");
    tokio::task::spawn_blocking(move || {
        let straight = (&lab.member, "");
        let through = (&lab.control, prefix.as_str());
        let ask = |line: &str| run(kubectl(&kubectls[1], through.0, through.1, line), b"");
        let made = ask("create deployment web --image=nginx:1.27 --replicas=2");
        assert_eq!(made.0, 0, "{made:?}");
        let ready = ask("wait --for=condition=Available --timeout=60s deployment/web");
        assert_eq!(ready.0, 0, "{ready:?}");
        for program in &kubectls {
            for (plane, prefix) in [straight, through] {
                talk(&|line: &str| kubectl(program, plane, prefix, line));
            }
        }
    })
    .await
    .unwrap();
}

/// Everything that is said with one kubectl over one way.
fn talk(kubectl: &dyn Fn(&str) -> Command) {
    let (_, pods, _) = run(kubectl("get pods -o name"), b"");
    let pods = String::from_utf8(pods).unwrap();
    let pod = pods.lines().next().unwrap().strip_prefix("pod/").unwrap();
    let (code, log, complaint) = run(kubectl(&format!("logs {pod} --timestamps")), b"");
    let log = String::from_utf8(log).unwrap();
    assert_eq!(code, 0, "{complaint}");
    let said = format!("hollow container nginx of default/{pod}: second 0");
    assert!(log.lines().next().unwrap().ends_with(&said), "{log}");
    // The line after the next one is not said yet when the command begins.
    let followed = lines(kubectl(&format!("logs -f --tail=1 {pod}")), 3);
    let second = |line: &String| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    let seconds: Vec<u64> = followed.iter().map(second).collect();
    assert_eq!([seconds[0] + 1, seconds[0] + 2], seconds[1..]);
    let shown = lines(kubectl("get pods -w"), 3);
    assert!(
        shown[1].starts_with("web-") && shown[2].starts_with("web-"),
        "{shown:?}"
    );

    let (code, said, complaint) = run(kubectl(&format!("exec {pod} -- say this and that")), b"");
    assert_eq!(
        (code, said.as_slice()),
        (0, &b"say this and that\n"[..]),
        "{complaint}"
    );
    let (code, _, complaint) = run(kubectl(&format!("exec {pod} -- exit 7")), b"");
    assert_eq!(code, 7, "{complaint}");
    let input: Vec<u8> = (0..200_000u32).flat_map(u32::to_le_bytes).collect();
    let (code, said, complaint) = run(kubectl(&format!("exec -i {pod} -- cat")), &input);
    assert_eq!(code, 0, "{complaint}");
    assert!(said == input, "{} bytes of {}", said.len(), input.len());
    for (line, wanted) in [
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
        let (code, _, complaint) = run(kubectl(&line), b"");
        assert!(
            code == 1 && complaint.contains(wanted),
            "{line}: {complaint}"
        );
    }
}
