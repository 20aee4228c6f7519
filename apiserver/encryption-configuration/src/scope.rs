//! Which resources can be encrypted in each mode of the server.

/// The resources that this server stores and can encrypt.
#[derive(Clone, Copy, Debug)]
pub enum EncryptableResources {
    /// Flotilla stores every resource.
    All,
    /// Another API server stores all but the resources of Karmada's groups.
    OwnGroups,
}
