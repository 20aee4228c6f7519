//! Tests of the encrypted store: formats, key rotation and values that cannot be decrypted.

use std::sync::Arc;

use bytes::Bytes;

use super::transformer::{PrefixTransformer, PrefixTransformers, is_encrypted};
use super::{EncryptedStore, ResourceTransformers, unreadable_reason};
use crate::{
    EmbeddedStore, EmbeddedStoreOptions, KeyValue, RangeRequest, SingleKeyTxn, SingleKeyTxnOp,
    Store, TxnResponse,
};

const SECRET: &str = "/registry/secrets/ns/a";
const PLAIN: &[u8] = br#"{"metadata":{"name":"a"},"data":{"k":"plaintext"}}"#;

fn aes(name: &str, byte: u8) -> PrefixTransformer {
    PrefixTransformer::aes_gcm(name, &[byte; 32]).unwrap()
}

fn secretbox(name: &str, byte: u8) -> PrefixTransformer {
    PrefixTransformer::secretbox(name, &[byte; 32]).unwrap()
}

fn encrypted_store(engine: &Arc<dyn Store>, keys: Vec<PrefixTransformer>) -> EncryptedStore {
    let mut keys = keys.into_iter();
    let transformer = PrefixTransformers::new(keys.next().unwrap(), keys.collect());
    let rules = vec![("/registry/secrets/".to_owned(), Arc::new(transformer))];
    EncryptedStore::new(
        Arc::clone(engine),
        ResourceTransformers::new(rules),
        "/registry",
    )
}

fn engine() -> Arc<dyn Store> {
    Arc::new(EmbeddedStore::in_memory(EmbeddedStoreOptions::default()).unwrap())
}

async fn put(store: &dyn Store, key: &str, expected: u64, value: &[u8]) -> TxnResponse {
    let op = SingleKeyTxnOp::Put {
        value: Bytes::copy_from_slice(value),
        ttl: None,
    };
    let key = key.into();
    store
        .commit(SingleKeyTxn { key, expected, op })
        .await
        .unwrap()
}

async fn stored_value(engine: &Arc<dyn Store>, key: &str) -> KeyValue {
    engine.get(key).await.unwrap().unwrap()
}

#[test]
fn lengths_of_keys() {
    for length in 0..40 {
        let key = vec![1; length];
        let is_valid_length = PrefixTransformer::AES_GCM_KEY_BYTES.contains(&length);
        assert_eq!(
            PrefixTransformer::aes_gcm("k", &key).is_some(),
            is_valid_length
        );
        let is_valid_length = PrefixTransformer::SECRETBOX_KEY_BYTES.contains(&length);
        assert_eq!(
            PrefixTransformer::secretbox("k", &key).is_some(),
            is_valid_length
        );
    }
}

/// The example of NaCl's documentation of crypto_secretbox.
#[test]
fn secretbox_is_nacls() {
    let bytes = |hex: &str| -> Vec<u8> {
        let digits = hex.as_bytes().chunks(2);
        let parse = |d: &[u8]| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap();
        digits.map(parse).collect()
    };
    let key = bytes("1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389");
    let nonce = bytes("69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37");
    let plaintext = bytes(
        "be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffce5ecbaaf33bd751a1ac728d4\
         5e6c61296cdc3c01233561f41db66cce314adb310e3be8250c46f06dceea3a7fa1348057e2f6556ad6b1318a\
         024a838f21af1fde048977eb48f59ffd4924ca1c60902e52f0a089bc76897040e082f937763848645e0705",
    );
    let sealed = bytes(
        "f3ffc7703f9400e52a7dfb4b3d3305d98e993b9f48681273c29650ba32fc76ce48332ea7164d96a4476fb8c5\
         31a1186ac0dfc17c98dce87b4da7f011ec48c97271d2c20f9b928fe2270d6fb863d51738b48eeee314a7cc8a\
         b932164548e526ae90224368517acfeabd6bb3732bc0e9da99832b61ca01b6de56244a9e88d5f9b37973f622\
         a43d14a6599b1f654cb45a74e355a5",
    );
    let stored = [b"k8s:enc:secretbox:v1:k:", &*nonce, &*sealed].concat();
    let secretbox = PrefixTransformer::secretbox("k", &key).unwrap();
    let transformer = PrefixTransformers::new(secretbox, Vec::new());
    let read = transformer.decrypt(b"", &stored.into()).unwrap();
    assert_eq!(read.value, plaintext);
}

#[tokio::test]
async fn stored_values_have_kubernetes_prefix_and_no_plaintext() {
    for (first, prefix) in [
        (aes("one", 1), "k8s:enc:aesgcm:v1:one:"),
        (secretbox("two", 2), "k8s:enc:secretbox:v1:two:"),
    ] {
        let engine = engine();
        let store = encrypted_store(&engine, vec![first]);
        put(&store, SECRET, 0, PLAIN).await;
        put(&store, "/registry/pods/ns/a", 0, PLAIN).await;
        let stored = stored_value(&engine, SECRET).await.value;
        assert!(stored.starts_with(prefix.as_bytes()));
        assert!(!stored.windows(9).any(|w| w == b"plaintext"));
        assert_eq!(
            stored_value(&engine, "/registry/pods/ns/a").await.value,
            PLAIN
        );
        assert_eq!(store.get(SECRET).await.unwrap().unwrap().value, PLAIN);
        assert!(store.get_stale(SECRET).await.unwrap().is_none());
    }
}

#[tokio::test]
async fn every_read_decrypts() {
    let engine = engine();
    let store = encrypted_store(&engine, vec![aes("one", 1)]);
    let mut watch = store.watch("/registry/secrets/", 0).await.unwrap();
    let TxnResponse::Committed { revision } = put(&store, SECRET, 0, PLAIN).await else {
        panic!("there is something");
    };
    put(&store, SECRET, revision, b"{\"second\":1}").await;
    let page = store
        .range(&RangeRequest::prefix("/registry/"))
        .await
        .unwrap();
    assert_eq!(page.kvs[0].value, &b"{\"second\":1}"[..]);
    let mut events = Vec::new();
    while events.len() < 2 {
        events.extend(watch.next().await.unwrap().events);
    }
    assert_eq!(events[0].value.as_deref(), Some(PLAIN));
    assert_eq!(events[1].previous.as_ref().unwrap().value, PLAIN);
    match put(&store, SECRET, revision, b"{}").await {
        TxnResponse::Conflict { current } => assert_eq!(current.unwrap().value, "{\"second\":1}"),
        TxnResponse::Committed { .. } => panic!("written"),
    }
}

#[tokio::test]
async fn the_first_key_writes_and_all_read() {
    let engine = engine();
    let TxnResponse::Committed { revision } = put(
        &encrypted_store(&engine, vec![aes("one", 1)]),
        SECRET,
        0,
        PLAIN,
    )
    .await
    else {
        panic!("there is something");
    };
    for keys in [
        vec![aes("two", 2), aes("one", 1)],
        // A key of the same name that cannot decrypt is skipped.
        vec![aes("one", 2), aes("one", 1)],
        vec![
            secretbox("two", 2),
            PrefixTransformer::identity(),
            aes("one", 1),
        ],
        vec![PrefixTransformer::identity(), aes("one", 1)],
    ] {
        let store = encrypted_store(&engine, keys);
        assert_eq!(store.get(SECRET).await.unwrap().unwrap().value, PLAIN);
        let stale = store.get_stale(SECRET).await.unwrap().unwrap();
        assert!(stale.value == PLAIN && stale.mod_revision == revision);
    }
    let store = encrypted_store(&engine, vec![PrefixTransformer::identity(), aes("one", 1)]);
    put(&store, SECRET, revision, PLAIN).await;
    assert_eq!(stored_value(&engine, SECRET).await.value, PLAIN);
}

#[tokio::test]
async fn a_value_that_cannot_be_decrypted_affects_only_its_key() {
    let engine = engine();
    let store = encrypted_store(&engine, vec![aes("one", 1)]);
    put(&store, SECRET, 0, PLAIN).await;
    put(&*engine, "/registry/secrets/ns/b", 0, PLAIN).await;
    for (keys, reasons) in [
        (vec![aes("two", 1)], ["k8s:enc:aesgcm:v1:one", "plaintext"]),
        (
            vec![aes("one", 2)],
            ["another key of that name", "plaintext"],
        ),
        (vec![secretbox("one", 1)], ["aesgcm:v1:one", "plaintext"]),
    ] {
        let store = encrypted_store(&engine, keys);
        let page = store
            .range(&RangeRequest::prefix("/registry/"))
            .await
            .unwrap();
        for (entry, expected) in page.kvs.iter().zip(reasons) {
            let reason = unreadable_reason(&entry.value).unwrap();
            assert!(reason.contains(expected), "{reason}");
        }
    }
    // The same without any configuration.
    let store = EncryptedStore::new(
        Arc::clone(&engine),
        ResourceTransformers::default(),
        "/registry",
    );
    let page = store
        .range(&RangeRequest::prefix("/registry/"))
        .await
        .unwrap();
    assert!(unreadable_reason(&page.kvs[0].value).is_some());
    assert_eq!(page.kvs[1].value, PLAIN);
}

#[tokio::test]
async fn a_value_moved_to_another_key_is_refused() {
    let engine = engine();
    let store = encrypted_store(&engine, vec![aes("one", 1)]);
    put(&store, SECRET, 0, PLAIN).await;
    let stored = stored_value(&engine, SECRET).await.value;
    assert!(is_encrypted(&stored));
    put(&*engine, "/registry/secrets/ns/b", 0, &stored).await;
    let moved = store.get("/registry/secrets/ns/b").await.unwrap().unwrap();
    assert!(unreadable_reason(&moved.value).is_some());
    // The authenticated key is the key in etcd, including the prefix.
    let rules = || {
        let transformer = PrefixTransformers::new(aes("one", 1), Vec::new());
        ResourceTransformers::new(vec![("/registry/".to_owned(), Arc::new(transformer))])
    };
    let other = EncryptedStore::new(Arc::clone(&engine), rules(), "/other");
    let read = other.get(SECRET).await.unwrap().unwrap();
    assert!(unreadable_reason(&read.value).is_some());
}
