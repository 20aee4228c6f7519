//! Runs the program on client-go.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use harness::daemon::{parent_bound_command, spawn_bound};

use crate::RestartableServer;

#[test]
fn a_client_go_program_works_over_a_restart() {
    let Some([program]) = harness::tools(["client-go"]) else {
        return;
    };
    let mut server = RestartableServer::start();
    let mut command = parent_bound_command(&program);
    command
        .arg(server.kubeconfig())
        .arg("client-go")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = spawn_bound(command).unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.next().map(Result::unwrap);
    assert_eq!(line.as_deref(), Some("restart"), "its reason is above");
    server.restart();
    input.write_all(b"go on\n").unwrap();
    let view = lines.next().map(Result::unwrap).unwrap_or_default();
    assert!(child.wait().unwrap().success(), "its reason is above");
    let view: BTreeMap<String, String> = serde_json::from_str(&view).unwrap();
    let names: Vec<&str> = view.keys().map(String::as_str).collect();
    assert_eq!(names, ["a", "after", "applied", "kube-root-ca.crt"]);
}
