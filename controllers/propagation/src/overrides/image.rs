//! Images: their parts, and overriding one of them.
//!
//! Enters: an image reference. Leaves: the reference with another registry,
//! repository or tag. Pure. The grammar is that of `distribution/reference`.

use std::fmt;

use openapi::karmada::policy::ImageOverrider;
use serde_json::Value;

use super::rules::pod_spec;

#[derive(Debug, Default, PartialEq)]
struct Image {
    registry: String,
    repository: String,
    tag: String,
    digest: String,
}

impl Image {
    fn parse(text: &str) -> Result<Self, String> {
        let (named, digest) = text.split_once('@').unwrap_or((text, ""));
        // A colon after the last slash begins the tag; before it, a port.
        let last = named.rfind('/').map_or(0, |at| at + 1);
        let (name, tag) = match named[last..].find(':') {
            Some(colon) => (&named[..last + colon], &named[last + colon + 1..]),
            None => (named, ""),
        };
        let bad = name.is_empty()
            || name.chars().any(char::is_whitespace)
            || (!digest.is_empty() && !is_digest(digest))
            || (!tag.is_empty() && !is_tag(tag));
        if bad {
            return Err(format!("invalid image reference {text:?}"));
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
            digest: digest.into(),
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

impl fmt::Display for Image {
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

/// Overrides the images of all containers, or the one that the predicate names.
pub(super) fn apply(manifest: &mut Value, overrider: &ImageOverrider) -> Result<(), String> {
    if let Some(predicate) = &overrider.predicate {
        let path = &predicate.path;
        let Some(Value::String(image)) = manifest.pointer_mut(path) else {
            return Err(format!("no string at {path}"));
        };
        *image = overridden(image, overrider)?;
        return Ok(());
    }
    let Some(path) = pod_spec(manifest) else {
        return Ok(());
    };
    let containers = manifest
        .pointer_mut(&format!("{path}/containers"))
        .and_then(Value::as_array_mut);
    for container in containers.into_iter().flatten() {
        if let Some(Value::String(image)) = container.get_mut("image") {
            *image = overridden(image, overrider)?;
        }
    }
    Ok(())
}

fn overridden(image: &str, overrider: &ImageOverrider) -> Result<String, String> {
    let mut image = Image::parse(image)?;
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
            if image.tag.is_empty() {
                image.digest.clear();
            }
            image.tag.clear();
        }
        "Tag" => {
            let old = if image.tag.is_empty() {
                &image.digest
            } else {
                &image.tag
            };
            let new = changed(old);
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
        let found = overridden(image, &overrider).unwrap();
        assert_eq!(found, expected, "{image} {component} {operator} {value}");
    }

    #[test]
    fn parts_of_images_are_overridden() {
        let digest = format!("sha256:{}", "a".repeat(64));
        check("nginx:1", "Registry", "add", "reg.io", "reg.io/nginx:1");
        check("reg.io:5000/a/b:1", "Registry", "remove", "", "a/b:1");
        check("reg.io/a/b", "Registry", "add", ".cn", "reg.io.cn/a/b");
        check("localhost/a", "Registry", "replace", "x.y", "x.y/a");
        check("library/a:1", "Repository", "replace", "b", "b:1");
        check("reg.io/a:1", "Repository", "add", "/b", "reg.io/a/b:1");
        check("a:1", "Tag", "replace", "2", "a:2");
        check("a:1", "Tag", "add", "-x", "a:1-x");
        check("a", "Tag", "add", "v1", "a:v1");
        check("a:1", "Tag", "remove", "", "a");
        check("a:1", "Tag", "replace", &digest, &format!("a@{digest}"));
        check(&format!("a@{digest}"), "Tag", "replace", "1", "a:1");
        check("a:1", "Tag", "replace", "no good", "a:1");
    }

    #[test]
    fn what_is_no_image_is_refused() {
        for bad in ["", "a b", "a@x", ":1", "a:b c"] {
            assert!(Image::parse(bad).is_err(), "{bad:?}");
        }
    }
}
