//! What the user wants of the sandbox.

/// Whether commands may use the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NetworkRule {
    /// Never.
    Deny,
    /// When a person says so for a command, or the run allows everything.
    #[default]
    Ask,
    /// Always.
    Allow,
}

/// `[sandbox]` of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// `None`: wherever this system can hold a policy. `true`: no command runs where it can not.
    pub enabled: Option<bool>,
    /// The network.
    pub network: NetworkRule,
    /// Hosts that may be reached without asking, such as `*.example.org`.
    pub hosts: Vec<String>,
    /// Folders that may be written beside the project: absolute, below `~`, or from the project.
    pub write: Vec<String>,
}
