//! How much a model can be asked to think, in the words of its maker.

use mcode_events::run::ThinkingLevel;
use serde::{Deserialize, Serialize};

/// All words, from the least.
const WORDS: [&str; 7] = ["none", "minimal", "low", "medium", "high", "xhigh", "max"];

/// The words that a model takes; empty when it is not known which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Efforts(u8);

impl Efforts {
    /// These words; what is not one is left out.
    pub fn of<'a>(words: impl IntoIterator<Item = &'a str>) -> Self {
        let bits = words.into_iter().filter_map(|word| WORDS.iter().position(|known| *known == word));
        Self(bits.fold(0, |all, at| all | 1 << at))
    }

    /// Whether it is not known which words are taken.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The word for a level: its own where the model takes it, else the nearest that it takes, the lesser of two.
    /// `Off` is the least there is; `Xhigh` the most where there is no `xhigh`. `None` when nothing is known.
    #[must_use]
    pub fn word(self, level: ThinkingLevel) -> Option<&'static str> {
        let taken: Vec<usize> = (0..WORDS.len()).filter(|at| self.0 & 1 << at != 0).collect();
        let wanted = match level {
            ThinkingLevel::Off => return taken.first().map(|at| WORDS[*at]),
            ThinkingLevel::Xhigh if taken.contains(&5) => 5,
            ThinkingLevel::Xhigh => return taken.last().map(|at| WORDS[*at]),
            ThinkingLevel::Low => 2,
            ThinkingLevel::Medium => 3,
            ThinkingLevel::High => 4,
        };
        // Who asks for some thinking does not want none, as long as there is another word.
        let thinking = taken.iter().copied().filter(|at| *at > 0 || taken.len() == 1);
        thinking.min_by_key(|at| (at.abs_diff(wanted), *at)).map(|at| WORDS[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_becomes_the_nearest_word_that_is_taken() {
        use ThinkingLevel::{High, Low, Medium, Off, Xhigh};
        let openai = Efforts::of(["none", "low", "medium", "high", "xhigh"]);
        let deepseek = Efforts::of(["high", "max"]);
        let old = Efforts::of(["minimal", "low", "medium", "high", "unheard-of"]);
        let mistral = Efforts::of(["none", "high"]);
        for (taken, level, word) in [
            (openai, Off, "none"),
            (openai, Medium, "medium"),
            (openai, Xhigh, "xhigh"),
            (Efforts::of(["low", "xhigh", "max"]), Xhigh, "xhigh"),
            (deepseek, Off, "high"),
            (deepseek, Low, "high"),
            (deepseek, Xhigh, "max"),
            (old, Off, "minimal"),
            (old, Xhigh, "high"),
            (mistral, Low, "high"),
            (mistral, High, "high"),
            (mistral, Off, "none"),
        ] {
            assert_eq!(taken.word(level), Some(word), "{taken:?} {level:?}");
        }
        assert_eq!(Efforts::default().word(High), None);
    }
}
