//! Prints PersistentVolumes, their claims and classes, ConfigMaps and Secrets.

use serde_json::Value;

use super::PrintHandler;
use super::printer_input::{NONE, PrinterInput, UNSET, join, or_default, scalar, string};

const CLASS_ANNOTATION: &str = "/metadata/annotations/volume.beta.kubernetes.io~1storage-class";

pub(super) const PERSISTENT_VOLUME: PrintHandler = PrintHandler {
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
    wide_columns: &["VolumeMode"],
    cells: |row| {
        let claim = match row.text("/spec/claimRef/name") {
            "" => String::new(),
            name => format!("{}/{name}", row.text("/spec/claimRef/namespace")),
        };
        vec![
            row.name(),
            scalar(row.value("/spec/capacity/storage")).into(),
            access_modes(row.list("/spec/accessModes")).into(),
            row.text("/spec/persistentVolumeReclaimPolicy").into(),
            phase(row).into(),
            claim.into(),
            storage_class(row).into(),
            row.text_or("/spec/volumeAttributesClassName", UNSET).into(),
            row.text("/status/reason").into(),
            row.age(),
            row.text_or("/spec/volumeMode", UNSET).into(),
        ]
    },
};

pub(super) const PERSISTENT_VOLUME_CLAIM: PrintHandler = PrintHandler {
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
    wide_columns: &["VolumeMode"],
    cells: |row| {
        let volume = row.text("/spec/volumeName");
        let (capacity, modes) = if volume.is_empty() {
            Default::default()
        } else {
            let capacity = scalar(row.value("/status/capacity/storage"));
            (capacity, access_modes(row.list("/status/accessModes")))
        };
        vec![
            row.name(),
            phase(row).into(),
            volume.into(),
            capacity.into(),
            modes.into(),
            storage_class(row).into(),
            row.text_or("/spec/volumeAttributesClassName", UNSET).into(),
            row.age(),
            row.text_or("/spec/volumeMode", UNSET).into(),
        ]
    },
};

fn phase<'a>(row: &PrinterInput<'a>) -> &'a str {
    if row.is_deleting() {
        "Terminating"
    } else {
        row.text("/status/phase")
    }
}

fn storage_class<'a>(row: &PrinterInput<'a>) -> &'a str {
    match row.text(CLASS_ANNOTATION) {
        "" => row.text("/spec/storageClassName"),
        class => class,
    }
}

/// Abbreviated access modes without duplicates, in a fixed order.
fn access_modes(modes: &[Value]) -> String {
    let abbreviations = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let short_names: Vec<_> = abbreviations
        .iter()
        .filter(|(long_name, _)| modes.iter().any(|mode| string(mode) == *long_name))
        .map(|(_, short_names)| *short_names)
        .collect();
    short_names.join(",")
}

pub(super) const STORAGE_CLASS: PrintHandler = PrintHandler {
    columns: &[
        ("Name", "string"),
        ("Provisioner", "string"),
        ("ReclaimPolicy", "string"),
        ("VolumeBindingMode", "string"),
        ("AllowVolumeExpansion", "string"),
        ("Age", "string"),
    ],
    wide_columns: &[],
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
            (*row.value("/allowVolumeExpansion") == true).into(),
            row.age(),
        ]
    },
};

pub(super) const CONFIG_MAP: PrintHandler = PrintHandler {
    columns: &[("Name", "string"), ("Data", "string"), ("Age", "string")],
    wide_columns: &[],
    cells: |row| {
        let count = row.count("/data") + row.count("/binaryData");
        vec![row.name(), count.into(), row.age()]
    },
};

pub(super) const SECRET: PrintHandler = PrintHandler {
    columns: &[
        ("Name", "string"),
        ("Type", "string"),
        ("Data", "string"),
        ("Age", "string"),
    ],
    wide_columns: &[],
    cells: |row| {
        let kind = Value::from(row.text("/type"));
        vec![row.name(), kind, row.count("/data").into(), row.age()]
    },
};

pub(super) const CSI_DRIVER: PrintHandler = PrintHandler {
    columns: &[
        ("Name", "string"),
        ("AttachRequired", "boolean"),
        ("PodInfoOnMount", "boolean"),
        ("StorageCapacity", "boolean"),
        ("TokenRequests", "string"),
        ("RequiresRepublish", "boolean"),
        ("Modes", "string"),
        ("Age", "string"),
    ],
    wide_columns: &[],
    cells: |row| {
        let flag = |field: &str| (*row.value(&format!("/spec/{field}")) == true).into();
        let tokens = row.list("/spec/tokenRequests").iter();
        let audiences = join(tokens.map(|token| string(&token["audience"])), ",");
        let modes = row.list("/spec/volumeLifecycleModes").iter().map(string);
        vec![
            row.name(),
            (*row.value("/spec/attachRequired") != false).into(),
            flag("podInfoOnMount"),
            flag("storageCapacity"),
            or_default(audiences, UNSET).into(),
            flag("requiresRepublish"),
            or_default(join(modes, ","), NONE).into(),
            row.age(),
        ]
    },
};

pub(super) const CSI_NODE: PrintHandler = PrintHandler {
    columns: &[
        ("Name", "string"),
        ("Drivers", "integer"),
        ("Age", "string"),
    ],
    wide_columns: &[],
    cells: |row| vec![row.name(), row.count("/spec/drivers").into(), row.age()],
};

pub(super) const VOLUME_ATTACHMENT: PrintHandler = PrintHandler {
    columns: &[
        ("Name", "string"),
        ("Attacher", "string"),
        ("PV", "string"),
        ("Node", "string"),
        ("Attached", "boolean"),
        ("Age", "string"),
    ],
    wide_columns: &[],
    cells: |row| {
        let volume = row.text("/spec/source/persistentVolumeName");
        vec![
            row.name(),
            row.text("/spec/attacher").into(),
            volume.into(),
            row.text("/spec/nodeName").into(),
            (*row.value("/status/attached") == true).into(),
            row.age(),
        ]
    },
};
