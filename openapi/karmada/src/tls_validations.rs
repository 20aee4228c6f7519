//! The annotation of a Cluster by which parts of the verification of its API server's certificate
//! are switched off, as KubeFed's `disabledTLSValidations` did.

use std::collections::BTreeMap;

use super::well_known_keys::DISABLED_TLS_VALIDATIONS;

/// KubeFed's names of the parts.
const SUBJECT_NAME: &str = "SubjectName";
const VALIDITY_PERIOD: &str = "ValidityPeriod";

/// The parts that are switched off. The chain to an authority is always verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DisabledTlsValidations {
    pub subject_name: bool,
    pub validity_period: bool,
}

impl DisabledTlsValidations {
    /// Parses the value of the annotation: names that are separated by commas.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Self::default();
        for name in text.split(',').map(str::trim) {
            match name {
                SUBJECT_NAME => parts.subject_name = true,
                VALIDITY_PERIOD => parts.validity_period = true,
                _ => {
                    return Err(format!(
                        "must be {SUBJECT_NAME}, {VALIDITY_PERIOD} or both, separated by a comma; spec.insecureSkipTLSVerification switches off everything"
                    ));
                }
            }
        }
        Ok(parts)
    }

    /// The parts that the annotations of a Cluster switch off. One that admission would reject
    /// switches off nothing.
    pub fn of_annotations(annotations: &BTreeMap<String, String>) -> Self {
        let text = annotations.get(DISABLED_TLS_VALIDATIONS);
        let parsed = text.map(|text| Self::parse(text));
        parsed.and_then(Result::ok).unwrap_or_default()
    }

    /// The names of the parts that are switched off, as [`Self::parse`] reads them.
    pub fn to_text(self) -> String {
        let parts = [
            (self.subject_name, SUBJECT_NAME),
            (self.validity_period, VALIDITY_PERIOD),
        ];
        let names = parts.into_iter().filter(|(off, _)| *off);
        names.map(|(_, name)| name).collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: TLV-annotation
    #[test]
    fn the_annotation_names_the_parts() {
        for (text, expected) in [
            ("SubjectName", Some("SubjectName")),
            (" ValidityPeriod ", Some("ValidityPeriod")),
            (
                "ValidityPeriod, SubjectName",
                Some("SubjectName,ValidityPeriod"),
            ),
            ("", None),
            ("*", None),
            ("subjectname", None),
            ("SubjectName,", None),
        ] {
            let parsed = DisabledTlsValidations::parse(text).ok();
            let shown = parsed.map(DisabledTlsValidations::to_text);
            assert_eq!(shown.as_deref(), expected, "{text}");
            let annotations = [(DISABLED_TLS_VALIDATIONS.to_owned(), text.to_owned())];
            let lenient = DisabledTlsValidations::of_annotations(&annotations.into());
            assert_eq!(lenient, parsed.unwrap_or_default(), "{text}");
        }
    }
}
