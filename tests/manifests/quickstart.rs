//! The README's way to install Flotilla on a cluster: Helm waits until its pods run, and with the
//! arguments of these pods a member joins and gets its first object.
//!
//! The host has no real nodes: a hollow kubelet runs the pods, and the programs run on this machine.

use harness::tools;

use crate::manifests::chart::{chart, render_in, run_helm};
use crate::manifests::install::{InstallHost, check_installed_flotilla};
use crate::manifests::root;

const NAMESPACE: &str = "flotilla-system";

/// The arguments of the README's `helm install`, with the chart at its path here.
fn helm_arguments() -> Vec<String> {
    let readme = std::fs::read_to_string(root().join("README.md")).unwrap();
    let mut lines = readme.lines();
    let line = lines.find_map(|line| line.strip_prefix("helm "));
    let words = line.unwrap().split_whitespace();
    let words = words.map(|word| match word {
        "manifests/chart" => chart(),
        other => other.to_owned(),
    });
    words.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quickstart_of_the_readme_installs_and_propagates() {
    let Some([helm]) = tools(["helm"]) else {
        return;
    };
    let Some(host) = InstallHost::start().await else {
        return;
    };
    let mut words = helm_arguments();
    assert!(words.contains(&NAMESPACE.to_owned()), "{words:?}");
    // Without server-side apply: the status that Kubernetes 1.20 writes takes fields of the StatefulSet.
    words.extend(["--server-side=false", "--kubeconfig"].map(str::to_owned));
    words.push(host.kubeconfig());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    run_helm(&helm, &words).await;
    let installed = render_in(&helm, NAMESPACE, &[]).await;
    check_installed_flotilla(&host, &installed).await;
}
