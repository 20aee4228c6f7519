//! Reads and watches at resourceVersions that are those of some members, of all, or of none yet.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

fn encoded(revisions: &[(&str, u64)]) -> String {
    let revisions = revisions.iter();
    let by_cluster: BTreeMap<String, u64> = revisions
        .map(|(cluster, revision)| ((*cluster).to_owned(), *revision))
        .collect();
    MultiClusterResourceVersion::ByCluster(by_cluster).encode()
}

// proves: SRC-resume
#[tokio::test]
async fn a_watch_begins_in_each_member_as_its_resource_version_says() {
    let fixture = SearchFixture::with_registry([&["a"], &["b"]]).await;
    let listed = fixture.list(MemberListRequest::default()).await.unwrap();
    let version = MultiClusterResourceVersion::parse(&listed.resource_version).unwrap();
    let revisions = ["m1", "m2"].map(|cluster| version.revision(cluster).unwrap());
    fixture.members[0].seed(&MAPS, map("ns", "later-a"));
    fixture.members[1].seed(&MAPS, map("ns", "later-b"));
    for (cluster, name) in [("m1", "later-a"), ("m2", "later-b")] {
        let is_cached = async || fixture.cache.get(&MAPS, "ns", name, "").await.is_ok();
        wait_until(is_cached).await;
        assert_eq!(
            fixture.cache.find_cluster(&MAPS, "ns", name).await.unwrap(),
            cluster
        );
    }
    let all = ["m1/a", "m1/later-a", "m2/b", "m2/later-b"];
    for (text, expected) in [
        ("0".to_owned(), &all[..]),
        (encoded(&[("m1", revisions[0]), ("m2", 0)]), &all[1..]),
        (encoded(&[("m1", revisions[0])]), &all[1..]),
        (
            listed.resource_version.clone(),
            &["m1/later-a", "m2/later-b"],
        ),
    ] {
        let mut watch = fixture.watch(&text).await.unwrap();
        let mut objects = BTreeSet::new();
        for _ in expected {
            let (line, _) = next_event(&mut watch).await.unwrap().unwrap();
            objects.insert(line.replace("ADDED ", ""));
        }
        assert_eq!(Vec::from_iter(objects), expected, "{text}");
    }
    fixture.stop().await;
}

// proves: SRC-too-new
#[tokio::test(start_paused = true)]
async fn a_read_waits_for_its_resource_version() {
    let fixture = SearchFixture::with_registry([&["a"], &[]]).await;
    let next = fixture.members[0].revision() + 1;
    let get = async |text: &str| fixture.cache.get(&MAPS, "ns", "a", text).await;
    let list = async |resource_version: String| {
        let request = MemberListRequest {
            resource_version,
            ..MemberListRequest::default()
        };
        fixture.list(request).await
    };
    let rejection = get(&encoded(&[("m1", next + 9)])).await.unwrap_err();
    let rejections = [
        rejection,
        list(encoded(&[("m1", next + 9)])).await.unwrap_err(),
    ];
    for status in rejections {
        assert_eq!(status.code, 504);
        assert!(status.has_cause("ResourceVersionTooLarge"), "{status:?}");
        assert!(status.message.starts_with("cluster \"m1\": "), "{status:?}");
    }
    let (page, _) = tokio::join!(list(encoded(&[("m1", next)])), async {
        fixture.members[0].seed(&MAPS, map("ns", "b"));
    });
    assert_eq!(names(&page.unwrap().items), ["m1/a", "m1/b"]);
    fixture.stop().await;
}
