//! Converts the configured resources to transformers by storage prefix. A resource uses
//! its own entry, otherwise that of its group, otherwise that of all groups.

use std::collections::BTreeMap;
use std::sync::Arc;

use karmada_api::is_karmada_group;
use machinery::FieldError;
use openapi::KindInfo;
use serde_json::json;
use server_certificates::SHARED_KEYS_KEY;
use storage::encryption::{PrefixTransformer, PrefixTransformers, ResourceTransformers};

use super::config::{EncryptionProviderKey, GroupResourcePattern, ResourceConfiguration};
use super::scope::EncryptableResources;

const ALL_PREFIX: &str = "/registry/";
/// The prefix of Flotilla's own data, which is not encrypted: it has no data of objects.
/// The exception is the shared private keys, which are encrypted as Secrets are.
const OWN_PREFIX: &str = "/registry/flotilla/";
const SECRETS_PREFIX: &str = "/registry/secrets/";

pub(super) fn resource_transformers(
    entries: Vec<ResourceConfiguration>,
    scope: EncryptableResources,
) -> Result<ResourceTransformers, Vec<FieldError>> {
    let mut errors = Vec::new();
    let mut listed: Vec<(GroupResourcePattern, Vec<EncryptionProviderKey>)> = Vec::new();
    for entry in entries {
        for resource in entry.resources {
            let masked = |(earlier, _): &&(GroupResourcePattern, _)| {
                let wide = earlier.matches("*", "*") || earlier.matches("*", &resource.group);
                wide && !earlier.matches(&resource.resource, &resource.group)
            };
            if let Some((earlier, _)) = listed.iter().find(masked) {
                let reason = format!("it is masked by the earlier rule {:?}", earlier.text());
                errors.push(FieldError::invalid(
                    &resource.field,
                    &json!(resource.text()),
                    reason,
                ));
                continue;
            }
            let same = |r: &GroupResourcePattern| r.matches(&resource.resource, &resource.group);
            match listed.iter_mut().find(|(r, _)| same(r)) {
                // As in kube-apiserver, a later entry adds keys for decryption.
                Some((_, keys)) => keys.extend(entry.keys.iter().cloned()),
                None => listed.push((resource, entry.keys.clone())),
            }
        }
    }
    // Wildcards first; more specific entries replace them.
    listed.sort_by_key(|(r, _)| (r.group != "*", r.resource != "*"));
    let mut rules = BTreeMap::new();
    for (resource, keys) in listed {
        match (prefixes(&resource, scope), prefix_transformers(&keys)) {
            (Err(error), _) => errors.push(error),
            (Ok(_), None) => {
                let reason = "its providers have a key that cannot be used";
                let text = json!(resource.text());
                errors.push(FieldError::invalid(&resource.field, &text, reason));
            }
            (Ok(prefixes), Some(transformer)) => {
                for prefix in prefixes {
                    rules.insert(prefix, Arc::clone(&transformer));
                }
            }
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let secrets = rules
        .get(SECRETS_PREFIX)
        .or_else(|| rules.get(ALL_PREFIX))
        .cloned();
    rules.insert(
        OWN_PREFIX.to_owned(),
        Arc::new(PrefixTransformers::identity()),
    );
    rules.extend(secrets.map(|transformer| (SHARED_KEYS_KEY.to_owned(), transformer)));
    Ok(ResourceTransformers::new(rules.into_iter().collect()))
}

/// The transformer with these keys. `None` without a key, or with a key of a wrong length,
/// which validation rejects before.
fn prefix_transformers(keys: &[EncryptionProviderKey]) -> Option<Arc<PrefixTransformers>> {
    let mut all = keys.iter().map(|key| match key {
        EncryptionProviderKey::AesGcm { name, secret } => PrefixTransformer::aes_gcm(name, secret),
        EncryptionProviderKey::Secretbox { name, secret } => {
            PrefixTransformer::secretbox(name, secret)
        }
        EncryptionProviderKey::Identity => Some(PrefixTransformer::identity()),
    });
    let first = all.next()??;
    let others: Option<Vec<PrefixTransformer>> = all.collect();
    Some(Arc::new(PrefixTransformers::new(first, others?)))
}

/// The storage prefixes of a resource; an error when this server does not store it.
fn prefixes(
    resource: &GroupResourcePattern,
    scope: EncryptableResources,
) -> Result<Vec<String>, FieldError> {
    let GroupResourcePattern {
        group,
        resource: name,
        field,
    } = resource;
    if resource.matches("*", "*") {
        return Ok(vec![ALL_PREFIX.to_owned()]);
    }
    let refuse = |reason: String| Err(FieldError::invalid(field, &json!(resource.text()), reason));
    if matches!(scope, EncryptableResources::OwnGroups) && !is_karmada_group(group) {
        return refuse(
            "behind another API server Flotilla stores only the resources of Karmada's groups; \
             configure the encryption of others there"
                .into(),
        );
    }
    let kinds = || {
        openapi::catalog()
            .kinds()
            .iter()
            .filter(|k| *k.gvr.group == **group)
    };
    let built_in = kinds().next().is_some();
    if !built_in && !group.contains('.') {
        return refuse(format!("there is no API group {group:?}"));
    }
    if name == "*" {
        let mut all: Vec<String> = kinds().map(|kind| kind.storage_prefix.clone()).collect();
        if !group.is_empty() {
            all.push(format!("{ALL_PREFIX}{group}/"));
        }
        return Ok(all);
    }
    match kinds().find(|kind| *kind.gvr.resource == **name) {
        Some(kind) => Ok(vec![kind.storage_prefix.clone()]),
        None if built_in => refuse("Flotilla stores no such resource of that group".into()),
        None => Ok(vec![KindInfo::default_storage_prefix(group, name)]),
    }
}
