//! Locates a value in the object that a variable holds, to find its declared size.

use std::rc::Rc;

/// One step from a variable to a part of its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PathStep {
    Variable,
    Field(Rc<str>),
    Items,
    Values,
    Keys,
    Indices,
}

pub(crate) type EstimatedPath = Rc<[PathStep]>;

pub(crate) fn extend(path: Option<&EstimatedPath>, step: PathStep) -> EstimatedPath {
    let steps = path.map_or(&[][..], |p| p);
    steps.iter().cloned().chain([step]).collect()
}
