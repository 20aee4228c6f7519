//! What templates refer to follows them: a binding whose policy says `propagateDeps`
//! has bindings attached to it, one for each object that its template needs.
//!
//! Enters: bindings, their templates, and the objects that these refer to. Leaves: the
//! annotation that tells the dependencies, and attached bindings, which name whom they
//! are required by and where. They have no placement of their own, unless a policy takes
//! the object too; then the clusters of both add up. Writes ResourceBindings only.
//! Source: Karmada's `pkg/dependenciesdistributor`.

mod attach;
#[cfg(test)]
mod properties;
mod route;
mod shell;

pub(crate) use shell::Dependencies;
