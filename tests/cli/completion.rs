//! Completion with the names that the control plane has: the binary as the function of a
//! shell runs it, bash itself, and kubectl for its plugin.

use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::time::Instant;

use serde_json::json;

use crate::cli::fixture::{BINARY, CliFixture, TIMEOUT};

/// The candidates for the last word of a line, as the functions for bash and zsh ask for
/// them. Standard error stays empty, and the exit code is 0.
fn complete(fixture: &CliFixture, line: &str) -> Vec<String> {
    let words: Vec<&str> = line.split(' ').collect();
    let index = words.len().to_string();
    let mut command = fixture.command(&["--", "flotilla"]);
    command
        .args(&words)
        .env("FLOTILLA_COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", index)
        .env("_CLAP_IFS", "\n");
    answer(command)
}

fn answer(mut command: Command) -> Vec<String> {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), &*errors), (Some(0), ""));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// The candidates that are no flags.
fn names(fixture: &CliFixture, line: &str) -> Vec<String> {
    let mut all = complete(fixture, line);
    all.retain(|candidate| !candidate.starts_with('-'));
    all
}

/// Asks until all of these candidates come. On a busy machine the answer of the control plane may
/// take longer than a shell waits, which then has none.
fn assert_completed(what: &str, expected: &[&str], ask: impl Fn() -> Vec<String>) {
    let end = Instant::now() + TIMEOUT;
    loop {
        let candidates = ask();
        if candidates == expected {
            return;
        }
        let is_late = candidates.len() < expected.len();
        assert!(is_late && Instant::now() < end, "{what}: {candidates:?}");
    }
}

fn assert_names(fixture: &CliFixture, line: &str, expected: &[&str]) {
    assert_completed(line, expected, || names(fixture, line));
}

// proves: CLI-completion
#[test]
fn names_of_the_control_plane_are_completed() {
    let fixture = CliFixture::shared();
    fixture.propagate_deployment("completed");
    let both = ["member1", "member2"];
    for line in [
        "cordon ",
        "uncordon mem",
        "drain ",
        "unjoin ",
        "unregister ",
        "taint clusters ",
        "get pods -C ",
        "get pods --clusters mem",
        "logs -C ",
        "exec web --cluster ",
        "top pod -C ",
        "promote configmap x -C ",
    ] {
        assert_names(&fixture, line, &both);
    }
    assert_names(&fixture, "cordon member1 ", &["member2"]);
    let list = ["member1,member1", "member1,member2"];
    assert_names(&fixture, "get pods -C member1,", &list);
    assert!(names(&fixture, "join mem").is_empty());
    for (line, expected) in [
        ("taint ", &["clusters"][..]),
        ("get deploy", &["deploy", "deployments"]),
        ("get pods,deploy", &["pods,deploy", "pods,deployments"]),
        ("delete propagationp", &["propagationpolicies"]),
        ("get deploy -n completed w", &["web"]),
        ("get deploy --namespace = completed w", &["web"]),
        ("get -n completed deploy/", &["deploy/web"]),
        ("get deploy web -n completed ", &[]),
        ("describe -n completed deployment ", &["web"]),
        ("why -n completed deployments.apps ", &["web"]),
        ("rebalance -n completed deploy/", &["deploy/web"]),
        ("rebalance deploym", &["deployments/"]),
        ("get deploy -n comp", &["completed"]),
        ("plan --namespace comp", &["completed"]),
        ("get pods --namespace = comp", &["completed"]),
        ("explain deploym", &["deployments"]),
        ("exec -C member1 pod -- ", &[]),
    ] {
        assert_names(&fixture, line, expected);
    }
    // A line that names a member completes the member's objects.
    for line in [
        "logs -C member1 -n completed ",
        "top pod -C member1 -n completed ",
    ] {
        assert_completed(line, &["web", "web"], || {
            let pods = names(&fixture, line).into_iter();
            pods.map(|pod| pod.split('-').next().unwrap().to_owned())
                .collect()
        });
    }
    assert!(names(&fixture, "get pods -n completed ").is_empty());
}

// proves: CLI-completion
#[test]
fn contexts_of_the_kubeconfig_are_completed() {
    let fixture = CliFixture::shared();
    let context = |name: &str| json!({"name": name, "context": {"cluster": "c", "user": "u"}});
    for (file, name) in [("planes.kubeconfig", "plane"), ("ms.kubeconfig", "member")] {
        let contexts = [context(&format!("{name}-a")), context(&format!("{name}-b"))];
        let config = json!({"apiVersion": "v1", "kind": "Config", "contexts": contexts});
        fixture.write(file, config.to_string());
    }
    let planes = ["plane-a", "plane-b"];
    for line in [
        "get --kubeconfig planes.kubeconfig --karmada-context ",
        "logs --kubeconfig=planes.kubeconfig --karmada-context pl",
        "install --kubeconfig planes.kubeconfig --context ",
    ] {
        assert_eq!(names(&fixture, line), planes, "{line}");
    }
    let members = ["member-a", "member-b"];
    let line = "join m --cluster-kubeconfig ms.kubeconfig --cluster-context ";
    assert_eq!(names(&fixture, line), members);
}

// proves: CLI-completion
#[test]
fn commands_and_flags_are_completed_where_they_are_typed() {
    let fixture = CliFixture::shared();
    assert_eq!(complete(&fixture, "cord"), ["cordon"]);
    assert_eq!(complete(&fixture, "cordon --dry"), ["--dry-run"]);
    assert_eq!(complete(&fixture, "logs --clus"), ["--cluster"]);
    // No flags are among the names.
    let both = ["member1", "member2"];
    assert_completed("cordon", &both, || complete(&fixture, "cordon "));
    let scopes = complete(&fixture, "get pods -s ");
    assert_eq!(scopes, ["karmada", "members", "all"]);
}

// proves: CLI-completion-failures
#[test]
fn what_cannot_be_asked_completes_nothing() {
    let fixture = CliFixture::shared();
    // One server refuses connections, the other accepts them and does not answer.
    let silent = TcpListener::bind("127.0.0.2:0").unwrap();
    let refusing = TcpListener::bind("127.0.0.2:0").unwrap();
    for (name, listener) in [("silent", &silent), ("refusing", &refusing)] {
        let server = format!("https://{}", listener.local_addr().unwrap());
        let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": true}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {"token": "t"}}]});
        fixture.write_kubeconfig(name, &config);
    }
    drop(refusing);
    fixture.write("malformed.kubeconfig", "{");
    for name in ["silent", "refusing", "missing", "malformed"] {
        for line in ["cordon ", "get ", "get deploy ", "get deploy -n "] {
            let (command, rest) = line.split_once(' ').unwrap();
            let line = format!("{command} --kubeconfig {name}.kubeconfig {rest}");
            let candidates = names(&fixture, &line);
            assert!(candidates.is_empty(), "{line}: {candidates:?}");
        }
    }
    for line in ["get --karmada-context nowhere ", "get widgets ", "moon "] {
        assert!(names(&fixture, line).is_empty(), "{line}");
    }
}

// proves: CLI-completion
#[test]
fn bash_completes_names_after_the_script_is_loaded() {
    let fixture = CliFixture::shared();
    let path = fixture.dir().join("bash-path");
    std::fs::create_dir_all(&path).unwrap();
    let _ = symlink(BINARY, path.join("flotilla"));
    let script = r#"
        source <(flotilla completion bash)
        complete -p flotilla
        COMP_TYPE=9
        COMP_WORDS=(flotilla get --namespace = default deploy w) COMP_CWORD=6
        _clap_complete_flotilla flotilla w deploy
        printf '%s\n' "${COMPREPLY[@]}"
        COMP_WORDS=(flotilla get pods --clusters = mem) COMP_CWORD=5
        _clap_complete_flotilla flotilla mem =
        printf '%s\n' "${COMPREPLY[@]}"
        COMP_WORDS=(flotilla cordon "") COMP_CWORD=2
        _clap_complete_flotilla flotilla "" cordon
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let expected = ["web", "member1", "member2", "member1", "member2"];
    assert_completed("bash", &expected, || {
        let mut command = fixture.command_of("bash", &["--norc", "--noprofile", "-c", script]);
        command.env("PATH", format!("{}:/usr/bin:/bin", path.display()));
        // The first line is about the function that completes.
        let mut candidates = answer(command).split_off(1);
        candidates.retain(|candidate| !candidate.is_empty());
        candidates
    });
}

// proves: CLI-completion
#[test]
fn every_shell_gets_a_script_and_its_own_format() {
    let fixture = CliFixture::shared();
    for (shell_name, line) in [
        ("bash", "complete -o nospace"),
        ("zsh", "#compdef flotilla"),
        ("fish", "complete --keep-order"),
        ("powershell", "Register-ArgumentCompleter"),
        ("elvish", "edit:completion"),
    ] {
        let script = fixture.run(&format!("completion {shell_name}")).succeeded();
        assert!(script.contains(line), "{shell_name}: {script}");
        assert!(
            script.contains("FLOTILLA_COMPLETE"),
            "{shell_name}: {script}"
        );
        assert_completed(shell_name, &["member2"], || {
            let mut command = fixture.command(&["--", "flotilla", "cordon", "member1", ""]);
            command
                .env("FLOTILLA_COMPLETE", shell_name)
                .env("_CLAP_COMPLETE_INDEX", "3");
            answer(command)
        });
    }
    let mut command = fixture.command(&["--", "flotilla", "cordon", ""]);
    command.env("FLOTILLA_COMPLETE", "tcsh");
    assert!(answer(command).is_empty());
}

// proves: CLI-completion
#[test]
fn kubectl_completes_its_plugin() {
    let Some(fixture) = CliFixture::shared_with_tools() else {
        return;
    };
    let readme = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    let start = readme.find("#!/bin/sh\nFLOTILLA_COMPLETE").unwrap();
    let script = readme[start..].split("```").next().unwrap();
    let file = fixture.dir().join("tools/kubectl_complete-flotilla");
    std::fs::write(&file, script).unwrap();
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    for (words, expected) in [
        (&["cordon", "mem"][..], &["member1", "member2", ":4"][..]),
        (&["get", "deploy", "we"], &["web", ":4"]),
    ] {
        let words = [&["__complete", "flotilla"], words].concat();
        assert_completed(&words.join(" "), expected, || {
            let output = fixture.command_of("kubectl", &words).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout);
            text.lines().map(str::to_owned).collect()
        });
    }
}
