//! `rollout`: a change is followed, paused, resumed, approved and undone.

use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::{Duration, Instant};

use harness::objects::{CONTROLLER_REVISIONS, deployment, policy, resource_selector};
use harness::process::lines_of;
use harness::{FlotillaUpProcess, tools};
use serde_json::{Value, json};

use crate::cli::fixture::{BINARY, CliFixture};

const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// A command of the README, and a line that it prints.
struct TourStep {
    command: String,
    printed: Option<String>,
}

fn rollout_policy(template: &Value, gates: &Value) -> Value {
    json!({"apiVersion": "rollout.flotilla.io/v1alpha1", "kind": "RolloutPolicy",
    "metadata": {"name": template["metadata"]["name"], "namespace": "default"},
    "spec": {"resourceSelectors": [resource_selector(template)], "stages": [
        {"name": "first", "clusterAffinity": {"clusterNames": ["member1"]}},
        {"name": "everywhere", "gates": gates},
    ]}})
}

// proves: ROL-watch-unplaced
#[test]
fn a_watch_does_not_end_before_the_template_is_placed() {
    let fixture = CliFixture::shared();
    let late = deployment("default", "late", 1);
    fixture.create(rollout_policy(&late, &json!({})));
    fixture.create(late.clone());
    fixture.create(policy("default", "late", &late, &["unjoined"]));
    let none = |out: &str| out.starts_with("deployment/late: Completed, 0/0 clusters done");
    fixture.wait_for_output("rollout status deploy/late", none);
    let mut watch = fixture.spawn(&["rollout", "status", "deploy/late", "-w"]);
    let lines = lines_of(&mut watch.child);
    let first = lines.recv_timeout(STEP_TIMEOUT).unwrap();
    assert!(none(&first), "{first}");
    let placed = policy("default", "late", &late, &["member1"]);
    fixture.write("late.json", placed.to_string());
    fixture.run("apply -f late.json").succeeded();
    let mut last = String::new();
    while let Ok(line) = lines.recv_timeout(STEP_TIMEOUT) {
        last = line;
    }
    assert_eq!(last, "deployment/late: Completed, 1/1 clusters done");
    watch.wait_for_success();
}

/// Deletes a ControllerRevision and creates it again with other data, which no update may have.
fn replace_revision(fixture: &CliFixture, name: &str, change: impl FnOnce(&mut Value)) {
    let mut revision = fixture.json(&format!("get controllerrevisions {name}"));
    fixture.delete(&CONTROLLER_REVISIONS, "default", name);
    let metadata = revision["metadata"].as_object_mut().unwrap();
    metadata.remove("uid");
    metadata.remove("resourceVersion");
    change(&mut revision);
    fixture.create(revision);
}

// proves: ROL-commands, ROL-undo-forged, CLI-plan-rollout
#[test]
fn a_change_is_paused_resumed_and_approved() {
    let fixture = CliFixture::shared();
    let staged = deployment("default", "staged", 1);
    let approval = json!({"approval": true});
    fixture.create(rollout_policy(&staged, &approval));
    fixture.create(staged.clone());
    fixture.create(policy(
        "default",
        "staged",
        &staged,
        &["member1", "member2"],
    ));
    let status = "rollout status deploy/staged";
    let wait_for = |state: &str| {
        let line = format!("deployment/staged: {state}");
        fixture.wait_for_output(status, |out| out.starts_with(&line));
    };
    wait_for("Completed, 2/2 clusters done");
    fixture.run("rollout status deploy/staged -w").succeeded();
    fixture
        .run("rollout resume deploy/staged")
        .failed_with("deployment/staged is not paused");
    let printed = fixture.run("rollout pause deploy/staged").succeeded();
    assert_eq!(printed, "deployment/staged paused\n");
    let mut changed = staged;
    changed["spec"]["template"]["metadata"]["annotations"] = json!({"v": "2"});
    fixture.write("staged.json", changed.to_string());
    let plan = fixture.run("plan -f staged.json");
    assert_eq!(plan.code, 1, "{plan:?}");
    for text in [
        "RolloutPolicy/staged stages the change, first is the first stage (Paused)",
        "spec.template.metadata.annotations",
    ] {
        assert!(plan.out.contains(text), "no {text:?} in {plan:?}");
    }
    let plan = fixture.run("plan -f staged.json -o json").out;
    let plan: Value = machinery::json::from_str(&plan).unwrap();
    let clusters = plan["changes"][0]["clusters"].as_array().unwrap();
    let clusters: Vec<_> = clusters
        .iter()
        .map(|c| [&c["stage"], &c["reason"]])
        .collect();
    let stays = [["first", "Paused"], ["everywhere", "WaitingForStage"]];
    assert_eq!(json!(clusters), json!(stays), "{plan:#}");
    fixture.run("rollout resume deploy/staged").succeeded();
    let plan = fixture.run("plan -f staged.json").out;
    assert!(
        plan.contains("first is the first stage (Progressing)"),
        "{plan}"
    );
    let first = plan.lines().find(|line| line.starts_with("member1"));
    assert!(
        first.is_some_and(|line| line.contains("the change")),
        "{plan}"
    );
    fixture.run("rollout pause deploy/staged").succeeded();
    fixture.run("apply -f staged.json").succeeded();
    wait_for("Paused in stage first, 0/2 clusters done");
    fixture.run("rollout approve deploy/staged").failed_with(
        "no stage of deployment/staged waits for an approval yet; those that will are everywhere",
    );
    fixture.run("rollout resume deploy/staged").succeeded();
    wait_for("AwaitingApproval in stage everywhere, 1/2 clusters done");
    let rows = fixture.run(status).succeeded();
    assert!(rows.contains("everywhere   member2   Blocked"), "{rows}");
    fixture
        .run("rollout approve deploy/staged --stage nowhere")
        .failed_with("deployment/staged has no stage \"nowhere\"");
    let printed = fixture.run("rollout approve deploy/staged").succeeded();
    assert_eq!(printed, "deployment/staged approved for stage everywhere\n");
    wait_for("Completed, 2/2 clusters done");
    let history = fixture.run("rollout history deploy/staged").succeeded();
    let rows: Vec<Vec<&str>> = history
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows.len(), 3, "{history}");
    assert_eq!(
        (rows[1][0], rows[1][2], rows[2][0], rows[2][2]),
        ("1", "0", "2", "2"),
        "{history}"
    );
    fixture
        .run("rollout undo deploy/staged --to-revision 9")
        .failed_with("unable to find specified revision 9");
    replace_revision(&fixture, rows[1][1], |revision| {
        revision["data"]["template"]["spec"]["paused"] = json!(true);
    });
    fixture
        .run("rollout undo deploy/staged")
        .failed_with("its data is not the one that its name stands for");
    replace_revision(&fixture, rows[1][1], |revision| {
        let spec = revision["data"]["template"]["spec"].as_object_mut();
        spec.unwrap().remove("paused");
    });
    let printed = fixture.run("rollout undo deploy/staged").succeeded();
    assert_eq!(printed, "deployment/staged rolled back to revision 1\n");
    wait_for("AwaitingApproval in stage everywhere, 1/2 clusters done");
    let printed = fixture
        .run("rollout undo deploy/staged --to-revision 3")
        .succeeded();
    assert_eq!(printed, "deployment/staged already has revision 3\n");
    let template = fixture.json("get deploy staged");
    assert_eq!(template["spec"]["replicas"], 1);
    assert_eq!(
        template["spec"]["template"]["metadata"].get("annotations"),
        None
    );
}

// proves: CLI-lost-stage, CLI-rollout-without-clusters, CLI-plan-unpropagated, ROL-lost-stage-approved
#[test]
fn a_stage_that_loses_its_clusters_is_let_go_by_a_person() {
    let fixture = CliFixture::shared();
    let mut canary = deployment("default", "canary", 1);
    fixture.create(canary.clone());
    let stages = rollout_policy(&canary, &json!({}));
    let both = policy("default", "canary", &canary, &["member1", "member2"]);
    fixture.write("canary.json", format!("{both}\n---\n{stages}"));
    let plan = fixture.run("plan -f canary.json").out;
    let later = "Deployment default/canary: it is not propagated yet: its first revision goes to all clusters at once, and RolloutPolicy/canary would stage later changes";
    assert!(plan.contains(later), "{plan}");
    fixture.run("apply -f canary.json").succeeded();
    let status = "rollout status deploy/canary";
    let wait_for = |state: &str| {
        let line = format!("deployment/canary: {state}");
        fixture.wait_for_output(status, |out| out.starts_with(&line));
    };
    wait_for("Completed, 2/2 clusters done");
    fixture.run("rollout pause deploy/canary").succeeded();
    canary["spec"]["template"]["metadata"]["annotations"] = json!({"v": "2"});
    fixture.write("canary.json", canary.to_string());
    fixture.run("apply -f canary.json").succeeded();
    wait_for("Paused in stage first, 0/2 clusters done");
    let moved = policy("default", "canary", &canary, &["member2"]);
    fixture.write("canary.json", moved.to_string());
    let warning =
        "stage first of its rollout has not ended and would lose its last cluster (member1)";
    let plan = fixture.run("plan -f canary.json").out;
    assert!(plan.contains(warning), "{plan}");
    let drain = |cluster: &str| fixture.run(&format!("drain {cluster} --dry-run")).out;
    assert!(drain("member1").contains(warning));
    assert!(!drain("member2").contains(warning));
    fixture.run("apply -f canary.json").succeeded();
    fixture.run("rollout resume deploy/canary").succeeded();
    wait_for(
        "AwaitingCluster in stage first, 0/1 clusters done: all clusters of stage first have left before they had ended: member1",
    );
    fixture
        .run("rollout approve deploy/canary")
        .failed_with("flotilla rollout approve with --stage first --without-clusters lets it pass");
    let printed = fixture
        .run("rollout approve deploy/canary --without-clusters")
        .succeeded();
    let expected = "deployment/canary approved for stage first without its clusters\n";
    assert_eq!(printed, expected);
    wait_for("Completed, 1/1 clusters done");
    fixture
        .run("rollout approve deploy/canary --stage everywhere --without-clusters")
        .failed_with("stage everywhere of deployment/canary has not lost its clusters");
}

// proves: CLI-plan-rollout-policy
#[test]
fn a_changed_rollout_policy_is_planned() {
    let fixture = CliFixture::shared();
    let mut planned = deployment("default", "planned", 1);
    let members = ["member1", "member2"];
    fixture.create(planned.clone());
    fixture.create(policy("default", "planned", &planned, &members));
    let gated = rollout_policy(&planned, &json!({"approval": true}));
    let write = |documents: &[&Value]| {
        let documents: Vec<String> = documents.iter().map(ToString::to_string).collect();
        fixture.write("stages.json", documents.join("\n---\n"));
    };
    let has_row = |out: &str, cells: &[&str]| {
        let mut rows = out.lines().map(|line| line.split_whitespace());
        rows.any(|row| row.take(cells.len()).eq(cells.iter().copied()))
    };
    write(&[&gated]);
    let both = |out: &str| {
        has_row(out, &["member1", "first", "-", "stays"])
            && has_row(out, &["member2", "everywhere", "-", "stays"])
    };
    fixture.wait_for_output("plan -f stages.json", both);
    let plan = fixture.run("plan -f stages.json").succeeded();
    let line = "Deployment default/planned: RolloutPolicy/planned would stage its changes";
    assert!(plan.contains(line), "{plan}");
    fixture
        .run("get rolloutpolicy planned")
        .failed_with("not found");
    // A change that comes with the policy is not staged by it.
    planned["spec"]["template"]["metadata"]["annotations"] = json!({"v": "2"});
    write(&[&gated, &planned]);
    let plan = fixture.run("plan -f stages.json");
    assert_eq!(plan.code, 1, "{plan:?}");
    for text in [
        "RolloutPolicy/planned lets all clusters get the change at once",
        "spec.template.metadata.annotations",
        "let the Rollout complete before the change",
    ] {
        assert!(plan.out.contains(text), "no {text:?} in {plan:?}");
    }
    fixture.create(gated.clone());
    let status = "rollout status deploy/planned";
    let completed = "deployment/planned: Completed, 2/2 clusters done";
    fixture.wait_for_output(status, |out| out.starts_with(completed));
    fixture.write("planned.json", planned.to_string());
    fixture.run("apply -f planned.json").succeeded();
    let waits = "deployment/planned: AwaitingApproval in stage everywhere, 1/2";
    fixture.wait_for_output(status, |out| out.starts_with(waits));
    // Without the gate, the next stage begins.
    write(&[&rollout_policy(&planned, &json!({}))]);
    let plan = fixture.run("plan -f stages.json");
    assert_eq!(plan.code, 1, "{plan:?}");
    let begins = "everywhere is the first stage that has not ended (Progressing)";
    assert!(plan.out.contains(begins), "{plan:?}");
    let row = plan.out.lines().find(|line| line.starts_with("member2"));
    assert!(
        row.is_some_and(|row| row.contains("the change")),
        "{plan:?}"
    );
    let mut other = gated;
    other["metadata"]["name"] = "other".into();
    other["spec"]["resourceSelectors"][0]["name"] = "nothing".into();
    write(&[&other]);
    let plan = fixture.run("plan -f stages.json").succeeded();
    assert!(plan.contains("stage the changes of no template"), "{plan}");
    other["spec"]["stages"][1]["maxConcurrency"] = 0.into();
    write(&[&other]);
    let plan = fixture.run("plan -f stages.json");
    assert_eq!(plan.code, 2, "{plan:?}");
    assert!(
        plan.errors.contains("spec.stages[1].maxConcurrency"),
        "{plan:?}"
    );
}

// proves: ROL-watch-created
#[test]
fn a_watch_awaits_the_rollout_of_a_policy_that_has_just_been_created() {
    let fixture = CliFixture::shared();
    let early = deployment("default", "early", 1);
    fixture.create(early.clone());
    fixture.create(policy("default", "early", &early, &["member1"]));
    let mut watch = fixture.spawn(&["rollout", "status", "deploy/early", "-w"]);
    let lines = lines_of(&mut watch.child);
    fixture.create(rollout_policy(&early, &json!({})));
    let mut last = String::new();
    while let Ok(line) = lines.recv_timeout(STEP_TIMEOUT) {
        last = line;
    }
    assert_eq!(last, "deployment/early: Completed, 1/1 clusters done");
    watch.wait_for_success();
}

#[test]
fn templates_that_are_not_staged_are_named() {
    let fixture = CliFixture::shared();
    fixture.create(deployment("default", "unstaged", 1));
    for (line, message) in [
        (
            "deploy/unstaged",
            "the changes of deployment/unstaged are not staged",
        ),
        ("deploy/nothing", "deployments.apps \"nothing\" not found"),
        ("namespace/default", "namespace/default is cluster-scoped"),
    ] {
        fixture
            .run(&format!("rollout status {line}"))
            .failed_with(message);
    }
}

// proves: ROL-commands, ROL-restart-pods, ROL-abort, ROL-retry
#[test]
fn the_examples_of_the_help_work() {
    let fixture = CliFixture::shared();
    let mut api = deployment("default", "api", 1);
    fixture.create(rollout_policy(&api, &json!({})));
    fixture.create(api.clone());
    fixture.create(policy("default", "api", &api, &["member1", "member2"]));
    let is_completed = |out: &str| out.contains("Completed, 2/2 clusters done");
    fixture.wait_for_output("rollout status deployment/api", is_completed);
    api["spec"]["template"]["metadata"]["annotations"] = json!({"v": "2"});
    fixture.write("api.json", api.to_string());
    fixture.run("apply -f api.json").succeeded();
    fixture.wait_for_output("rollout status deployment/api", is_completed);
    fixture.run_examples("rollout");
    fixture.run_examples("rollout resume");
    fixture.run_examples("rollout status");
    fixture.run_examples("rollout history");
    fixture.run_examples("rollout pause");
    fixture.run_examples("rollout approve");
    fixture.run_examples("rollout undo");
    fixture.run_examples("rollout restart");
    let restarted = fixture.json("get deploy api");
    let annotations = &restarted["spec"]["template"]["metadata"]["annotations"];
    assert!(
        annotations["kubectl.kubernetes.io/restartedAt"].is_string(),
        "{restarted}"
    );
    let wait_for = |state: &str| {
        let line = format!("deployment/api: {state}");
        fixture.wait_for_output("rollout status deployment/api", |out| {
            out.starts_with(&line)
        });
    };
    wait_for("Paused");
    fixture
        .run("rollout retry deployment/api")
        .failed_with("no cluster and no Job of deployment/api has failed");
    fixture.run_examples("rollout abort");
    wait_for("RolledBack");
    fixture
        .run("rollout abort deployment/api")
        .failed_with("deployment/api is already rolled back");
    fixture.run_examples("rollout retry");
    wait_for("Paused");
}

/// The steps of the README's tour about a rollout.
fn tour_steps() -> Vec<TourStep> {
    let readme = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = std::fs::read_to_string(readme).unwrap();
    let mut blocks = readme.split("```console");
    let block = blocks.find(|block| block.contains("kind: RolloutPolicy"));
    let block = block.unwrap().split("```").next().unwrap();
    let mut steps: Vec<TourStep> = Vec::new();
    let mut is_input = false;
    for line in block.lines().filter(|line| !line.is_empty()) {
        if let Some(command) = line.strip_prefix("$ ") {
            is_input = command.ends_with("<<EOF");
            steps.push(TourStep {
                command: command.to_owned(),
                printed: None,
            });
            continue;
        }
        let step = steps.last_mut().unwrap();
        if is_input {
            step.command += &format!("\n{line}");
            is_input = line != "EOF";
        } else if line != "..." {
            step.printed.get_or_insert_with(|| line.to_owned());
        }
    }
    steps
}

#[test]
fn the_rollout_of_the_readme_can_be_repeated() {
    let Some([kubectl]) = tools(["kubectl-1.36"]) else {
        return;
    };
    let up = FlotillaUpProcess::start(BINARY, 3, &[]);
    let programs = up.dir().join("programs");
    std::fs::create_dir(&programs).unwrap();
    symlink(BINARY, programs.join("flotilla")).unwrap();
    symlink(kubectl, programs.join("kubectl")).unwrap();
    let run = |step: &TourStep| {
        let output = Command::new("sh")
            .args(["-e", "-c", &step.command.replace("10s", "1s")])
            .env("PATH", format!("{}:/usr/bin:/bin", programs.display()))
            .env("HOME", up.dir())
            .env("KUBECONFIG", up.dir().join("kubeconfig"))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success(), text + &errors)
    };
    let steps = tour_steps();
    assert!(steps.len() > 5, "{} steps", steps.len());
    for step in steps {
        let end = Instant::now() + STEP_TIMEOUT;
        loop {
            let (succeeded, text) = run(&step);
            let Some(printed) = &step.printed else {
                assert!(succeeded, "{}: {text}", step.command);
                break;
            };
            if succeeded && text.lines().any(|line| line == printed) {
                break;
            }
            assert!(Instant::now() < end, "{}: {text}", step.command);
            harness::sleep_blocking(Duration::from_millis(200));
        }
    }
}
