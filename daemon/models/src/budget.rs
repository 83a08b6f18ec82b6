//! Whether there is money for a request before it is sent (pure).
//!
//! What a request can cost at most is held against the limits until its cost is on record. With nothing held, one request
//! goes as long as anything of a limit is left; so all threads together pass a limit by one response at most. Money is in
//! billionths of a dollar ([`NanoUsd`]). What was spent is in the log and comes in from there; what is held is gone with
//! the daemon. Absent on purpose: waiting, the log.

use std::collections::BTreeMap;

use mcode_events::message::Part;
use mcode_events::usage::{NanoUsd, Usage, nanos};
use mcode_ids::GoalId;

use crate::catalog::ModelInfo;
use crate::request::{ModelRequest, PromptMessage};

/// Bytes of a prompt that are a token at the least: a bound for what is not counted before it is sent.
const BYTES_PER_TOKEN_MIN: usize = 2;
/// Most tokens of a picture, or least of a document, at any provider.
const MEDIA_TOKENS: usize = 3_000;
/// Bytes of a document that are a token at the least.
const MEDIA_BYTES_PER_TOKEN: usize = 16;

/// What a limit is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CapScope {
    /// Everything within 24 h.
    Day,
    /// All work for a goal.
    Goal(GoalId),
}

/// A limit that many requests share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cap {
    /// For what.
    pub scope: CapScope,
    /// Most billionths of a dollar.
    pub max: NanoUsd,
}

/// Whether a request may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Now.
    Admit,
    /// There may be room when others have been paid for.
    Wait,
    /// The limit is reached.
    Refuse,
}

/// What requests under way may cost at most.
#[derive(Debug, Default)]
pub struct Held {
    held: BTreeMap<u64, (NanoUsd, Option<GoalId>)>,
    next: u64,
}

impl Held {
    /// What is held against a limit, and by how many.
    #[must_use]
    pub fn against(&self, scope: CapScope) -> (NanoUsd, usize) {
        let counts = |goal: Option<GoalId>| match scope {
            CapScope::Day => true,
            CapScope::Goal(of) => goal == Some(of),
        };
        let of_scope = self.held.values().filter(|(_, goal)| counts(*goal));
        of_scope.fold((0, 0), |(sum, count), (bound, _)| (sum.saturating_add(*bound), count + 1))
    }

    /// Holds so much; the number gives it back.
    pub fn hold(&mut self, bound: NanoUsd, goal: Option<GoalId>) -> u64 {
        let number = self.next;
        self.next += 1;
        self.held.insert(number, (bound, goal));
        number
    }

    /// Gives back what was held: the request is on record, or came to nothing.
    pub fn release(&mut self, number: u64) {
        self.held.remove(&number);
    }
}

/// Judges a request that may cost `bound`, when so much was `spent` and so much is `held` by so many others.
#[must_use]
pub fn judge(cap: Cap, spent: NanoUsd, (held, others): (NanoUsd, usize), bound: NanoUsd) -> Admission {
    // What has no price is not ended by money.
    if bound == 0 {
        return Admission::Admit;
    }
    if spent >= cap.max {
        return Admission::Refuse;
    }
    let fits = spent.saturating_add(held).saturating_add(bound) <= cap.max;
    if others == 0 || fits { Admission::Admit } else { Admission::Wait }
}

/// The most that a request can cost; nothing when the model has no known price.
#[must_use]
pub fn bound(request: &ModelRequest) -> NanoUsd {
    let Some(pricing) = &request.info.pricing else { return 0 };
    let input = prompt_tokens_max(request);
    let output_tokens = u64::from(request.max_output_tokens.unwrap_or(request.info.max_output_tokens));
    let plain = Usage { input_tokens: input, output_tokens, ..Usage::default() };
    let cached = Usage { cache_write_tokens: input, output_tokens, ..Usage::default() };
    nanos(pricing.cost(&plain).max(pricing.cost(&cached)))
}

/// Tokens of one kind that one request can have; servers that tell more (some a -1 without its sign) are not believed.
pub const TOKENS_MAX: u64 = 1_000_000_000;
/// US dollars that one request can cost, whatever its price is said to be.
pub const COST_MAX_USD: f64 = 1_000_000.0;

/// What a request's tokens cost, and whether that is known. The figures are bounded, so that sums of them always are.
#[must_use]
pub fn price(usage: Usage, info: &ModelInfo) -> (Usage, bool) {
    let mut usage = Usage {
        input_tokens: usage.input_tokens.min(TOKENS_MAX),
        output_tokens: usage.output_tokens.min(TOKENS_MAX),
        cache_read_tokens: usage.cache_read_tokens.min(TOKENS_MAX),
        cache_write_tokens: usage.cache_write_tokens.min(TOKENS_MAX),
        reasoning_tokens: usage.reasoning_tokens.min(TOKENS_MAX),
        ..usage
    };
    if let Some(pricing) = &info.pricing {
        usage.cost_usd = pricing.cost(&usage);
    }
    usage.cost_usd = if usage.cost_usd.is_nan() { 0.0 } else { usage.cost_usd.clamp(0.0, COST_MAX_USD) };
    (usage, info.pricing.is_some())
}

/// Tokens that a prompt can have at most.
fn prompt_tokens_max(request: &ModelRequest) -> u64 {
    let system: usize = request.system.iter().map(|part| part.text.len()).sum();
    let tools = request.tools.iter().map(|tool| tool.description.len() + tool.schema.to_string().len());
    let messages = request.messages.iter().map(message_bytes);
    let bytes: usize = system + tools.sum::<usize>() + messages.sum::<usize>();
    let media = request.media.values().map(|media| MEDIA_TOKENS.max(media.bytes.len() / MEDIA_BYTES_PER_TOKEN));
    let tokens = bytes / BYTES_PER_TOKEN_MIN + media.sum::<usize>();
    // More than its window a model does not take.
    (tokens as u64).min(u64::from(request.info.context_tokens))
}

fn message_bytes(message: &PromptMessage) -> usize {
    match message {
        PromptMessage::User(parts) | PromptMessage::Assistant { parts, .. } => parts.iter().map(part_bytes).sum(),
        PromptMessage::Tools(answers) => answers.iter().map(|answer| answer.text.len() + answer.name.len()).sum(),
    }
}

fn part_bytes(part: &Part) -> usize {
    match part {
        Part::Text { text, .. } => text.len(),
        Part::Media { name, .. } => name.len(),
        // Opaque blocks are sent as they are.
        other => serde_json::to_string(other).map_or(0, |text| text.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAP: Cap = Cap { scope: CapScope::Day, max: 1_000 };

    #[test]
    fn what_others_hold_counts_and_one_alone_may_pass_the_limit() {
        for (spent, held, others, bound, expected) in [
            (0, 0, 0, 1_000, Admission::Admit),
            // Alone it may go beyond: by one response.
            (999, 0, 0, 50_000, Admission::Admit),
            (1_000, 0, 0, 1, Admission::Refuse),
            // Nothing that others are charged makes room in a limit that is reached.
            (1_000, 500, 1, 1, Admission::Refuse),
            // A model without a price goes on.
            (1_000, 500, 1, 0, Admission::Admit),
            (0, 500, 1, 500, Admission::Admit),
            (0, 501, 1, 500, Admission::Wait),
            (400, 400, 2, 201, Admission::Wait),
            (400, NanoUsd::MAX, 2, NanoUsd::MAX, Admission::Wait),
            // A model without a price costs nothing that could be held.
            (999, 1, 1, 0, Admission::Admit),
        ] {
            assert_eq!(judge(CAP, spent, (held, others), bound), expected, "{spent} {held} {bound}");
        }
    }

    #[test]
    fn counts_and_prices_beyond_reason_are_bounded() {
        let mut info = ModelInfo::unknown(&"p/m".parse().unwrap());
        let absurd = Usage { input_tokens: u64::MAX, output_tokens: u64::MAX, ..Usage::default() };
        let (told, priced) = price(absurd, &info);
        assert_eq!((told.input_tokens, told.output_tokens, priced), (TOKENS_MAX, TOKENS_MAX, false));
        for dear in [1e300, f64::INFINITY, f64::NAN, -1.0] {
            info.pricing = Some(crate::Pricing { input: dear, output: dear, ..crate::Pricing::default() });
            let (told, _) = price(absurd, &info);
            assert!((0.0..=COST_MAX_USD).contains(&told.cost_usd), "{dear}: {}", told.cost_usd);
        }
    }

    #[test]
    fn what_is_held_is_given_back_and_kept_apart_by_goal() {
        let goal = GoalId::from_uuid("0190000000007000800000000000002a".parse().unwrap());
        let mut held = Held::default();
        let (plain, for_goal) = (held.hold(5, None), held.hold(7, Some(goal)));
        assert_eq!((held.against(CapScope::Day), held.against(CapScope::Goal(goal))), ((12, 2), (7, 1)));
        held.release(plain);
        held.release(plain);
        assert_eq!(held.against(CapScope::Day), (7, 1));
        held.release(for_goal);
        assert_eq!(held.against(CapScope::Day), (0, 0));
    }
}
