//! Overrides the registry, the repository or the tag of an image reference. The grammar is that of
//! `distribution/reference`.

use std::fmt;

use karmada_api::policy::ImageOverrider;
use serde_json::Value;

use crate::pod_spec::pod_spec_path;

#[derive(Debug, Default, PartialEq)]
struct ImageReference {
    registry: String,
    repository: String,
    tag: String,
    digest: String,
}

impl ImageReference {
    fn parse(text: &str) -> Result<Self, String> {
        let (named, digest) = match text.split_once('@') {
            Some((named, digest)) if is_digest(digest) => (named, digest),
            Some(_) => return Err(parse_error(text)),
            None => (text, ""),
        };
        // A colon after the last slash begins the tag; an earlier one begins a port.
        let last = named.rfind('/').map_or(0, |at| at + 1);
        let (name, tag) = match named[last..].find(':') {
            Some(colon) => (&named[..last + colon], &named[last + colon + 1..]),
            None => (named, ""),
        };
        let tagged = name.len() < named.len();
        if !is_name(name) || (tagged && !is_tag(tag)) {
            return Err(parse_error(text));
        }
        let (registry, repository) = match name.split_once('/') {
            Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => {
                (first, rest)
            }
            _ => ("", name),
        };
        Ok(Self {
            registry: registry.into(),
            repository: repository.into(),
            tag: tag.into(),
            // Of a tag and a digest, only the tag is kept.
            digest: if tagged { "" } else { digest }.into(),
        })
    }

    fn set_tag_or_digest(&mut self, text: &str) {
        if is_tag(text) {
            self.tag = text.into();
            self.digest.clear();
        } else if is_digest(text) {
            self.digest = text.into();
            self.tag.clear();
        }
    }
}

impl fmt::Display for ImageReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.registry.is_empty() {
            write!(f, "{}/", self.registry)?;
        }
        f.write_str(&self.repository)?;
        if !self.tag.is_empty() {
            write!(f, ":{}", self.tag)
        } else if !self.digest.is_empty() {
            write!(f, "@{}", self.digest)
        } else {
            Ok(())
        }
    }
}

fn is_tag(text: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.len() <= 128
        && text.starts_with(word)
        && text.chars().all(|c| word(c) || c == '.' || c == '-')
}

fn is_digest(text: &str) -> bool {
    text.split_once(':').is_some_and(|(algorithm, hex)| {
        algorithm.starts_with(|c: char| c.is_ascii_alphabetic())
            && algorithm
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_+.".contains(c))
            && hex.len() >= 32
            && hex.bytes().all(|b| b.is_ascii_hexdigit())
    })
}

/// A repository path, with or without a host before it.
fn is_name(name: &str) -> bool {
    let hosted = |(host, path): (&str, &str)| is_host(host) && is_path(path);
    is_path(name) || name.split_once('/').is_some_and(hosted)
}

fn is_host(text: &str) -> bool {
    let (name, port) = text.rsplit_once(':').unwrap_or((text, "0"));
    let label = |l: &str| {
        let ends = |c: char| c.is_ascii_alphanumeric();
        l.starts_with(ends) && l.ends_with(ends) && l.chars().all(|c| ends(c) || c == '-')
    };
    let address = name.strip_prefix('[').and_then(|n| n.strip_suffix(']'));
    let fits = match address {
        Some(address) => address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':'),
        None => name.split('.').all(label),
    };
    fits && !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit())
}

/// Path components of lowercase letters and digits, joined by single separators.
fn is_path(text: &str) -> bool {
    text.split('/').all(|part| {
        let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let marks = part.split(word).filter(|mark| !mark.is_empty());
        let joined =
            |mark: &str| matches!(mark, "." | "_" | "__") || mark.chars().all(|c| c == '-');
        part.starts_with(word) && part.ends_with(word) && marks.into_iter().all(joined)
    })
}

fn parse_error(text: &str) -> String {
    let small = text.to_lowercase();
    if small != text && ImageReference::parse(&small).is_ok() {
        return format!(
            "failed to parse image value({text}), error: repository name must be lowercase"
        );
    }
    format!("failed to parse image value({text}), error: invalid reference format")
}

/// Overrides the images of all containers, or the one field that the predicate names. An error
/// comes with its path.
pub(crate) fn apply_image_overrider(
    manifest: &mut Value,
    overrider: &ImageOverrider,
) -> Result<(), (String, String)> {
    if let Some(predicate) = &overrider.predicate {
        let path = &predicate.path;
        let failed = |reason: String| (path.clone(), reason);
        let image = match manifest.pointer_mut(path) {
            Some(Value::String(image)) => image,
            Some(_) => return Err(failed("the value is not a string".into())),
            None => return Err(failed("there is nothing at this path".into())),
        };
        *image = override_image(image, overrider).map_err(failed)?;
        return Ok(());
    }
    let Some(path) = pod_spec_path(manifest) else {
        return Ok(());
    };
    let path = format!("{path}/containers");
    let containers = manifest.pointer_mut(&path).and_then(Value::as_array_mut);
    for (at, container) in containers.into_iter().flatten().enumerate() {
        if let Some(Value::String(image)) = container.get_mut("image") {
            *image = override_image(image, overrider)
                .map_err(|reason| (format!("{path}/{at}/image"), reason))?;
        }
    }
    Ok(())
}

fn override_image(image: &str, overrider: &ImageOverrider) -> Result<String, String> {
    let mut image = ImageReference::parse(image)?;
    let value = &overrider.value;
    let changed = |old: &str| match overrider.operator.as_str() {
        "add" => format!("{old}{value}"),
        "replace" => value.clone(),
        "remove" => String::new(),
        _ => old.to_owned(),
    };
    match overrider.component.as_str() {
        "Registry" => image.registry = changed(&image.registry),
        "Repository" => image.repository = changed(&image.repository),
        "Tag" if overrider.operator == "remove" => {
            image.tag.clear();
            image.digest.clear();
        }
        "Tag" => {
            // At most one of tag and digest is set.
            let new = changed(&format!("{}{}", image.tag, image.digest));
            image.set_tag_or_digest(&new);
        }
        other => return Err(format!("unsupported image component({other})")),
    }
    Ok(image.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(image: &str, component: &str, operator: &str, value: &str, expected: &str) {
        let overrider = ImageOverrider {
            predicate: None,
            component: component.into(),
            operator: operator.into(),
            value: value.into(),
        };
        let actual = override_image(image, &overrider).unwrap();
        assert_eq!(actual, expected, "{image} {component} {operator} {value}");
    }

    // proves: OVR-image-host, OVR-image-operators
    #[test]
    fn registries() {
        check("nginx:1", "Registry", "add", "reg.io", "reg.io/nginx:1");
        check("reg.io/a/b", "Registry", "add", ".cn", "reg.io.cn/a/b");
        check("localhost/a", "Registry", "replace", "x.y", "x.y/a");
        check("library/a", "Registry", "replace", "x.y", "x.y/library/a");
        check("local/a", "Registry", "replace", "x.y", "x.y/local/a");
        check("a.b/c/d", "Registry", "replace", "x.y", "x.y/c/d");
        check("a:80/c", "Registry", "replace", "x.y", "x.y/c");
        check("reg.io:5000/a/b:1", "Registry", "remove", "", "a/b:1");
        check("a:1", "Registry", "remove", "", "a:1");
        check("[::1]:5000/a", "Registry", "replace", "x.y", "x.y/a");
    }

    // proves: OVR-image-operators
    #[test]
    fn repositories() {
        check("library/a:1", "Repository", "replace", "b", "b:1");
        check("reg.io/a:1", "Repository", "add", "/b", "reg.io/a/b:1");
        check("reg.io/a/b:1", "Repository", "replace", "c", "reg.io/c:1");
        check("reg.io/a:1", "Repository", "remove", "", "reg.io/:1");
    }

    // proves: OVR-image-digest, OVR-image-tag-wins, OVR-image-operators
    #[test]
    fn tags_and_digests() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let at = format!("a@{digest}");
        check("a:1", "Tag", "replace", "2", "a:2");
        check("a:1", "Tag", "add", "-x", "a:1-x");
        check("a", "Tag", "add", "v1", "a:v1");
        check("a:1", "Tag", "remove", "", "a");
        check(&at, "Tag", "remove", "", "a");
        check("a:1", "Tag", "replace", &digest, &at);
        check(&at, "Tag", "replace", "1", "a:1");
        check("a:1", "Tag", "replace", "no good", "a:1");
        check("a:1", "Tag", "add", "no good", "a:1");
        check(&at, "Tag", "add", "0", &format!("{at}0"));
        check("reg.io:5000/a", "Tag", "replace", "1", "reg.io:5000/a:1");
        // Of tag and digest, only the tag is kept.
        check(&format!("a:1@{digest}"), "Tag", "remove", "", "a");
        check(
            &format!("a:1@{digest}"),
            "Registry",
            "add",
            "r.io",
            "r.io/a:1",
        );
    }

    #[test]
    fn invalid_image_references_are_rejected() {
        for bad in [
            "",
            "a b",
            "a@x",
            ":1",
            "a:b c",
            "a:",
            "a/",
            "/a",
            "a//b",
            "a..b",
            "a_-b",
            "-a",
            "a-",
            "reg.io:x/a",
            "ä",
        ] {
            let error = ImageReference::parse(bad).unwrap_err();
            assert!(
                error.ends_with("invalid reference format"),
                "{bad:?} {error}"
            );
        }
        for capital in ["Nginx", "reg.io/A:1"] {
            let error = ImageReference::parse(capital).unwrap_err();
            assert!(error.ends_with("must be lowercase"), "{capital:?} {error}");
        }
        for fine in ["a__b", "a--b", "a.b/c_d", "REG/a", "reg.io/a:T_1.x-y"] {
            assert!(ImageReference::parse(fine).is_ok(), "{fine:?}");
        }
        let overrider = ImageOverrider {
            component: "Size".into(),
            ..ImageOverrider::default()
        };
        assert!(override_image("a", &overrider).is_err());
    }
}
