//! One process that loses the lease and acquires it again: its controllers stop and restart.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use harness::Server;
use harness::objects::{BINDINGS, deployment};

use crate::lease::{NAMESPACE, leader, take, until_held};
use crate::processes::{FAST, Node, join};
use crate::rollout::{everything, until_exact};

const NS: &str = "terms";
const STRANGER: &str = "stranger";

/// Another holder, which does nothing, holds the lease until the process has noticed, and then
/// for 1.5 seconds more, in which no controller may create a binding for a new template.
async fn taken_away(control: &Server, node: &Node, round: usize, name: &str) {
    let lost = || node.said().matches("no longer leading").count();
    while lost() <= round {
        take(control, STRANGER, 3).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    control.create(deployment(NS, name, 1)).await;
    let end = Instant::now() + Duration::from_millis(1500);
    while Instant::now() < end {
        take(control, STRANGER, 3).await;
        let binding = format!("{name}-deployment");
        let binding = control.get(&BINDINGS, NS, &binding).await;
        assert!(binding.is_none(), "a binding was created without the lease");
    }
}

#[tokio::test]
async fn controllers_stop_when_the_lease_is_lost_and_restart_when_it_is_acquired() {
    let node = Node::serve(&FAST);
    let control = node.connect("control plane");
    let first = leader(&control, NAMESPACE).await;
    let nodes = [Node::member(), Node::member()];
    let mut members = Vec::new();
    for (n, member) in nodes.iter().enumerate() {
        let name = format!("member{}", n + 1);
        join(&name, member, &node.kubeconfig()).await;
        control.until_ready(&name).await;
        members.push(member.connect(&name));
    }
    control.namespace(NS).await;
    control
        .create(everything(NS, &["member1", "member2"]))
        .await;
    let mut expected = BTreeSet::new();
    for n in 0..10 {
        let name = format!("first-{n}");
        control.create(deployment(NS, &name, 1)).await;
        expected.insert(name);
    }
    let mut before = until_exact(&control, &members, NS, &expected).await;
    for round in 0..3 {
        let name = format!("later-{round}");
        taken_away(&control, &node, round, &name).await;
        let again = until_held(&control, NAMESPACE, |holder| holder == first).await;
        assert!(again["leaseTransitions"].as_u64().unwrap() > 0, "{again}");
        expected.insert(name);
        let after = until_exact(&control, &members, NS, &expected).await;
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
            .until_gone(&harness::objects::DEPLOYMENTS, NS, &deleted)
            .await;
    }
    until_exact(&control, &members, NS, &expected).await;
}
