//! Whether and when to try a model request again (pure).
//!
//! The agent counts attempts and waits; this decides. A server's own delay is a minimum, and a delay that is longer
//! than a user would sit through ends the run with the time in the error instead of a silent wait.

use std::time::Duration;

use crate::error::{ModelError, ModelErrorKind};
use crate::governor::PATIENCE_WITH_FALLBACK_MS;

/// The words by which providers mark a refused connection in [`ModelError::message`]: nobody listens there, so many
/// slow attempts would only hide that.
pub const CONNECTION_REFUSED: &str = "connection refused";

/// What to do after a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryDecision {
    /// Try the same request again.
    Retry {
        /// After this long.
        after: Duration,
    },
    /// Ask the next model of the fallback list.
    Fallback,
    /// Report the error.
    GiveUp,
}

/// The limits of retrying one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts in all when the provider limits the rate or has no capacity.
    pub max_attempts_waiting: u32,
    /// Attempts in all for every other failure that may pass.
    pub max_attempts: u32,
    /// Attempts in all when a quota is used up that starts again soon.
    pub max_attempts_quota: u32,
    /// Attempts in all when nobody listens at the address.
    pub max_attempts_refused: u32,
    /// The first delay; it doubles with each attempt.
    pub base: Duration,
    /// The longest delay of our own.
    pub cap: Duration,
    /// The longest delay a server may ask for before we give up instead of waiting.
    pub max_server_delay: Duration,
    /// Overloads in a row after which the next model of the fallback list is asked.
    pub overloads_before_fallback: u32,
    /// Whether there is a next model.
    pub has_fallback: bool,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_attempts_waiting: 10,
            max_attempts: 5,
            max_attempts_quota: 3,
            max_attempts_refused: 3,
            base: Duration::from_secs(1),
            cap: Duration::from_secs(60),
            max_server_delay: Duration::from_secs(300),
            overloads_before_fallback: 3,
            has_fallback: false,
        }
    }
}

/// Delay before the second attempt at an address that refused the connection; doubles once.
const REFUSED_DELAY: Duration = Duration::from_millis(250);
/// Most that is added to a server's delay, in milliseconds.
const SERVER_JITTER_MS: u64 = 1_000;

impl RetryPolicy {
    /// Decides after failed attempt number `attempt` (the first is 1). `consecutive_overloads` counts this failure
    /// when it is an overload; `jitter` is any random number.
    #[must_use]
    pub fn decide(&self, attempt: u32, consecutive_overloads: u32, error: &ModelError, jitter: u64) -> RetryDecision {
        let overloaded = error.kind == ModelErrorKind::Overloaded;
        if overloaded && self.has_fallback && consecutive_overloads >= self.overloads_before_fallback {
            return RetryDecision::Fallback;
        }
        let limited = error.is_limit();
        let out_of_tries = if self.has_fallback && limited { RetryDecision::Fallback } else { RetryDecision::GiveUp };
        // A quota that is used up is waited for when it is known until when.
        let starts_again = error.kind == ModelErrorKind::Quota && error.retry_after.is_some();
        let may_pass = error.is_retryable() || (starts_again && error.should_retry.is_none());
        if !may_pass {
            return RetryDecision::GiveUp;
        }
        let patience = Duration::from_millis(PATIENCE_WITH_FALLBACK_MS);
        let most = if self.has_fallback && limited { patience } else { self.max_server_delay };
        if error.retry_after.is_some_and(|delay| delay > most) {
            return out_of_tries;
        }
        if is_refused(error) {
            if attempt >= self.max_attempts_refused {
                return RetryDecision::GiveUp;
            }
            return RetryDecision::Retry { after: REFUSED_DELAY.saturating_mul(attempt.max(1)) };
        }
        let most = match error.kind {
            ModelErrorKind::RateLimited | ModelErrorKind::Overloaded => self.max_attempts_waiting,
            ModelErrorKind::Quota => self.max_attempts_quota,
            _ => self.max_attempts,
        };
        if attempt >= most {
            return out_of_tries;
        }
        RetryDecision::Retry { after: self.delay(attempt, error.retry_after, jitter) }
    }

    fn delay(&self, attempt: u32, server: Option<Duration>, jitter: u64) -> Duration {
        if let Some(server) = server {
            return server.saturating_add(Duration::from_millis(jitter % (SERVER_JITTER_MS + 1)));
        }
        self.own_delay(attempt, jitter)
    }

    /// The pause after so many failures when the server names none.
    #[must_use]
    pub fn own_delay(&self, failures: u32, jitter: u64) -> Duration {
        let attempt = failures;
        let factor = 1u32.checked_shl(attempt.saturating_sub(1)).unwrap_or(u32::MAX);
        let full = self.base.saturating_mul(factor).min(self.cap);
        let millis = u64::try_from(full.as_millis()).unwrap_or(u64::MAX);
        // Three quarters, plus up to one half: the full delay, a quarter more or less.
        let spread = millis / 2;
        Duration::from_millis(millis - millis / 4 + jitter % (spread + 1))
    }
}

fn is_refused(error: &ModelError) -> bool {
    error.kind == ModelErrorKind::Transport && error.message.contains(CONNECTION_REFUSED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(kind: ModelErrorKind) -> ModelError {
        ModelError::new(kind, "it failed")
    }

    fn after(decision: RetryDecision) -> Duration {
        match decision {
            RetryDecision::Retry { after } => after,
            other => panic!("no retry but {other:?}"),
        }
    }

    #[test]
    fn own_delays_double_within_a_quarter_up_to_the_cap() {
        let policy = RetryPolicy::default();
        for attempt in 1..=9u32 {
            let full = (1_000u64 << (attempt - 1)).min(60_000);
            for jitter in [0, 1, 499, u64::MAX] {
                let waited = after(policy.decide(attempt, 0, &error(ModelErrorKind::RateLimited), jitter)).as_millis();
                let (low, high) = (u128::from(full - full / 4), u128::from(full + full / 4));
                assert!((low..=high).contains(&waited), "attempt {attempt} waits {waited} ms");
            }
        }
    }

    #[test]
    fn tries_are_bounded_by_kind() {
        let policy = RetryPolicy::default();
        for (kind, most) in [
            (ModelErrorKind::RateLimited, 10),
            (ModelErrorKind::Overloaded, 10),
            (ModelErrorKind::Server, 5),
            (ModelErrorKind::Transport, 5),
            (ModelErrorKind::Protocol, 5),
        ] {
            assert!(matches!(policy.decide(most - 1, 0, &error(kind), 0), RetryDecision::Retry { .. }), "{kind:?}");
            assert_eq!(policy.decide(most, 0, &error(kind), 0), RetryDecision::GiveUp, "{kind:?}");
            assert_eq!(policy.decide(u32::MAX, 0, &error(kind), 0), RetryDecision::GiveUp, "{kind:?}");
        }
        for kind in [
            ModelErrorKind::Auth,
            ModelErrorKind::LoginExpired,
            ModelErrorKind::LoginRevoked,
            ModelErrorKind::Quota,
            ModelErrorKind::Overflow,
            ModelErrorKind::InvalidRequest,
            ModelErrorKind::RefusedMedia,
            ModelErrorKind::RefusedField,
            ModelErrorKind::UnknownModel,
            ModelErrorKind::BadToolCall,
            ModelErrorKind::Cancelled,
        ] {
            assert_eq!(policy.decide(1, 0, &error(kind), 0), RetryDecision::GiveUp, "{kind:?}");
        }
    }

    #[test]
    fn a_servers_delay_is_a_minimum_and_a_long_one_ends_it() {
        let policy = RetryPolicy::default();
        let mut limited = error(ModelErrorKind::RateLimited);
        limited.retry_after = Some(Duration::from_secs(3));
        for jitter in [0, 500, u64::MAX] {
            let waited = after(policy.decide(1, 0, &limited, jitter));
            assert!(waited >= Duration::from_secs(3) && waited <= Duration::from_secs(4), "{waited:?}");
        }
        limited.retry_after = Some(Duration::from_secs(300));
        assert!(matches!(policy.decide(1, 0, &limited, 0), RetryDecision::Retry { .. }));
        limited.retry_after = Some(Duration::from_secs(86_400));
        assert_eq!(policy.decide(1, 0, &limited, 0), RetryDecision::GiveUp);
    }

    #[test]
    fn another_model_is_not_left_idle_for_a_pause_that_a_user_would_notice() {
        let policy = RetryPolicy { has_fallback: true, ..RetryPolicy::default() };
        for kind in [ModelErrorKind::RateLimited, ModelErrorKind::Overloaded, ModelErrorKind::Quota] {
            let mut limited = error(kind);
            limited.retry_after = Some(Duration::from_secs(5));
            assert!(matches!(policy.decide(1, 0, &limited, 0), RetryDecision::Retry { .. }), "{kind:?}");
            limited.retry_after = Some(Duration::from_secs(6));
            assert_eq!(policy.decide(1, 0, &limited, 0), RetryDecision::Fallback, "{kind:?}");
        }
    }

    #[test]
    fn a_quota_that_starts_again_soon_is_waited_for_a_few_times() {
        let policy = RetryPolicy::default();
        let mut quota = error(ModelErrorKind::Quota);
        assert_eq!(policy.decide(1, 0, &quota, 0), RetryDecision::GiveUp, "nobody knows when");
        quota.retry_after = Some(Duration::from_secs(20));
        assert!(after(policy.decide(2, 0, &quota, 0)) >= Duration::from_secs(20));
        assert_eq!(policy.decide(3, 0, &quota, 0), RetryDecision::GiveUp);
    }

    #[test]
    fn the_servers_word_on_retrying_wins() {
        let policy = RetryPolicy::default();
        let mut refused = error(ModelErrorKind::InvalidRequest);
        refused.should_retry = Some(true);
        assert!(matches!(policy.decide(1, 0, &refused, 0), RetryDecision::Retry { .. }));
        let mut server = error(ModelErrorKind::Server);
        server.should_retry = Some(false);
        assert_eq!(policy.decide(1, 0, &server, 0), RetryDecision::GiveUp);
    }

    #[test]
    fn three_overloads_ask_the_next_model_if_there_is_one() {
        let overloaded = error(ModelErrorKind::Overloaded);
        let policy = RetryPolicy { has_fallback: true, ..RetryPolicy::default() };
        assert!(matches!(policy.decide(2, 2, &overloaded, 0), RetryDecision::Retry { .. }));
        assert_eq!(policy.decide(3, 3, &overloaded, 0), RetryDecision::Fallback);
        assert!(matches!(RetryPolicy::default().decide(3, 3, &overloaded, 0), RetryDecision::Retry { .. }));
    }

    #[test]
    fn a_refused_connection_is_told_within_a_second() {
        let policy = RetryPolicy::default();
        let refused = ModelError::new(ModelErrorKind::Transport, format!("127.0.0.1:9: {CONNECTION_REFUSED}"));
        let waited = after(policy.decide(1, 0, &refused, 7)) + after(policy.decide(2, 0, &refused, 7));
        assert!(waited < Duration::from_secs(1));
        assert_eq!(policy.decide(3, 0, &refused, 7), RetryDecision::GiveUp);
    }
}
