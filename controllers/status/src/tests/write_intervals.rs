//! How often the status of a binding with many clusters is written.

use super::*;

const CLUSTER_COUNT: usize = 100;

fn applied(control: &FakeApi) -> usize {
    let binding = StatusFixture::binding_of(control);
    let items = binding["status"]["aggregatedStatus"].as_array();
    let applied = items.into_iter().flatten();
    applied.filter(|item| item["applied"] == true).count()
}

// proves: STA-interval
#[tokio::test(start_paused = true)]
async fn reports_of_many_clusters_are_written_together() {
    let plane = StatusFixture::new();
    let names: Vec<String> = (0..CLUSTER_COUNT).map(|at| format!("m{at:02}")).collect();
    let mut binding = binding();
    binding["spec"]["clusters"] = names.iter().map(|name| json!({"name": name})).collect();
    plane.control.seed(&BINDINGS, binding);
    for name in &names {
        plane.control.seed(&WORKS, work(name, "False"));
    }
    plane.start();
    let items = |c: &FakeApi| StatusFixture::binding_of(c)["status"]["aggregatedStatus"].clone();
    plane
        .wait_until(|c| {
            items(c)
                .as_array()
                .is_some_and(|items| items.len() == CLUSTER_COUNT)
        })
        .await;
    plane.control.clear_writes();
    for name in &names {
        plane.control.seed(&WORKS, work(name, "True"));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    plane.wait_until(|c| applied(c) == CLUSTER_COUNT).await;
    let mut writes = plane.control.writes();
    writes.retain(|write| write.resource == BINDINGS);
    // Two seconds, in which a second is between two writes.
    assert!((1..=4).contains(&writes.len()), "{writes:?}");
    plane.tasks.stop().await;
}
