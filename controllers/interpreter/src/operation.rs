//! The operations of the interpreter, and their names in the API and in scripts.

/// An operation of the interpreter: `InterpreterOperation` of `config.karmada.io/v1alpha1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InterpreterOperation {
    InterpretReplica,
    InterpretComponent,
    ReviseReplica,
    Retain,
    AggregateStatus,
    InterpretStatus,
    InterpretHealth,
    InterpretDependency,
}

impl InterpreterOperation {
    pub const ALL: [Self; 8] = [
        Self::InterpretReplica,
        Self::InterpretComponent,
        Self::ReviseReplica,
        Self::Retain,
        Self::AggregateStatus,
        Self::InterpretStatus,
        Self::InterpretHealth,
        Self::InterpretDependency,
    ];

    /// Its name in a ResourceInterpreterWebhookConfiguration.
    pub fn name(self) -> &'static str {
        match self {
            Self::InterpretReplica => "InterpretReplica",
            Self::InterpretComponent => "InterpretComponent",
            Self::ReviseReplica => "ReviseReplica",
            Self::Retain => "Retain",
            Self::AggregateStatus => "AggregateStatus",
            Self::InterpretStatus => "InterpretStatus",
            Self::InterpretHealth => "InterpretHealth",
            Self::InterpretDependency => "InterpretDependency",
        }
    }

    /// The name of the Lua function that implements it.
    pub fn lua_function(self) -> &'static str {
        match self {
            Self::InterpretReplica => "GetReplicas",
            Self::InterpretComponent => "GetComponents",
            Self::ReviseReplica => "ReviseReplica",
            Self::Retain => "Retain",
            Self::AggregateStatus => "AggregateStatus",
            Self::InterpretStatus => "ReflectStatus",
            Self::InterpretHealth => "InterpretHealth",
            Self::InterpretDependency => "GetDependencies",
        }
    }

    /// Its field in `spec.customizations` of a ResourceInterpreterCustomization.
    pub fn customization_field(self) -> &'static str {
        match self {
            Self::InterpretReplica => "replicaResource",
            Self::InterpretComponent => "componentResource",
            Self::ReviseReplica => "replicaRevision",
            Self::Retain => "retention",
            Self::AggregateStatus => "statusAggregation",
            Self::InterpretStatus => "statusReflection",
            Self::InterpretHealth => "healthInterpretation",
            Self::InterpretDependency => "dependencyInterpretation",
        }
    }

    /// The operation of a field in `spec.customizations`.
    pub fn from_customization_field(field: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|o| o.customization_field() == field)
    }
}
