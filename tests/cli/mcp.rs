//! `flotilla mcp`, driven over its standard streams as an assistant drives it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};

use harness::objects::{deployment, policy};
use serde_json::{Value, json};

use crate::cli::fixture::{CliFixture, TIMEOUT};

/// A session of an assistant.
struct AssistantSession {
    process: Child,
    input: Option<ChildStdin>,
    messages: Receiver<String>,
    last_id: u64,
}

impl AssistantSession {
    /// Starts the server and initializes the session.
    fn start(fixture: &CliFixture, flags: &[&str]) -> Self {
        let mut session = Self::spawn(fixture, flags);
        let result = session.request(
            "initialize",
            &json!({"protocolVersion": "2025-06-18", "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"}}),
        );
        assert_eq!(
            result["result"]["protocolVersion"], "2025-06-18",
            "{result}"
        );
        assert_eq!(result["result"]["serverInfo"]["name"], "flotilla");
        session.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string());
        session
    }

    fn spawn(fixture: &CliFixture, flags: &[&str]) -> Self {
        let mut command = fixture.command(&[&["mcp"], flags].concat());
        let mut process = command
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (sender, messages) = channel();
        let output = BufReader::new(process.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self {
            input: process.stdin.take(),
            process,
            messages,
            last_id: 0,
        }
    }

    fn send(&mut self, line: &str) {
        let mut input = self.input.as_ref().unwrap();
        input.write_all(line.as_bytes()).unwrap();
        input.write_all(b"\n").unwrap();
    }

    /// The next message, which is one line of JSON-RPC.
    fn receive(&self) -> Value {
        let line = self.messages.recv_timeout(TIMEOUT).unwrap();
        let message: Value = machinery::json::from_str(&line).unwrap();
        assert_eq!(message["jsonrpc"], "2.0", "{line}");
        message
    }

    fn request(&mut self, method: &str, parameters: &Value) -> Value {
        self.last_id += 1;
        let id = self.last_id;
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": parameters});
        self.send(&request.to_string());
        let answer = self.receive();
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    fn tools(&mut self) -> Vec<String> {
        let answer = self.request("tools/list", &json!({}));
        let tools = answer["result"]["tools"].as_array().unwrap().iter();
        tools
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Calls a tool: whether it has failed, and its result.
    fn call(&mut self, tool: &str, arguments: Value) -> (bool, Value) {
        let answer = self.request("tools/call", &json!({"name": tool, "arguments": arguments}));
        let result = &answer["result"];
        let text = result["content"][0]["text"].as_str();
        let text = text.unwrap_or_else(|| panic!("{answer}"));
        let failed = result["isError"].as_bool().unwrap_or(false);
        (failed, machinery::json::from_str(text).unwrap())
    }

    /// Calls a tool that succeeds; returns its data.
    fn data(&mut self, tool: &str, arguments: Value) -> String {
        let (failed, result) = self.call(tool, arguments);
        assert!(!failed, "{tool}: {result}");
        result["data"].as_str().unwrap().to_owned()
    }

    /// Calls a tool that fails; returns the error.
    fn error(&mut self, tool: &str, arguments: Value) -> String {
        let (failed, result) = self.call(tool, arguments);
        assert!(failed, "{tool}: {result}");
        result["error"].as_str().unwrap().to_owned()
    }

    /// Closes standard input; the process ends by itself.
    fn end(mut self) {
        drop(self.input.take());
        let end = std::time::Instant::now() + TIMEOUT;
        loop {
            match self.process.try_wait().unwrap() {
                Some(status) => {
                    assert!(status.success(), "{status}");
                    return;
                }
                None => assert!(std::time::Instant::now() < end, "it does not end"),
            }
            harness::sleep_blocking(std::time::Duration::from_millis(20));
        }
    }
}

impl Drop for AssistantSession {
    fn drop(&mut self) {
        // It has ended if the test has passed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

// proves: MCP-tools, MCP-secrets, MCP-errors, MCP-data
#[test]
fn an_assistant_reads_the_fleet() {
    let fixture = CliFixture::shared();
    let mut session = AssistantSession::start(&fixture, &[]);
    let tools = ["why", "plan", "get", "history", "doctor", "rollout_status"];
    assert_eq!(session.tools(), tools);

    let web = json!({"resource": "deployment/web", "namespace": "default"});
    let explanation = session.data("why", web.clone());
    assert!(
        explanation.contains("PropagationPolicy default/web"),
        "{explanation}"
    );
    let table = session.data("get", json!({"resources": ["deployments"], "scope": "all"}));
    assert!(
        table.contains("member2") && table.contains("web"),
        "{table}"
    );
    let history = session.data("history", web.clone());
    assert!(!history.is_empty());
    let doctor = session.data("doctor", json!({}));
    assert!(doctor.contains("api-server"), "{doctor}");
    let staged = session.error("rollout_status", web);
    assert!(staged.contains("are not staged"), "{staged}");

    fixture.create(json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "mcp-secret", "namespace": "default"},
        "stringData": {"password": "correct-horse"}}));
    for resources in [json!(["secret/mcp-secret"]), json!(["secrets"])] {
        let shown = session.data("get", json!({"resources": resources, "output": "json"}));
        assert!(!shown.contains("Y29ycmVjdC1ob3JzZQ"), "{shown}");
        assert!(
            shown.contains("mcp-secret") && shown.contains("REDACTED"),
            "{shown}"
        );
    }

    for (tool, arguments, error) in [
        ("get", json!({"resources": ["nothing"]}), "no resource type"),
        (
            "get",
            json!({"resources": ["pods"], "watch": true}),
            "unknown field",
        ),
        ("get", json!({"resources": ["--watch"]}), "no resource type"),
        ("get", json!({"resources": []}), "You must specify the type"),
        ("why", json!({"resource": "web"}), "specify one resource"),
        ("why", json!({}), "missing field"),
        ("plan", json!({"manifest": "{"}), "unclosed bracket"),
        ("plan", json!({"manifest": "kind: Pod"}), "is no policy"),
        (
            "cordon_cluster",
            json!({"cluster": "member1"}),
            "--allow-writes",
        ),
    ] {
        let message = session.error(tool, arguments);
        let is_expected = message.to_lowercase().contains(&error.to_lowercase());
        assert!(is_expected, "{tool}: {message}");
    }
    let unknown = session.request("tools/call", &json!({"name": "exec", "arguments": {}}));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    session.end();
}

// proves: MCP-plan-first
#[test]
fn a_change_is_shown_before_it_is_made() {
    let fixture = CliFixture::start();
    let mut session = AssistantSession::start(&fixture, &["--allow-writes"]);
    assert!(session.tools().contains(&"apply_policies".to_owned()));
    let shop = deployment("default", "mcp-shop", 1);
    fixture.create(shop.clone());
    let on = |clusters: &[&str]| policy("default", "mcp-shop", &shop, clusters).to_string();
    let first = on(&["member1"]);
    let (_, planned) = session.call("plan", json!({"manifest": first}));
    let plan = planned["data"].as_str().unwrap();
    assert!(plan.contains("1 of 1 templates would move"), "{plan}");
    let token = planned["token"].as_str().unwrap().to_owned();
    let mut check_refusal = |manifest: &str, token: &str, error: &str| {
        let arguments = json!({"manifest": manifest, "token": token});
        let message = session.error("apply_policies", arguments);
        assert!(message.contains(error), "{message}");
    };
    check_refusal(&first, "0123", "no plan with this token");
    check_refusal(&on(&["member2"]), &token, "not as it was shown");
    check_refusal(&first, &token, "no plan with this token");
    let no_policy = fixture.run("get propagationpolicy mcp-shop");
    assert_eq!(no_policy.code, 1, "{no_policy:?}");

    let (_, planned) = session.call("plan", json!({"manifest": first}));
    let arguments = json!({"manifest": first, "token": planned["token"]});
    let applied = session.data("apply_policies", arguments);
    assert_eq!(applied, "propagationpolicy/default/mcp-shop created");
    fixture.wait_until_ready("default", "mcp-shop", 1);
    // A plan whose effect is another one by now is not carried out.
    let second = on(&["member1", "member2"]);
    let (_, planned) = session.call("plan", json!({"manifest": second}));
    session.data("plan", json!({"manifest": on(&["member2"])}));
    let unseen = on(&["member1\u{200b}"]);
    let (_, unseen) = session.call("plan", json!({"manifest": unseen}));
    assert!(unseen["token"].is_null(), "{unseen}");
    // Somebody else's change of the policy is not overwritten.
    let mut changed = policy("default", "mcp-shop", &shop, &["member1"]);
    changed["spec"]["preserveResourcesOnDeletion"] = json!(true);
    fixture.write("changed.json", changed.to_string());
    fixture.run("apply -f changed.json").succeeded();
    let arguments = json!({"manifest": second, "token": planned["token"]});
    let message = session.error("apply_policies", arguments);
    assert!(message.contains("not as it was shown"), "{message}");
    let (_, planned) = session.call("plan", json!({"manifest": second}));
    fixture.run("delete deployment mcp-shop").succeeded();
    let arguments = json!({"manifest": second, "token": planned["token"]});
    let message = session.error("apply_policies", arguments);
    assert!(message.contains("not as it was shown"), "{message}");
    check_cordon(&fixture, &mut session);
    session.end();
}

fn check_cordon(fixture: &CliFixture, session: &mut AssistantSession) {
    let (_, shown) = session.call("cordon_cluster", json!({"cluster": "member2"}));
    assert_eq!(shown["data"], "would be done: member2 cluster cordoned");
    let cordoned = || {
        fixture
            .run("get cluster member2")
            .succeeded()
            .contains("SchedulingDisabled")
    };
    assert!(!cordoned());
    let arguments = json!({"cluster": "member2", "token": shown["token"]});
    session.data("cordon_cluster", arguments);
    assert!(cordoned());
    let (_, shown) = session.call(
        "cordon_cluster",
        json!({"cluster": "member2", "uncordon": true}),
    );
    let arguments = json!({"cluster": "member2", "uncordon": true, "token": shown["token"]});
    session.data("cordon_cluster", arguments);
    assert!(!cordoned());
}

// proves: MCP-rollout
#[test]
fn a_rollout_is_paused_and_approved() {
    let fixture = CliFixture::shared();
    let mut session = AssistantSession::start(&fixture, &["--allow-writes"]);
    const NS: &str = "mcp-rollout";
    fixture.create(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}}));
    let api = deployment(NS, "api", 1);
    fixture.create(json!({"apiVersion": "rollout.flotilla.io/v1alpha1", "kind": "RolloutPolicy",
        "metadata": {"name": "api", "namespace": NS},
        "spec": {"resourceSelectors": [{"apiVersion": "apps/v1", "kind": "Deployment", "name": "api"}],
            "stages": [{"name": "first", "clusterAffinity": {"clusterNames": ["member1"]}},
                {"name": "rest", "gates": {"approval": true}}]}}));
    fixture.create(policy(NS, "api", &api, &["member1", "member2"]));
    fixture.create(api);
    fixture.wait_for_output("rollout status deployment/api -n mcp-rollout", |out| {
        out.contains("Completed, 2/2 clusters done")
    });
    let resource = json!({"resource": "deployment/api", "namespace": NS});
    let status = session.data("rollout_status", resource);
    assert!(status.contains("2/2 clusters done"), "{status}");
    let mut change = |action: &str, token: Option<&Value>| {
        let mut arguments =
            json!({"action": action, "resource": "deployment/api", "namespace": NS});
        if let Some(token) = token {
            arguments["token"] = token.clone();
        }
        session.call("change_rollout", arguments)
    };
    let (_, shown) = change("pause", None);
    let data = shown["data"].as_str().unwrap();
    assert!(
        data.starts_with("would be done: deployment/api paused"),
        "{data}"
    );
    let (failed, _) = change("resume", Some(&shown["token"]));
    assert!(failed, "nothing is paused, and the token is about a pause");
    let (_, shown) = change("pause", None);
    let (failed, done) = change("pause", Some(&shown["token"]));
    assert!(!failed && done["data"] == "deployment/api paused", "{done}");
    // A change is refused when the controller writes the Rollout just then.
    fixture.wait_for_output(
        "get rollouts.rollout.flotilla.io api-deployment -n mcp-rollout -o json",
        |out| {
            let rollout: Value = machinery::json::from_str(out).unwrap();
            rollout["status"]["observedGeneration"] == rollout["metadata"]["generation"]
        },
    );
    let (_, shown) = change("resume", None);
    assert!(!change("resume", Some(&shown["token"])).0);
    fixture
        .run("rollout restart deployment/api -n mcp-rollout")
        .succeeded();
    fixture.wait_for_output("rollout status deployment/api -n mcp-rollout", |out| {
        out.contains("AwaitingApproval in stage rest")
    });
    let (_, shown) = change("approve", None);
    assert!(!change("approve", Some(&shown["token"])).0);
    fixture.wait_for_output("rollout status deployment/api -n mcp-rollout", |out| {
        out.contains("Completed, 2/2 clusters done")
    });
    session.end();
}

// proves: MCP-protocol, CLI-examples
#[test]
fn malformed_and_huge_messages_end_nothing() {
    let fixture = CliFixture::shared();
    let mut session = AssistantSession::start(&fixture, &[]);
    let deep = "[".repeat(100_000);
    let huge = json!({"jsonrpc": "2.0", "id": 900, "method": "tools/call",
        "params": {"name": "plan", "arguments": {"manifest": "x".repeat(5 << 20)}}});
    for line in ["{", "", "\u{0}", &deep, &huge.to_string()] {
        session.send(line);
    }
    let pong = session.request("ping", &json!({}));
    assert_eq!(pong["result"], json!({}));
    let long = json!({"manifest": format!("a: {}", "y".repeat(3 << 20))});
    assert!(session.error("plan", long).contains("is no policy"));
    let deep = json!({"manifest": "[".repeat(100_000)});
    session.error("plan", deep);
    let unknown = session.request("no/such", &json!({}));
    assert_eq!(unknown["error"]["code"], -32601, "{unknown}");
    // A call that is canceled has no answer, and others go on.
    session.send(
        &json!({"jsonrpc": "2.0", "id": 901, "method": "tools/call",
        "params": {"name": "doctor", "arguments": {}}})
        .to_string(),
    );
    session.send(
        &json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": 901}})
        .to_string(),
    );
    assert_eq!(session.request("ping", &json!({}))["result"], json!({}));
    session.end();

    fixture.run_examples("mcp");
    // A client that goes away before it begins, and a server that is not there.
    AssistantSession::spawn(&fixture, &[]).end();
    let mut session = AssistantSession::start(&fixture, &["--kubeconfig", "missing"]);
    let error = session.error("doctor", json!({}));
    assert!(error.contains("missing"), "{error}");
    session.end();
}
