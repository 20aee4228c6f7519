//! Runs the program on client-go.

use std::path::Path;

use harness::daemon::parent_bound_command;

use crate::clients::{RestartableServer, StandaloneServer, run_over_restart};

#[test]
fn a_client_go_program_works_over_a_restart() {
    let mut server = StandaloneServer::start();
    let kubeconfig = server.kubeconfig().to_owned();
    if let Some(names) = run(&mut server, &kubeconfig, ["client-go", "built-in"]) {
        assert_eq!(names, ["a", "after", "applied"]);
    }
}

/// Dynamic and metadata-only clients on PropagationPolicies.
pub(crate) fn run_policies(server: &mut dyn RestartableServer) {
    let kubeconfig = server.kubeconfig().to_owned();
    let names = run(server, &kubeconfig, ["client-go", "policies"]);
    assert_eq!(names.unwrap(), ["a", "after", "applied"]);
}

/// Informers of three kinds on the Secrets of all members.
pub(crate) fn run_fleet(server: &mut dyn RestartableServer, kubeconfig: &Path, namespace: &str) {
    let names = run(server, kubeconfig, [namespace, "fleet"]);
    assert_eq!(names.unwrap(), ["a", "after"]);
}

/// The names in the program's view at its end. `None`: the program is not available.
fn run(
    server: &mut dyn RestartableServer,
    kubeconfig: &Path,
    namespace_and_kinds: [&str; 2],
) -> Option<Vec<String>> {
    let [program] = harness::tools(["client-go"])?;
    let mut command = parent_bound_command(&program);
    command.arg(kubeconfig).args(namespace_and_kinds);
    Some(run_over_restart(command, server))
}
