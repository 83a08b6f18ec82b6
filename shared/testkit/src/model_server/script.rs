//! The list of replies, and the standing rules beside it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use super::recorded::RecordedRequest;
use super::reply::Reply;

type Matches = Arc<dyn Fn(&RecordedRequest) -> bool + Send + Sync>;

/// What the server answers, in order; plus rules for requests that are not part of that order.
#[derive(Clone)]
pub struct Script {
    pub(super) replies: VecDeque<Reply>,
    pub(super) rules: Vec<(Matches, Reply)>,
    pub(super) fallback: Option<Reply>,
    pub(super) validate: bool,
    pub(super) allow_unused: bool,
    pub(super) refused_fields: Vec<String>,
    pub(super) signatures: Vec<(String, String)>,
}

impl Default for Script {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script")
            .field("replies", &self.replies)
            .field("rules", &self.rules.len())
            .field("fallback", &self.fallback)
            .field("validate", &self.validate)
            .finish_non_exhaustive()
    }
}

impl Script {
    /// An empty script that validates.
    #[must_use]
    pub fn new() -> Self {
        Self {
            replies: VecDeque::new(),
            rules: Vec::new(),
            fallback: None,
            validate: true,
            allow_unused: false,
            refused_fields: Vec::new(),
            signatures: Vec::new(),
        }
    }

    /// Adds a reply to the end of the list.
    #[must_use]
    pub fn reply(mut self, reply: Reply) -> Self {
        self.replies.push_back(reply);
        self
    }

    /// Adds the same reply `count` times.
    #[must_use]
    pub fn repeat(mut self, count: usize, reply: &Reply) -> Self {
        self.replies.extend(std::iter::repeat_n(reply.clone(), count));
        self
    }

    /// Answers every request that `matches` with `reply`, whenever it comes, without using up the list. For requests
    /// beside the main conversation, such as titles.
    #[must_use]
    pub fn always(mut self, matches: impl Fn(&RecordedRequest) -> bool + Send + Sync + 'static, reply: Reply) -> Self {
        self.rules.push((Arc::new(matches), reply));
        self
    }

    /// Answers what is left when the list is used up. Without it such a request gets a 400 and fails the test.
    #[must_use]
    pub fn fallback(mut self, make: impl Fn(&RecordedRequest) -> Reply + Send + Sync + 'static) -> Self {
        self.fallback = Some(Reply::from(make));
        self
    }

    /// Takes every request as it is, also one that a provider would refuse.
    #[must_use]
    pub fn without_validation(mut self) -> Self {
        self.validate = false;
        self
    }

    /// Replies that were never asked for do not fail the test.
    #[must_use]
    pub fn allow_unused(mut self) -> Self {
        self.allow_unused = true;
        self
    }

    /// Answers 400 to any request that has one of these top-level fields, as some compatible servers do.
    #[must_use]
    pub fn refuse_fields<F: Into<String>>(mut self, fields: impl IntoIterator<Item = F>) -> Self {
        self.refused_fields.extend(fields.into_iter().map(Into::into));
        self
    }

    /// Takes `signature` from `model` although this server never sent it: for histories made by hand.
    #[must_use]
    pub fn trust_signature(mut self, signature: impl Into<String>, model: impl Into<String>) -> Self {
        self.signatures.push((signature.into(), model.into()));
        self
    }
}
