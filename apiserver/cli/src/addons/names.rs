//! The names that the commands take.

use anyhow::bail;
use karmada_api::addons::Addon;

/// The name that stands for all addons.
const ALL_ADDONS: &str = "all";

/// The names that an argument of the commands can have.
pub(crate) fn addon_names() -> impl Iterator<Item = &'static str> {
    let names = Addon::ALL.map(Addon::name);
    names.into_iter().chain([ALL_ADDONS])
}

/// The addons of the names, in the words of karmadactl if they are none.
pub(super) fn addons_of(names: &[String]) -> anyhow::Result<Vec<Addon>> {
    if names.is_empty() {
        bail!("addonNames must be not be null");
    }
    let mut addons = Vec::new();
    for name in names {
        match Addon::from_name(name) {
            Some(addon) if addons.contains(&addon) => {}
            Some(addon) => addons.push(addon),
            None if name == ALL_ADDONS => {}
            None => bail!("addon {name} is not be supported now"),
        }
    }
    Ok(match names.iter().any(|name| name == ALL_ADDONS) {
        true => Addon::ALL.into(),
        false => addons,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_addons() {
        let addons = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            addons_of(&names).map_err(|error| error.to_string())
        };
        assert_eq!(
            addons(&["karmada-search", "karmada-descheduler", "karmada-search"]).unwrap(),
            [Addon::Search, Addon::Descheduler]
        );
        assert_eq!(addons(&["all"]).unwrap(), Addon::ALL);
        assert_eq!(addons(&[]).unwrap_err(), "addonNames must be not be null");
        assert_eq!(
            addons(&["all", "karmada-serch"]).unwrap_err(),
            "addon karmada-serch is not be supported now"
        );
    }
}
