//! Modes: what a run is for, as far as permission goes.

/// A named posture of a run. Later is stricter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
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

    /// The mode of a name that a log holds: one that nobody knows any more, or not yet, is the strictest.
    #[must_use]
    pub fn of_log(name: &str) -> Self {
        Self::parse(name).unwrap_or(Self::Explore)
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
