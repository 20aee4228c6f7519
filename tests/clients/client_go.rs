//! Runs the program on client-go.

use harness::daemon::parent_bound_command;

use crate::clients::{RestartableServer, StandaloneServer, run_over_restart};

#[test]
fn a_client_go_program_works_over_a_restart() {
    let mut server = StandaloneServer::start();
    if let Some(names) = run(&mut server, "built-in") {
        assert_eq!(names, ["a", "after", "applied"]);
    }
}

/// Dynamic and metadata-only clients on PropagationPolicies.
pub(crate) fn run_policies(server: &mut dyn RestartableServer) {
    let names = run(server, "policies");
    assert_eq!(names.unwrap(), ["a", "after", "applied"]);
}

/// The names in the program's view at its end. `None`: the program is not available.
fn run(server: &mut dyn RestartableServer, kinds: &str) -> Option<Vec<String>> {
    let [program] = harness::tools(["client-go"])?;
    let mut command = parent_bound_command(&program);
    command.arg(server.kubeconfig()).args(["client-go", kinds]);
    Some(run_over_restart(command, server))
}
