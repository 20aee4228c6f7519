//! Runs the programs on the Python client, on kopf and on kr8s.

use std::path::Path;
use std::process::Command;

use harness::daemon::{TestDir, parent_bound_command};
use harness::port;

use crate::clients::{RestartableServer, StandaloneServer, run_over_restart};

const TOOLS: [&str; 1] = ["python-clients"];

/// The command that runs a program of this folder.
fn python(server: &dyn RestartableServer, program: &str) -> Command {
    let [python] = harness::tools(TOOLS).unwrap();
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients");
    let mut command = parent_bound_command(&python);
    command
        .arg(programs.join(program))
        .env("KUBECONFIG", server.kubeconfig())
        .env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

#[test]
fn the_python_client_works_over_a_restart() {
    let Some(_) = harness::tools(TOOLS) else {
        return;
    };
    let mut server = StandaloneServer::start();
    let mut command = python(&server, "python_client.py");
    command.args(["python", "v1", "ConfigMap"]);
    let names = run_over_restart(command, &mut server);
    assert_eq!(names, ["a", "after", "applied"]);
}

pub(crate) fn run_client_on_policies(server: &mut dyn RestartableServer) {
    let mut command = python(server, "python_client.py");
    command.args(["python", "policy.karmada.io/v1alpha1", "PropagationPolicy"]);
    let names = run_over_restart(command, server);
    assert_eq!(names, ["a", "after", "applied"]);
}

/// Reads and writes the objects of all members of the fleet view.
pub(crate) fn run_kr8s_on_fleet(
    server: &mut dyn RestartableServer,
    kubeconfig: &Path,
    namespace: &str,
) {
    let mut command = python(server, "kr8s_client.py");
    command.arg(kubeconfig).arg(namespace);
    let names = run_over_restart(command, server);
    assert_eq!(names, ["a", "after"]);
}

/// Runs the operator, whose admission server has a self-signed authority as its certificate,
/// as the servers of many operators have.
fn run_operator(
    server: &mut dyn RestartableServer,
    mut command: Command,
    [group, version, plural, kind]: [&str; 4],
) -> Vec<String> {
    let dir = TestDir::new();
    let mut certificate = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
    certificate.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate = certificate.self_signed(&key).unwrap();
    let files = [dir.path().join("tls.crt"), dir.path().join("tls.key")];
    std::fs::write(&files[0], certificate.pem()).unwrap();
    std::fs::write(&files[1], key.serialize_pem()).unwrap();
    let port = port::free_port().to_string();
    command
        .args(["kopf", group, version, plural, kind, &port])
        .args(&files);
    run_over_restart(command, server)
}

#[test]
fn a_kopf_operator_works_over_a_restart() {
    let Some(_) = harness::tools(TOOLS) else {
        return;
    };
    let mut server = StandaloneServer::start();
    let command = python(&server, "kopf_operator.py");
    let things = ["operator.example.io", "v1", "things", "Thing"];
    let names = run_operator(&mut server, command, things);
    assert_eq!(names, ["a"]);
}

pub(crate) fn run_operator_of_policies(server: &mut dyn RestartableServer) {
    let command = python(server, "kopf_operator.py");
    let policies = [
        "policy.karmada.io",
        "v1alpha1",
        "propagationpolicies",
        "PropagationPolicy",
    ];
    let names = run_operator(server, command, policies);
    assert_eq!(names, ["a"]);
}
