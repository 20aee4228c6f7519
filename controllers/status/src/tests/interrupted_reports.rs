//! Tests of reports that fail, stop or go on although an apply or a cluster fails.

use super::*;

impl StatusFixture {
    /// Changes an object as another client would.
    fn change(&self, resource: &Gvr, namespace: &str, name: &str, change: impl FnOnce(&mut Value)) {
        let mut object = self.control.get_object(resource, namespace, name).unwrap();
        change(&mut object);
        self.control.seed(resource, object);
    }

    /// The reported ready replicas; zero if there is no status.
    fn reported_ready(control: &FakeApi, member: usize) -> i64 {
        let work = control.get_object(&WORKS, &format!("karmada-es-m{member}"), "web-1");
        let ready = &work.unwrap()["status"]["manifestStatuses"][0]["status"]["readyReplicas"];
        ready.as_i64().unwrap_or(0)
    }

    /// A fixture in which both members are ready and all statuses are written.
    async fn start_synced() -> Self {
        let plane = Self::new();
        plane.start();
        plane.set_member_ready(0, 1);
        plane.set_member_ready(1, 1);
        let all = |c: &FakeApi| {
            let conditions = Self::binding_of(c)["status"]["conditions"].clone();
            Self::ready(c) == 2 && conditions[1]["status"] == "True"
        };
        plane.wait_until(all).await;
        plane
    }

    fn event_messages(&self, kind: &str, reason: &str) -> Vec<String> {
        let mut all = self.control.list_objects(&EVENTS);
        all.retain(|e| e["reason"] == reason && e["involvedObject"]["kind"] == kind);
        all.iter()
            .map(|e| e["message"].as_str().unwrap().to_owned())
            .collect()
    }
}

/// The last version of the template could not be applied; the object in the member still exists.
// proves: STA-goes-on
#[tokio::test]
async fn followed_objects_are_reflected_although_an_apply_fails() {
    let plane = StatusFixture::start_synced().await;
    plane.change(&WORKS, "karmada-es-m0", "web-1", |work| {
        work["status"]["conditions"][0]["status"] = "False".into();
    });
    let item = |c: &FakeApi| StatusFixture::binding_of(c)["status"]["aggregatedStatus"][0].clone();
    let unapplied =
        json!({"clusterName": "m0", "appliedMessage": "no reason", "health": "Unknown"});
    plane.wait_until(|c| item(c) == unapplied).await;
    plane.set_member_ready(0, 0);
    plane
        .wait_until(|c| StatusFixture::reported_ready(c, 0) == 0)
        .await;
    assert_eq!(
        item(&plane.control),
        unapplied,
        "the binding reports no status"
    );
    plane.tasks.stop().await;
}

/// The process ended between the two writes of the scheduler, after the members had reported.
// proves: STA-binding-due
#[tokio::test]
async fn reports_are_aggregated_although_their_binding_is_seen_after_them() {
    let mut plane = StatusFixture::start_synced().await;
    plane.tasks.stop().await;
    plane.change(&BINDINGS, "n", "web-deployment", |binding| {
        binding["status"] = json!({});
    });
    plane.change(&DEPLOYMENTS, "n", "web", |template| {
        template["status"] = json!({});
    });
    plane.restart().await;
    plane.wait_until(|c| StatusFixture::ready(c) == 2).await;
    plane.tasks.stop().await;
}

// proves: STA-goes-on
#[tokio::test]
async fn followed_objects_are_reflected_although_the_cluster_is_not_ready() {
    let plane = StatusFixture::start_synced().await;
    plane.control.seed(&CLUSTERS, cluster("m1", "False"));
    plane.set_member_ready(1, 0);
    plane
        .wait_until(|c| StatusFixture::reported_ready(c, 1) == 0 && StatusFixture::ready(c) == 1)
        .await;
    plane.tasks.stop().await;
}

// proves: STA-gone-stays
#[tokio::test]
async fn the_last_status_of_a_deleted_object_stays() {
    let plane = StatusFixture::start_synced().await;
    plane.members[0].remove(&DEPLOYMENTS, "n", "web");
    plane.set_member_ready(1, 0);
    plane.wait_until(|c| StatusFixture::ready(c) == 1).await;
    assert_eq!(StatusFixture::reported_ready(&plane.control, 0), 1);
    plane.tasks.stop().await;
}

// proves: STA-failure-event, STA-retry
#[tokio::test]
async fn a_failed_status_write_has_an_event_and_is_retried() {
    let plane = StatusFixture::new();
    let rejection = parking_lot::Mutex::new(std::collections::HashSet::new());
    plane.control.on_call(move |call| {
        let resource = call.resource?;
        let is_status_patch = call.verb == "patch" && [&BINDINGS, &DEPLOYMENTS].contains(&resource);
        let first = is_status_patch && rejection.lock().insert(resource.clone());
        first.then(|| Error::from(Status::internal(format!("no {}", resource.resource))))
    });
    plane.start();
    plane.set_member_ready(0, 1);
    plane.set_member_ready(1, 1);
    for (kind, plural) in [
        ("ResourceBinding", "resourcebindings"),
        ("Deployment", "deployments"),
    ] {
        let text = format!("Internal error occurred: no {plural}");
        plane
            .wait_until(|_| {
                plane
                    .event_messages(kind, "AggregateStatusFailed")
                    .contains(&text)
            })
            .await;
    }
    plane.wait_until(|c| StatusFixture::ready(c) == 2).await;
    plane
        .wait_until(|c| StatusFixture::binding_of(c)["status"]["conditions"][1]["status"] == "True")
        .await;
    let succeeded = "AggregateStatusSucceed";
    let on_binding = "Update ResourceBinding(n/web-deployment) with AggregatedStatus successfully.";
    plane
        .wait_until(|_| {
            plane.event_messages("ResourceBinding", succeeded) == [on_binding]
                && plane.event_messages("Deployment", succeeded)
                    == ["Update Resource with AggregatedStatus successfully."]
        })
        .await;
    plane.tasks.stop().await;
}

// proves: STA-template
#[tokio::test]
async fn the_status_of_the_template_is_written_and_nothing_else() {
    let plane = StatusFixture::new();
    let mut template = deployment(json!({"conditions": [{"type": "Old"}], "replicas": 9}));
    template["metadata"]["labels"] = json!({"mine": "1"});
    plane.control.seed(&DEPLOYMENTS, template);
    plane.start();
    plane.set_member_ready(0, 1);
    plane.set_member_ready(1, 1);
    plane.wait_until(|c| StatusFixture::ready(c) == 2).await;
    plane.tasks.stop().await;
    let after = plane.control.get_object(&DEPLOYMENTS, "n", "web").unwrap();
    assert_eq!(
        after["status"]["replicas"], 2,
        "the previous status is not part of the aggregated one"
    );
    assert_eq!(after["metadata"]["labels"], json!({"mine": "1"}));
    let writes = plane.control.writes();
    let mut on_template = writes.iter().filter(|w| w.resource == DEPLOYMENTS);
    assert!(on_template.all(|w| w.subresource == "status"));
}

// proves: STA-collection-off
#[tokio::test]
async fn no_status_is_collected_where_the_work_says_so() {
    let fixture = StatusFixture::new();
    fixture.set_member_ready(0, 1);
    fixture.set_member_ready(1, 2);
    fixture.start();
    fixture
        .wait_until(|control| StatusFixture::ready(control) == 3)
        .await;
    let space = "karmada-es-m0";
    let mut work = fixture.control.get_object(&WORKS, space, "web-1").unwrap();
    work["metadata"]["annotations"] = json!({well_known_keys::STATUS_COLLECTION: "Disabled"});
    fixture.control.seed(&WORKS, work);
    fixture
        .wait_until(|control| {
            let work = control.get_object(&WORKS, space, "web-1").unwrap();
            work["status"]["manifestStatuses"] == json!([]) && StatusFixture::ready(control) == 2
        })
        .await;
    fixture.tasks.stop().await;
}
