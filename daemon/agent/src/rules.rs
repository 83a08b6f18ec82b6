//! The rules of a run, as they are whenever a call is decided.

use std::fmt;
use std::sync::Arc;

use mcode_permissions::RuleSet;

/// Gives the rules as they now are: an answer that keeps a rule counts from the next call on. Cheap to clone and to ask.
#[derive(Clone)]
pub struct LiveRules(Arc<dyn Fn() -> Arc<RuleSet> + Send + Sync>);

impl LiveRules {
    /// Rules that this gives.
    pub fn new(rules: impl Fn() -> Arc<RuleSet> + Send + Sync + 'static) -> Self {
        Self(Arc::new(rules))
    }

    /// The rules as they now are.
    #[must_use]
    pub fn now(&self) -> Arc<RuleSet> {
        (self.0)()
    }
}

impl fmt::Debug for LiveRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LiveRules").finish()
    }
}
