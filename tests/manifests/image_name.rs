//! The image of Flotilla is one setting of each way to install: its name and version by default, and
//! one value that replaces it everywhere.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use harness::tools;
use serde_json::Value;

use crate::manifests::chart::run_helm;
use crate::manifests::install::{parse_objects, run_command, run_flotilla};
use crate::manifests::{manifest_path, root};

const IMAGE: &str = concat!("flotilla:", env!("CARGO_PKG_VERSION"));
const OTHER_IMAGE: &str = "registry.example.com/fleet/flotilla:v2";

/// The images of all containers in the documents, but for that of etcd.
fn images(text: &str) -> BTreeSet<String> {
    let objects = parse_objects(text);
    let templates = objects.values().map(|object| &object["spec"]["template"]);
    let containers = templates.flat_map(|template| {
        let containers = template["spec"]["containers"].as_array();
        containers.cloned().unwrap_or_default()
    });
    let images = containers.filter_map(|container| container["image"].as_str().map(str::to_owned));
    images.filter(|image| !image.contains("etcd")).collect()
}

async fn template(helm: &Path, chart: &str, values: &str) -> String {
    let chart = manifest_path(chart).display().to_string();
    let text = run_helm(helm, &["template", "flotilla", &chart, "--set", values]).await;
    let documents = text.split("\n---\n").filter(|d| d.contains("kind:"));
    documents.collect::<Vec<_>>().join("\n---\n")
}

/// The manifests of `manifests/install` through an overlay with this image, as a user writes one.
async fn kustomize(kubectl: &Path, images: &str) -> String {
    let dir = tempfile::tempdir().unwrap();
    let base = manifest_path("install").canonicalize().unwrap();
    let overlay = dir.path().canonicalize().unwrap();
    // kustomize accepts relative paths only.
    let up = "../".repeat(overlay.components().count() - 1);
    let base = base.strip_prefix("/").unwrap().display().to_string();
    let text = format!("resources: [{up}{base}]\n{images}");
    std::fs::write(overlay.join("kustomization.yaml"), text).unwrap();
    let mut command = Command::new(kubectl);
    command.arg("kustomize").arg(overlay);
    run_command(command, String::new()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_image_is_that_of_this_version_unless_one_setting_replaces_it() {
    let Some([helm, kubectl]) = tools(["helm", "kubectl-new"]) else {
        return;
    };
    let expected = |image: &str| BTreeSet::from([image.to_owned()]);
    let (name, tag) = OTHER_IMAGE.rsplit_once(':').unwrap();

    assert_eq!(images(&run_flotilla(&["install"]).await), expected(IMAGE));
    let installed = run_flotilla(&["install", "--image", OTHER_IMAGE]).await;
    assert_eq!(images(&installed), expected(OTHER_IMAGE));

    let overlay = kustomize(&kubectl, "").await;
    assert_eq!(images(&overlay), expected(IMAGE));
    let setting = format!("images: [{{name: flotilla, newName: {name}, newTag: {tag}}}]\n");
    let overlay = kustomize(&kubectl, &setting).await;
    assert_eq!(images(&overlay), expected(OTHER_IMAGE));

    for (chart, values) in [("chart", "replicas=2"), ("agent-chart", "clusterName=a")] {
        let rendered = template(&helm, chart, values).await;
        assert_eq!(images(&rendered), expected(IMAGE), "{chart}");
        let values = format!("{values},image.repository={name},image.tag={tag}");
        let rendered = template(&helm, chart, &values).await;
        assert_eq!(images(&rendered), expected(OTHER_IMAGE), "{chart}");
        let file = root().join(format!("manifests/{chart}/Chart.yaml"));
        let file: Value = serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        for field in ["version", "appVersion"] {
            assert_eq!(file[field], env!("CARGO_PKG_VERSION"), "{chart}");
        }
    }

    let help = run_flotilla(&["register", "--help"]).await;
    assert!(help.contains(&format!("[default: {IMAGE}]")), "{help}");
}
