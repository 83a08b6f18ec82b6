//! Modes: what a run is for, as far as permission goes.

/// A named posture of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Changes files and runs commands, as rules allow.
    #[default]
    Build,
    /// Looks, thinks, and writes plans under `.mcode/plans/`; nothing else is changed.
    Plan,
    /// Looks only.
    Explore,
}

impl Mode {
    /// The mode of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "build" => Some(Self::Build),
            "plan" => Some(Self::Plan),
            "explore" => Some(Self::Explore),
            _ => None,
        }
    }

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Build => "build",
            Self::Plan => "plan",
            Self::Explore => "explore",
        }
    }
}
