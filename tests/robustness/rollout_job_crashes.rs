//! Kills a server with SIGKILL after each write of a rollout whose stages await Jobs: of the Rollout and
//! of the Work of a Job, on the embedded store and on etcd. The first Job does not
//! complete, and a retry runs the next one. The members, which are not killed, have seen each Job once.

use std::time::Duration;

use client::{ListOptions, ResourcePath, WatchEvent, WatchOptions, WatchStream};
use futures_util::StreamExt;
use futures_util::stream::select_all;
use harness::objects::{
    CRON_JOBS, DEPLOYMENTS, JOBS, ROLLOUTS, WORKS, deployment, pod_template, policy,
    resource_selector,
};
use harness::{ApiServerClient, EtcdCluster, etcd};
use karmada_api::rollout::JOB_OF;
use machinery::Object;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::replicas::flotilla_process::{FlotillaProcess, join};

const NAMESPACE: &str = "rollout-job-crashes";
const ROLLOUT: &str = "web-deployment";
/// Each has a stage of its own.
const MEMBERS: [&str; 2] = ["member1", "member2"];
/// The Jobs of a stage: that of the first one is run again.
const JOBS_OF_STAGES: [usize; 2] = [2, 1];
/// Three Jobs, for each of which its name, itself, its status and its end are written.
const MIN_WRITES: usize = 12;
const MAX_WRITES: usize = 120;
const WRITE_TIMEOUT: Duration = Duration::from_secs(90);

// proves: ROL-job-crash, ROL-job-once
#[harness::slow]
#[tokio::test(flavor = "multi_thread")]
async fn each_job_runs_once_whenever_the_server_is_killed() {
    run_jobs_under_kills(&[]).await;
}

// proves: ROL-job-crash, ROL-job-once
#[harness::slow]
#[tokio::test(flavor = "multi_thread")]
async fn each_job_runs_once_whenever_the_server_on_etcd_is_killed() {
    let Some(etcd) = tokio::task::block_in_place(|| EtcdCluster::start(etcd::VERSION_3_5, 1))
    else {
        return;
    };
    let servers = format!("--etcd-servers={}", etcd.endpoints());
    run_jobs_under_kills(&[&servers, "--leader-elect=false"]).await;
}

async fn run_jobs_under_kills(flags: &[&str]) {
    let mut server = tokio::task::block_in_place(|| FlotillaProcess::serve(flags));
    let control = server.connect("control plane");
    let mut members = Vec::new();
    for name in MEMBERS {
        let member = tokio::task::block_in_place(FlotillaProcess::member);
        join(name, &member, &server.kubeconfig()).await;
        control.wait_until_cluster_ready(name).await;
        members.push((member.connect(name), member));
    }
    let first = prepare_rollout(&control).await;
    let mut created = Vec::new();
    for (client, _) in &members {
        created.push(watch_jobs(client).await);
    }
    let change = json!({"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}});
    control
        .merge_patch(&DEPLOYMENTS, NAMESPACE, "web", change)
        .await;
    let mut last = first["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let (mut history, mut kills, mut has_retried) = (vec![first.clone()], 0, false);
    while !has_ended(&first, history.last().unwrap()) {
        assert!(kills < MAX_WRITES, "no end: {history:#?}");
        let control = server.connect("control plane");
        if history.last().unwrap()["status"]["state"] == "JobFailed" && !has_retried {
            retry_with_repaired_job(&control, history.last().unwrap()).await;
            has_retried = true;
        }
        let written = next_write(&control, last).await;
        server.kill();
        kills += 1;
        last = written.revision().max(last);
        if written.name() == ROLLOUT {
            history.push(written.value().unwrap());
        }
        tokio::task::block_in_place(|| server.restart());
    }
    assert!(kills >= MIN_WRITES, "{kills} kills: {history:#?}");
    assert!(has_retried, "{history:#?}");
    let names = check_history(&history);
    for (i, (client, _)) in members.iter().enumerate() {
        let mut created = created_jobs(client, created.remove(0)).await;
        created.sort_unstable();
        assert_eq!(created, names[i], "{}", client.name);
    }
}

/// Whether a rollout has ended since the first one.
fn has_ended(first: &Value, rollout: &Value) -> bool {
    rollout["status"]["state"] == "Completed"
        && rollout["status"]["targetRevision"] != first["status"]["targetRevision"]
}

/// Lets both members have a first revision; the Job of the next one cannot complete.
async fn prepare_rollout(control: &ApiServerClient) -> Value {
    control.create_namespace(NAMESPACE).await;
    control.create(cron_job("fake/smoke")).await;
    let web = deployment(NAMESPACE, "web", 1);
    let stages = MEMBERS.map(|member| {
        json!({"name": member, "clusterAffinity": {"clusterNames": [member]},
            "gates": {"job": {"cronJob": "smoke"}}})
    });
    control
        .create(
            json!({"apiVersion": "rollout.flotilla.io/v1alpha1", "kind": "RolloutPolicy",
            "metadata": {"name": "web", "namespace": NAMESPACE},
            "spec": {"resourceSelectors": [resource_selector(&web)], "stages": stages,
                "progressDeadline": "20s"}}),
        )
        .await;
    control.create(web.clone()).await;
    control
        .create(policy(NAMESPACE, "web", &web, &MEMBERS))
        .await;
    control
        .wait_until(&ROLLOUTS, NAMESPACE, ROLLOUT, "Completed", |rollout| {
            rollout["status"]["state"] == "Completed"
        })
        .await
}

fn cron_job(image: &str) -> Value {
    let mut pods = pod_template("smoke");
    pods["spec"]["restartPolicy"] = "Never".into();
    pods["spec"]["containers"][0]["image"] = image.into();
    json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "smoke", "namespace": NAMESPACE},
        "spec": {"schedule": "@yearly", "suspend": true, "jobTemplate": {"spec": {"template": pods}}}})
}

async fn retry_with_repaired_job(control: &ApiServerClient, rollout: &Value) {
    let repaired = json!({"spec": cron_job("nginx:1.27")["spec"]});
    control
        .merge_patch(&CRON_JOBS, NAMESPACE, "smoke", repaired)
        .await;
    let retry = json!({"revision": rollout["status"]["targetRevision"], "number": 1});
    let retry = json!({"spec": {"retry": retry}});
    control
        .merge_patch(&ROLLOUTS, NAMESPACE, ROLLOUT, retry)
        .await;
}

async fn watch_from(
    control: &ApiServerClient,
    at: ResourcePath<'_>,
    options: &ListOptions,
    revision: u64,
) -> WatchStream {
    let options = WatchOptions {
        resource_version: revision.to_string(),
        label_selector: options.label_selector.clone(),
        ..WatchOptions::default()
    };
    control.api.watch(at, &options).await.unwrap()
}

/// The next write of a Rollout or of the Work of a Job after a revision.
async fn next_write(control: &ApiServerClient, last: u64) -> Object {
    let search = async {
        loop {
            let mut watches = Vec::new();
            for (resource, namespace, label) in [(&ROLLOUTS, NAMESPACE, ""), (&WORKS, "", JOB_OF)] {
                let at = ResourcePath::collection(resource, namespace);
                let options = ListOptions {
                    label_selector: label.to_owned(),
                    ..ListOptions::default()
                };
                let list = control.api.list(at, &options).await.unwrap();
                let newer = list.items.into_iter().filter(|o| o.revision() > last);
                if let Some(object) = newer.min_by_key(Object::revision) {
                    return object;
                }
                watches.push(watch_from(control, at, &options, list.revision).await);
            }
            let mut events = select_all(watches);
            while let Some(Ok(event)) = events.next().await {
                if let WatchEvent::Added(object)
                | WatchEvent::Modified(object)
                | WatchEvent::Deleted(object) = event
                {
                    return object;
                }
            }
        }
    };
    let next = timeout(WRITE_TIMEOUT, search).await;
    next.unwrap_or_else(|_| panic!("no write follows the revision {last}"))
}

/// The events of the Jobs of a member from now on.
async fn watch_jobs(member: &ApiServerClient) -> WatchStream {
    let at = ResourcePath::collection(&JOBS, NAMESPACE);
    let list = member.api.list(at, &ListOptions::default()).await.unwrap();
    watch_from(member, at, &ListOptions::default(), list.revision).await
}

/// The names of the Jobs that a member has got, as often as it has got them. A last one ends them.
async fn created_jobs(member: &ApiServerClient, mut events: WatchStream) -> Vec<String> {
    let template = cron_job("nginx:1.27")["spec"]["jobTemplate"].clone();
    let mut end = json!({"apiVersion": "batch/v1", "kind": "Job", "spec": template["spec"]});
    end["metadata"] = json!({"name": "end", "namespace": NAMESPACE});
    member.create(end).await;
    let mut names = Vec::new();
    loop {
        let event = timeout(WRITE_TIMEOUT, events.next()).await.unwrap();
        if let WatchEvent::Added(job) = event.unwrap().unwrap() {
            if job.name() == "end" {
                return names;
            }
            names.push(job.name().to_owned());
        }
    }
}

/// Checks that no stage began before the Job of the one before; returns the names of the Jobs of each
/// stage.
fn check_history(history: &[Value]) -> [Vec<String>; 2] {
    let mut names = [Vec::new(), Vec::new()];
    for rollout in history {
        let status = &rollout["status"];
        let stage = |i: usize| &status["stages"][i];
        for (i, names) in names.iter_mut().enumerate() {
            if let Some(name) = stage(i)["job"]["name"].as_str()
                && !names.contains(&name.to_owned())
            {
                names.push(name.to_owned());
            }
        }
        let is_change = status["targetRevision"] != history[0]["status"]["targetRevision"];
        let has_target = stage(1)["clusters"][0]["revision"] == status["targetRevision"];
        if is_change && has_target {
            assert_eq!(stage(0)["job"]["state"], "Succeeded", "{rollout:#}");
        }
    }
    let status = &history.last().unwrap()["status"];
    for (i, expected) in JOBS_OF_STAGES.into_iter().enumerate() {
        assert_eq!(
            status["stages"][i]["job"]["state"], "Succeeded",
            "{status:#}"
        );
        assert_eq!(names[i].len(), expected, "{history:#?}");
        names[i].sort_unstable();
    }
    assert_eq!(status["startedJobs"], 3, "{status:#}");
    names
}
