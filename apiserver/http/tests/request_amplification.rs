//! Measures what requests that are made to be answered with much, or to take much memory, come to:
//! decoded, validated and written in a dry run. This test is alone in its process, because the
//! allocator counts all of it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bodies;

use std::sync::Arc;

use bytes::Bytes;
use client::{Patch, ResourcePath};
use flotilla_http::{RequestBodySerialization, decode_object_of_kind, decode_patch};
use machinery::tree_memory::{MAX_TREE_BYTES, estimate_json_tree_bytes, estimate_yaml_tree_bytes};
use machinery::{Gvr, Status};
use peak_alloc::PeakAlloc;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use registry::{
    FieldValidation, ObjectBody, Registry, RegistryOptions, RegistryWriteOptions, RequestContext,
    WriteResult,
};
use serde_json::json;

use bodies::{SMALL_BODIES, large_bodies, large_yaml_bodies};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// The bytes that any request may take, and be answered with.
const SMALL_BYTES: usize = 4 << 20;
/// The trees that a write holds.
const TREES: usize = 3;
/// The bytes of a tree for each byte of its text, if it has maps of one short field only.
const JSON_TREE_FACTOR: usize = 110;
const YAML_TREE_FACTOR: usize = 170;
const EDITED_INPUTS: u32 = 20;
const NAMESPACE: &str = "default";

/// A kind that the requests are sent to.
struct Target {
    gvr: Gvr,
    kind: &'static str,
}

static TARGETS: [Target; 3] = [
    Target {
        gvr: Gvr::from_static("", "v1", "configmaps"),
        kind: "ConfigMap",
    },
    Target {
        gvr: Gvr::from_static("", "v1", "pods"),
        kind: "Pod",
    },
    Target {
        gvr: Gvr::from_static("policy.karmada.io", "v1alpha1", "propagationpolicies"),
        kind: "PropagationPolicy",
    },
];

/// A form in which a body is sent.
#[derive(Clone, Copy, Debug)]
enum RequestForm {
    Create,
    CreateFromYaml,
    JsonPatch,
    MergePatch,
    StrategicMergePatch,
}

const REQUEST_FORMS: [RequestForm; 4] = [
    RequestForm::Create,
    RequestForm::JsonPatch,
    RequestForm::MergePatch,
    RequestForm::StrategicMergePatch,
];

struct TestServer {
    registry: Arc<Registry>,
    runtime: tokio::runtime::Runtime,
}

impl TestServer {
    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let registry = runtime.block_on(async {
            let options = storage::EmbeddedStoreOptions::default();
            let store = Arc::new(storage::EmbeddedStore::in_memory(options).unwrap());
            let config = watchcache::WatchCacheConfig::default();
            let caches = watchcache::WatchCaches::new(store.clone(), config);
            let options = admission::AdmissionChainOptions::default();
            let chain = Arc::new(admission::AdmissionChain::new(options));
            let registry = Registry::new(store, caches, RegistryOptions::new(chain));
            registry.bootstrap().await.unwrap();
            for target in &TARGETS {
                let path = ResourcePath::collection(&target.gvr, NAMESPACE);
                let object = json!({"metadata": {"name": "a"}, "spec": {
                    "resourceSelectors": [{"apiVersion": "v1", "kind": "Pod"}],
                    "containers": [{"name": "c", "image": "i"}]}});
                let ctx = RequestContext::internal();
                let options = RegistryWriteOptions::default();
                let created = registry.create(&ctx, path, object.into(), &options).await;
                created.unwrap();
            }
            registry
        });
        Self { registry, runtime }
    }

    async fn write(
        &self,
        target: &Target,
        form: RequestForm,
        bytes: &[u8],
    ) -> Result<WriteResult, Status> {
        let ctx = RequestContext::internal();
        let mut options = RegistryWriteOptions {
            dry_run: true,
            field_validation: FieldValidation::Strict,
            field_manager: "sender".into(),
            ..RegistryWriteOptions::default()
        };
        let content_type = match form {
            RequestForm::Create | RequestForm::CreateFromYaml => {
                let body_type = match form {
                    RequestForm::CreateFromYaml => RequestBodySerialization::Yaml,
                    _ => RequestBodySerialization::Json,
                };
                let decoded = decode_object_of_kind(bytes, body_type, target.kind, false)?;
                let body = ObjectBody {
                    value: decoded.value,
                    duplicate_fields: decoded.duplicate_keys,
                    json: Bytes::copy_from_slice(bytes),
                };
                let path = ResourcePath::collection(&target.gvr, NAMESPACE);
                return self.registry.create(&ctx, path, body, &options).await;
            }
            RequestForm::JsonPatch => "application/json-patch+json",
            RequestForm::MergePatch => "application/merge-patch+json",
            RequestForm::StrategicMergePatch => "application/strategic-merge-patch+json",
        };
        let decoded = decode_patch(bytes, content_type)?;
        options.patch_errors = decoded.strict_errors;
        let patch = match form {
            RequestForm::JsonPatch => Patch::Json(decoded.value),
            RequestForm::StrategicMergePatch => Patch::Strategic(decoded.value),
            _ => Patch::Merge(decoded.value),
        };
        let path = ResourcePath::object(&target.gvr, NAMESPACE, "a");
        self.registry.patch(&ctx, path, patch, &options).await
    }

    /// Sends a body of JSON in every form to every kind.
    fn check(&self, name: &str, bytes: &[u8]) {
        let tree = estimate_json_tree_bytes(bytes);
        self.check_forms(name, bytes, tree, &REQUEST_FORMS);
        assert!(
            tree <= JSON_TREE_FACTOR * bytes.len() + SMALL_BYTES,
            "{name}"
        );
    }

    fn check_yaml(&self, name: &str, bytes: &[u8]) {
        let tree = estimate_yaml_tree_bytes(bytes);
        self.check_forms(name, bytes, tree, &[RequestForm::CreateFromYaml]);
        assert!(
            tree <= YAML_TREE_FACTOR * bytes.len() + SMALL_BYTES,
            "{name}"
        );
    }

    /// The memory of a request beside its trees, which are charged before they are decoded, is
    /// bounded, and so is the reply.
    fn check_forms(&self, name: &str, bytes: &[u8], tree: usize, forms: &[RequestForm]) {
        if tree > MAX_TREE_BYTES {
            return;
        }
        for target in &TARGETS {
            for &form in forms {
                ALLOCATOR.reset_peak_usage();
                let before = ALLOCATOR.current_usage();
                let result = self.runtime.block_on(self.write(target, form, bytes));
                let (reply, warnings) = match result {
                    Ok(written) => (written.object.encoded_len(), written.warnings),
                    Err(status) => {
                        let body = status.to_json().to_string();
                        (body.len(), status.warnings.into())
                    }
                };
                let reply = reply + warnings.iter().map(String::len).sum::<usize>();
                let peak = ALLOCATOR.peak_usage().saturating_sub(before);
                let limit = 20 * bytes.len() + SMALL_BYTES;
                let case = format!("{name} as {form:?} of a {}", target.kind);
                assert!(reply <= limit, "{case}: a reply of {reply} bytes");
                assert!(peak <= limit + TREES * tree, "{case}: {peak} bytes");
            }
        }
    }
}

fn edits() -> impl Strategy<Value = Vec<(Index, usize, usize)>> {
    prop::collection::vec((any::<Index>(), 1usize..40, 0usize..2000), 1..4)
}

/// Repeats or removes parts of a body.
fn edited(body: &[u8], edits: &[(Index, usize, usize)]) -> Vec<u8> {
    let mut bytes = body.to_vec();
    for (index, length, times) in edits {
        let offset = index.index(bytes.len() + 1);
        let end = (offset + length).min(bytes.len());
        let part = bytes[offset..end].repeat(*times);
        bytes.splice(offset..end, part);
    }
    bytes.truncate(60_000);
    bytes
}

#[test]
fn replies_and_memory_are_bounded_by_the_request() {
    let server = TestServer::start();
    for (name, body) in large_bodies() {
        server.check(name, body.as_bytes());
    }
    for (name, body) in large_yaml_bodies() {
        server.check_yaml(name, body.as_bytes());
    }
    let inputs = (select(&SMALL_BODIES[..]), edits());
    let inputs = inputs.prop_map(|(body, edits)| edited(body.as_bytes(), &edits));
    let config = Config {
        cases: EDITED_INPUTS,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    TestRunner::new_with_rng(config, rng)
        .run(&inputs, |input| {
            server.check("an edited body", &input);
            Ok(())
        })
        .unwrap();
}
