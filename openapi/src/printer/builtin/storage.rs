//! Prints PersistentVolumes, their claims and classes, ConfigMaps and Secrets.

use serde_json::Value;

use super::Table;
use super::cells::{Row, UNSET, scalar, string};

const CLASS_ANNOTATION: &str = "/metadata/annotations/volume.beta.kubernetes.io~1storage-class";

pub(super) const VOLUME: Table = Table {
    columns: &[
        ("Name", "string"),
        ("Capacity", "string"),
        ("Access Modes", "string"),
        ("Reclaim Policy", "string"),
        ("Status", "string"),
        ("Claim", "string"),
        ("StorageClass", "string"),
        ("VolumeAttributesClass", "string"),
        ("Reason", "string"),
        ("Age", "string"),
        ("VolumeMode", "string"),
    ],
    wide: &["VolumeMode"],
    cells: |row| {
        let claim = match row.text("/spec/claimRef/name") {
            "" => String::new(),
            name => format!("{}/{name}", row.text("/spec/claimRef/namespace")),
        };
        vec![
            row.name(),
            scalar(row.at("/spec/capacity/storage")).into(),
            modes(row.list("/spec/accessModes")).into(),
            row.text("/spec/persistentVolumeReclaimPolicy").into(),
            phase(row).into(),
            claim.into(),
            class(row).into(),
            row.text_or("/spec/volumeAttributesClassName", UNSET).into(),
            row.text("/status/reason").into(),
            row.age(),
            row.text_or("/spec/volumeMode", UNSET).into(),
        ]
    },
};

pub(super) const CLAIM: Table = Table {
    columns: &[
        ("Name", "string"),
        ("Status", "string"),
        ("Volume", "string"),
        ("Capacity", "string"),
        ("Access Modes", "string"),
        ("StorageClass", "string"),
        ("VolumeAttributesClass", "string"),
        ("Age", "string"),
        ("VolumeMode", "string"),
    ],
    wide: &["VolumeMode"],
    cells: |row| {
        let volume = row.text("/spec/volumeName");
        let (capacity, modes) = if volume.is_empty() {
            Default::default()
        } else {
            let capacity = scalar(row.at("/status/capacity/storage"));
            (capacity, modes(row.list("/status/accessModes")))
        };
        vec![
            row.name(),
            phase(row).into(),
            volume.into(),
            capacity.into(),
            modes.into(),
            class(row).into(),
            row.text_or("/spec/volumeAttributesClassName", UNSET).into(),
            row.age(),
            row.text_or("/spec/volumeMode", UNSET).into(),
        ]
    },
};

fn phase<'a>(row: &Row<'a>) -> &'a str {
    if row.leaving() {
        "Terminating"
    } else {
        row.text("/status/phase")
    }
}

fn class<'a>(row: &Row<'a>) -> &'a str {
    match row.text(CLASS_ANNOTATION) {
        "" => row.text("/spec/storageClassName"),
        class => class,
    }
}

/// Abbreviated access modes without duplicates, in a fixed order.
fn modes(modes: &[Value]) -> String {
    let known = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let short: Vec<_> = known
        .iter()
        .filter(|(long, _)| modes.iter().any(|mode| string(mode) == *long))
        .map(|(_, short)| *short)
        .collect();
    short.join(",")
}

pub(super) const CLASS: Table = Table {
    columns: &[
        ("Name", "string"),
        ("Provisioner", "string"),
        ("ReclaimPolicy", "string"),
        ("VolumeBindingMode", "string"),
        ("AllowVolumeExpansion", "string"),
        ("Age", "string"),
    ],
    wide: &[],
    cells: |row| {
        let standard = ["", "beta."].iter().any(|stage| {
            let key = format!("storageclass.{stage}kubernetes.io~1is-default-class");
            row.text(&format!("/metadata/annotations/{key}")) == "true"
        });
        let name = row.text("/metadata/name");
        let name = if standard {
            format!("{name} (default)")
        } else {
            name.to_owned()
        };
        vec![
            name.into(),
            row.text("/provisioner").into(),
            row.text_or("/reclaimPolicy", "Delete").into(),
            row.text_or("/volumeBindingMode", "Immediate").into(),
            (*row.at("/allowVolumeExpansion") == true).into(),
            row.age(),
        ]
    },
};

pub(super) const CONFIG_MAP: Table = Table {
    columns: &[("Name", "string"), ("Data", "string"), ("Age", "string")],
    wide: &[],
    cells: |row| {
        let count = row.count("/data") + row.count("/binaryData");
        vec![row.name(), count.into(), row.age()]
    },
};

pub(super) const SECRET: Table = Table {
    columns: &[
        ("Name", "string"),
        ("Type", "string"),
        ("Data", "string"),
        ("Age", "string"),
    ],
    wide: &[],
    cells: |row| {
        let kind = Value::from(row.text("/type"));
        vec![row.name(), kind, row.count("/data").into(), row.age()]
    },
};
