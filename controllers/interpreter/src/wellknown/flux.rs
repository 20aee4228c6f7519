//! Third-party rules of Flux: HelmRelease, Kustomization, and the sources they are built from.

use openapi::karmada::Dependency;
use serde_json::Value;

use super::generations::{Silent, copied_with_generations, observe};
use super::items::{holds, merged_conditions};
use super::kruise::last_texts;
use super::pods::core;
use super::tree::{
    Error, Fields, at, keep_in_spec, lacks, list, number, number_or_zero, said, set, text,
};
use super::{Aggregate, Rules, Told};

const REVISIONS: [&str; 2] = ["lastAttemptedRevision", "lastAppliedRevision"];
const RELEASE_TEXTS: [&str; 4] = [
    "lastAttemptedRevision",
    "lastAppliedRevision",
    "lastAttemptedValuesChecksum",
    "helmChart",
];
const LAST_RELEASE: &str = "lastReleaseRevision";
const FAILURES: [&str; 3] = ["failures", "upgradeFailures", "installFailures"];
const COMMON: &[&str] = &["conditions", "observedGeneration"];

pub(super) static HELM_RELEASE: Rules = Rules {
    reflect: Some(|observed| {
        copied_with_generations(
            observed,
            &[COMMON, &RELEASE_TEXTS, &[LAST_RELEASE], &FAILURES],
        )
    }),
    aggregate: Some(Aggregate {
        generations: true,
        unlisted: |status, generation| {
            unlisted(status, generation, &RELEASE_TEXTS);
            status.insert(LAST_RELEASE.into(), "".into());
            for count in FAILURES {
                status.insert(count.into(), 0.into());
            }
        },
        ..Aggregate::new(|status, input| {
            common(status, input)?;
            newest(status, input, &RELEASE_TEXTS);
            if let Some(last) = input.items.last("/lastReleaseRevision") {
                status.insert(LAST_RELEASE.into(), last.clone());
            }
            add_failures(status, input)
        })
    }),
    dependencies: Some(|release| {
        let mut found = accounts(release);
        for values in list(release, "/spec/valuesFrom") {
            let kind = text(values, "/kind").unwrap_or_default();
            if ["Secret", "ConfigMap"].contains(&kind) {
                let name = text(values, "/name").ok_or_else(|| lacks("/spec/valuesFrom", NAMES))?;
                found.push(core(release, kind, name));
            }
        }
        secrets(
            release,
            &mut found,
            &["/spec/chart/spec/verify/secretRef", KUBE_CONFIG],
        )?;
        Ok(found)
    }),
    ..RECONCILED
};

pub(super) static KUSTOMIZATION: Rules = Rules {
    reflect: Some(|observed| copied_with_generations(observed, &[COMMON, &REVISIONS])),
    aggregate: Some(Aggregate {
        generations: true,
        unlisted: |status, generation| unlisted(status, generation, &REVISIONS),
        ..Aggregate::new(|status, input| {
            common(status, input)?;
            newest(status, input, &REVISIONS);
            Ok(())
        })
    }),
    dependencies: Some(|kustomization| {
        let mut found = accounts(kustomization);
        secrets(
            kustomization,
            &mut found,
            &["/spec/decryption/secretRef", KUBE_CONFIG],
        )?;
        Ok(found)
    }),
    ..RECONCILED
};

const KUBE_CONFIG: &str = "/spec/kubeConfig/secretRef";
const NAMES: &str = "a name in each of them";

/// The rules that HelmRelease and Kustomization share.
const RECONCILED: Rules = Rules {
    healthy: Some(|observed| Ok(holds(observed, "Ready", &["ReconciliationSucceeded"]))),
    retain: Some(|desired, observed| keep_in_spec(desired, observed, "suspend")),
    ..Rules::NONE
};

/// The rules that all sources share.
const SOURCE: Rules = Rules {
    healthy: Some(|observed| Ok(holds(observed, "Ready", &["Succeeded"]))),
    ..RECONCILED
};

const SOURCE_FIELDS: &[&str] = &["conditions", "observedGeneration", "artifact"];
const URL: [&str; 1] = ["url"];
const CHART_TEXTS: [&str; 3] = ["observedChartName", "observedSourceArtifactRevision", "url"];

const SECRET: &str = "/spec/secretRef";
const VERIFY: &str = "/spec/verify/secretRef";

const WITH_URL: Aggregate = Aggregate {
    generations: true,
    unlisted: |status, generation| unlisted_source(status, generation, &URL),
    ..Aggregate::new(|status, input| source(status, input, &URL))
};

pub(super) static GIT_REPOSITORY: Rules = Rules {
    reflect: Some(|observed| {
        let own = ["observedIgnore", "observedRecurseSubmodules"];
        copied_with_generations(observed, &[SOURCE_FIELDS, &own])
    }),
    aggregate: Some(Aggregate {
        generations: true,
        unlisted: |status, generation| unlisted_source(status, generation, &[]),
        ..Aggregate::new(|status, input| source(status, input, &[]))
    }),
    dependencies: Some(|source| secrets_of(source, &[SECRET, VERIFY])),
    ..SOURCE
};

pub(super) static BUCKET: Rules = Rules {
    reflect: Some(|observed| {
        copied_with_generations(observed, &[SOURCE_FIELDS, &URL, &["observedIgnore"]])
    }),
    aggregate: Some(WITH_URL),
    dependencies: Some(|source| secrets_of(source, &[SECRET])),
    ..SOURCE
};

pub(super) static HELM_REPOSITORY: Rules = Rules {
    reflect: Some(|observed| copied_with_generations(observed, &[SOURCE_FIELDS, &URL])),
    aggregate: Some(WITH_URL),
    dependencies: Some(|source| secrets_of(source, &[SECRET])),
    ..SOURCE
};

pub(super) static OCI_REPOSITORY: Rules = Rules {
    reflect: Some(|observed| {
        let own = ["observedIgnore", "observedLayerSelector"];
        copied_with_generations(observed, &[SOURCE_FIELDS, &URL, &own])
    }),
    aggregate: Some(WITH_URL),
    dependencies: Some(|source| {
        let mut found = accounts(source);
        secrets(source, &mut found, &[SECRET, VERIFY, "/spec/certSecretRef"])?;
        Ok(found)
    }),
    ..SOURCE
};

pub(super) static HELM_CHART: Rules = Rules {
    healthy: Some(|observed| {
        Ok(holds(
            observed,
            "Ready",
            &["Succeeded", "ChartPullSucceeded"],
        ))
    }),
    // Without observedGeneration, as in Karmada's rule.
    reflect: Some(|observed| {
        copied_with_generations(observed, &[&["conditions", "artifact"], &CHART_TEXTS])
    }),
    aggregate: Some(Aggregate {
        generations: true,
        unlisted: |status, generation| unlisted_source(status, generation, &CHART_TEXTS),
        ..Aggregate::new(|status, input| source(status, input, &CHART_TEXTS))
    }),
    dependencies: Some(|source| secrets_of(source, &[VERIFY])),
    ..SOURCE
};

fn unlisted(status: &mut Fields, generation: &Value, texts: &[&str]) {
    super::unlisted(status, generation, &[], texts);
    status.remove("conditions");
}

fn unlisted_source(status: &mut Fields, generation: &Value, texts: &[&str]) {
    unlisted(status, generation, texts);
    status.remove("artifact");
}

fn source(status: &mut Fields, input: &Told<'_>, texts: &[&str]) -> Result<(), Error> {
    common(status, input)?;
    set(status, "artifact", input.items.last("/artifact").cloned());
    last_texts(status, &input.items, texts);
    Ok(())
}

fn common(status: &mut Fields, input: &Told<'_>) -> Result<(), Error> {
    observe(status, input.generation, &input.items, Silent::CountsAsZero);
    status.insert("conditions".into(), merged_conditions(&input.items)?);
    Ok(())
}

/// Each field as the last cluster reports it; unchanged when none does.
fn newest(status: &mut Fields, input: &Told<'_>, fields: &[&str]) {
    for field in fields {
        if let Some(last) = input.items.last_said(&format!("/{field}")) {
            status.insert((*field).to_owned(), last.clone());
        }
    }
}

/// Adds the failures to those already in the template's status, if it has the counter, as Karmada's
/// rule does.
fn add_failures(status: &mut Fields, input: &Told<'_>) -> Result<(), Error> {
    for count in FAILURES {
        let Some(so_far) = status.get(count).filter(|n| !n.is_null()) else {
            continue;
        };
        let so_far = so_far.as_f64().ok_or_else(|| lacks(count, "a number"))?;
        let mut sum = so_far;
        for (_, reported) in input.items.told() {
            sum += number_or_zero(reported, &format!("/{count}"))?;
        }
        status.insert(count.into(), number(sum));
    }
    Ok(())
}

fn accounts(object: &Value) -> Vec<Dependency> {
    let account = said(object, "/spec/serviceAccountName");
    let account = account.map(|name| core(object, "ServiceAccount", name));
    account.into_iter().collect()
}

fn secrets_of(object: &Value, pointers: &[&str]) -> Result<Vec<Dependency>, Error> {
    let mut found = Vec::new();
    secrets(object, &mut found, pointers)?;
    Ok(found)
}

fn secrets(object: &Value, found: &mut Vec<Dependency>, pointers: &[&str]) -> Result<(), Error> {
    for pointer in pointers {
        let Some(reference) = at(object, pointer) else {
            continue;
        };
        let name = text(reference, "/name").ok_or_else(|| lacks(pointer, "a name"))?;
        if !name.is_empty() {
            found.push(core(object, "Secret", name));
        }
    }
    Ok(())
}
