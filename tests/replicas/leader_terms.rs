//! One process that loses the lease and acquires it again: its controllers stop and restart.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use harness::ApiServerClient;
use harness::objects::{BINDINGS, deployment};

use crate::replicas::flotilla_process::{FAST_ELECTION_FLAGS, FlotillaProcess, join};
use crate::replicas::lease::{NAMESPACE, take_over, wait_for_leader, wait_until_held_by};
use crate::replicas::rollout::{policy_for_all_deployments, wait_until_rolled_out};

const NS: &str = "terms";
const OTHER_HOLDER: &str = "stranger";

/// Another holder, which does nothing, holds the lease until the process has noticed, and then
/// for 1.5 seconds more, in which no controller may create a binding for a new template.
async fn hold_lease_elsewhere(
    control: &ApiServerClient,
    node: &FlotillaProcess,
    round: usize,
    name: &str,
) {
    let lost = || node.log_text().matches("no longer leading").count();
    // Longer than this test may be held up between two renewals.
    while lost() <= round {
        take_over(control, OTHER_HOLDER, 60).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    control.create(deployment(NS, name, 1)).await;
    let end = Instant::now() + Duration::from_millis(1500);
    while Instant::now() < end {
        take_over(control, OTHER_HOLDER, 60).await;
        let binding = format!("{name}-deployment");
        let binding = control.get(&BINDINGS, NS, &binding).await;
        assert!(binding.is_none(), "a binding was created without the lease");
    }
    take_over(control, OTHER_HOLDER, 1).await;
}

#[tokio::test]
async fn controllers_stop_when_the_lease_is_lost_and_restart_when_it_is_acquired() {
    let node = FlotillaProcess::serve(&FAST_ELECTION_FLAGS);
    let control = node.connect("control plane");
    let first = wait_for_leader(&control, NAMESPACE).await;
    let nodes = [FlotillaProcess::member(), FlotillaProcess::member()];
    let mut members = Vec::new();
    for (n, member) in nodes.iter().enumerate() {
        let name = format!("member{}", n + 1);
        join(&name, member, &node.kubeconfig()).await;
        control.wait_until_cluster_ready(&name).await;
        members.push(member.connect(&name));
    }
    control.create_namespace(NS).await;
    control
        .create(policy_for_all_deployments(NS, &["member1", "member2"]))
        .await;
    let mut expected = BTreeSet::new();
    for n in 0..10 {
        let name = format!("first-{n}");
        control.create(deployment(NS, &name, 1)).await;
        expected.insert(name);
    }
    let mut before = wait_until_rolled_out(&control, &members, NS, &expected).await;
    for round in 0..3 {
        let name = format!("later-{round}");
        hold_lease_elsewhere(&control, &node, round, &name).await;
        let again = wait_until_held_by(&control, NAMESPACE, |holder| holder == first).await;
        assert!(again["leaseTransitions"].as_u64().unwrap() > 0, "{again}");
        expected.insert(name);
        let after = wait_until_rolled_out(&control, &members, NS, &expected).await;
        for (key, object) in &before {
            assert_eq!(after.get(key), Some(object), "written again: {key:?}");
        }
        before = after;
    }
    // Objects of earlier terms are still reconciled.
    let deleted = expected.pop_first().unwrap();
    control
        .delete(&harness::objects::DEPLOYMENTS, NS, &deleted)
        .await;
    for member in &members {
        member
            .wait_until_deleted(&harness::objects::DEPLOYMENTS, NS, &deleted)
            .await;
    }
    wait_until_rolled_out(&control, &members, NS, &expected).await;
}
