//! The functions of CEL's standard library, of its extensions, and of Kubernetes' libraries.

pub(crate) mod aggregates;
mod authorizer;
mod conversions;
pub(crate) mod formats;
mod lists;
mod net;
mod numbers;
mod operators;
mod optionals;
mod quantity;
pub(crate) mod regex;
pub(crate) mod semver;
mod sets;
mod string_format;
mod strings;
pub(crate) mod time;
pub(crate) mod url;

use crate::function::DeclaredOverload;

/// The overloads of all libraries.
pub(crate) fn all() -> impl Iterator<Item = &'static DeclaredOverload> {
    let libraries: [&[DeclaredOverload]; 16] = [
        operators::OVERLOADS,
        numbers::OVERLOADS,
        aggregates::OVERLOADS,
        conversions::OVERLOADS,
        time::OVERLOADS,
        strings::OVERLOADS,
        lists::OVERLOADS,
        sets::OVERLOADS,
        optionals::OVERLOADS,
        regex::OVERLOADS,
        url::OVERLOADS,
        quantity::OVERLOADS,
        net::OVERLOADS,
        formats::OVERLOADS,
        semver::OVERLOADS,
        authorizer::OVERLOADS,
    ];
    libraries.into_iter().flatten()
}
