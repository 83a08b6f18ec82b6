//! Typed identifiers and the two counters everything else is built on.
//!
//! Every id is a UUIDv7 behind a typed prefix (`thr_0190…`), so a thread id can not be passed where a run id is
//! wanted and a reader of a log line sees what kind of thing is named. Ids sort by the time they were made.
//! Absent on purpose: making ids. Only `mcode-env` reads the clock and randomness.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

/// A text that is not an id of the expected kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a {kind} id (expected '{prefix}' and 32 hex digits)")]
pub struct ParseIdError {
    /// What was given.
    pub text: String,
    /// The kind of id that was wanted, for people.
    pub kind: &'static str,
    /// The prefix that such ids carry.
    pub prefix: &'static str,
}

macro_rules! typed_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// The prefix of the text form.
            pub const PREFIX: &'static str = $prefix;

            /// Wraps a UUID as an id of this kind.
            #[must_use]
            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }

            /// The UUID without its prefix.
            #[must_use]
            pub const fn uuid(self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0.simple())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.strip_prefix($prefix)
                    .filter(|hex| hex.len() == 32)
                    .and_then(|hex| Uuid::try_parse(hex).ok())
                    .map(Self)
                    .ok_or_else(|| ParseIdError { text: text.chars().take(80).collect(), kind: $kind, prefix: $prefix })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

typed_id!(
    /// A durable conversation; owns one event log.
    ThreadId, "thread", "thr_"
);
typed_id!(
    /// One activation of the agent, from start to idle; one cancellation scope.
    RunId, "run", "run_"
);
typed_id!(
    /// From one input to the assistant's stop.
    TurnId, "turn", "trn_"
);
typed_id!(
    /// One model request plus the tool calls it asked for.
    StepId, "step", "stp_"
);
typed_id!(
    /// A displayable unit of a turn, such as a message.
    ItemId, "item", "itm_"
);
typed_id!(
    /// One request of the model to run a tool.
    ToolCallId, "tool call", "tc_"
);
typed_id!(
    /// A pending question whether a tool call may run.
    ApprovalId, "approval", "apr_"
);
typed_id!(
    /// A question that the model asked the user.
    QuestionId, "question", "qst_"
);
typed_id!(
    /// Something the user typed that waits for its place in a run.
    InputId, "input", "inp_"
);
typed_id!(
    /// An OS child owned by the daemon.
    ProcessId, "process", "prc_"
);
typed_id!(
    /// A directory tree with an identity.
    ProjectId, "project", "prj_"
);
typed_id!(
    /// A rule that was given with an answer, for a while or for a place.
    GrantId, "grant", "grt_"
);
typed_id!(
    /// Something that the agent works towards over many runs.
    GoalId, "goal", "gol_"
);
typed_id!(
    /// A state of a project's files that was kept.
    CheckpointId, "checkpoint", "chk_"
);
typed_id!(
    /// Joins what a user was told with the chain of causes in the daemon's log.
    ErrorId, "error", "err_"
);

/// Position of an event in its thread: gapless, from 1. `Seq::ZERO` is "before the first event".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(u64);

impl Seq {
    /// Before the first event.
    pub const ZERO: Self = Self(0);

    /// The position with this number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The position after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// Chosen by a client for one mutation, so that a retry of the call does the thing once.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestId(String);

impl RequestId {
    /// The longest request id that is accepted, in bytes.
    pub const MAX_BYTES: usize = 128;

    /// Takes a client's text as a request id; `None` when it is empty, too long or holds control characters.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let fits = !text.is_empty() && text.len() <= Self::MAX_BYTES && !text.chars().any(char::is_control);
        fits.then(|| Self(text.to_owned()))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_round_trip_and_refuse_other_kinds() {
        let id = ThreadId::from_uuid(Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_002a));
        let text = id.to_string();
        assert_eq!(text, "thr_0190000000007000800000000000002a");
        assert_eq!(text.parse(), Ok(id));
        assert_eq!(serde_json::from_str::<ThreadId>(&serde_json::to_string(&id).unwrap()).unwrap(), id);
        let wrong = text.parse::<RunId>().unwrap_err();
        assert_eq!(
            wrong.to_string(),
            "'thr_0190000000007000800000000000002a' is not a run id (expected 'run_' and 32 hex digits)"
        );
        for bad in ["", "thr_", "thr_0190", "thr_zz90000000007000800000000000002a", "0190000000007000800000000000002a"]
        {
            assert!(bad.parse::<ThreadId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn request_ids_are_bounded() {
        assert!(RequestId::parse("a-b").is_some());
        assert!(RequestId::parse("").is_none());
        assert!(RequestId::parse("a\nb").is_none());
        assert!(RequestId::parse(&"x".repeat(RequestId::MAX_BYTES)).is_some());
        assert!(RequestId::parse(&"x".repeat(RequestId::MAX_BYTES + 1)).is_none());
    }
}
