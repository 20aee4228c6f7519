//! One process that loses the lease and wins it again.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use harness::Server;
use harness::objects::{BINDINGS, deployment};

use crate::lease::{NAMESPACE, leader, take, until_held};
use crate::processes::{FAST, Node, join};
use crate::rollout::{everything, until_exact};

const NS: &str = "terms";
const STRANGER: &str = "stranger";

/// Leadership goes to somebody who does nothing with it, until the process has
/// noticed and again until it would have made something of a new template.
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
        let made = control.get(&BINDINGS, NS, &binding).await;
        assert!(made.is_none(), "a binding was made without leading");
    }
}

#[tokio::test]
async fn controllers_end_with_the_lease_and_go_on_with_the_next() {
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
    let mut wanted = BTreeSet::new();
    for n in 0..10 {
        let name = format!("first-{n}");
        control.create(deployment(NS, &name, 1)).await;
        wanted.insert(name);
    }
    let mut before = until_exact(&control, &members, NS, &wanted).await;
    for round in 0..3 {
        let name = format!("later-{round}");
        taken_away(&control, &node, round, &name).await;
        let again = until_held(&control, NAMESPACE, |holder| holder == first).await;
        assert!(again["leaseTransitions"].as_u64().unwrap() > 0, "{again}");
        wanted.insert(name);
        let after = until_exact(&control, &members, NS, &wanted).await;
        for (place, object) in &before {
            assert_eq!(after.get(place), Some(object), "written again: {place:?}");
        }
        before = after;
    }
    // What was there before the last term is still looked after.
    let gone = wanted.pop_first().unwrap();
    control
        .delete(&harness::objects::DEPLOYMENTS, NS, &gone)
        .await;
    for member in &members {
        member
            .until_gone(&harness::objects::DEPLOYMENTS, NS, &gone)
            .await;
    }
    until_exact(&control, &members, NS, &wanted).await;
}
