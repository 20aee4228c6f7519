//! The same requests to Flotilla and to Kubernetes 1.36, whose whole replies must be equal.
//!
//! The reference is apiextensions-apiserver of Kubernetes 1.36 on etcd: it serves
//! CustomResourceDefinitions and their objects, and takes Flotilla for its core API server
//! (namespaces, reviews). The cases are YAML files in `cases`, one for each theme; [`case`]
//! has their format. `differences.txt` names the cases whose replies are known to differ; a
//! case listed there whose replies are equal fails as well, so the list only shrinks.
//!
//! `CASE=TEXT` runs the cases whose name contains the text and prints their replies.
//! `DIFFERENCES_REPORT=FILE` appends every case that differs, with its requests and replies.

mod case;
mod comparison;
mod conversion_webhook;
mod crd;
mod generated;
mod normalize;
mod numbers;
mod openapi_definitions;
mod options;
mod policies;
mod property;
mod request;
mod schema_flags;
mod scopes;
mod servers;

use comparison::compare_theme;

macro_rules! themes {
    ($($theme:ident)*) => {
        const THEMES: &[&str] = &[$(stringify!($theme)),*];
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $theme() {
                compare_theme(stringify!($theme)).await;
            }
        )*
    };
}

themes! { apply cel conversion definitions pruning defaulting validation patches lists writes policies }

/// A theme without a test, or a known difference without a case, would never be noticed.
#[test]
fn every_theme_is_run_and_every_known_difference_is_a_case() {
    let mut run: Vec<&str> = THEMES.to_vec();
    run.sort_unstable();
    assert_eq!(case::theme_names(), run);
    let themes: Vec<case::CaseTheme> = run.iter().map(|name| case::CaseTheme::read(name)).collect();
    let names: Vec<&String> = themes.iter().flat_map(|t| t.cases.keys()).collect();
    let mut distinct = names.clone();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), names.len(), "two cases have one name");
    let unknown: Vec<String> = case::known_differences()
        .into_iter()
        .filter(|name| !names.contains(&name))
        .collect();
    assert!(unknown.is_empty(), "no such cases: {unknown:?}");
}
