//! Errors with their causes, in one line.

use std::error::Error;

/// The error and its causes, each once, without line breaks.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    with_causes(one_line(&error.to_string()), error)
}

/// The causes of an error after what is said in place of its own words. What has been said is not said again.
#[must_use]
pub fn with_causes(mut said: String, error: &dyn Error) -> String {
    for cause in std::iter::successors(error.source(), |cause| (*cause).source()) {
        let cause = one_line(&cause.to_string());
        if !said.contains(&cause) {
            said.push_str(": ");
            said.push_str(&cause);
        }
    }
    said
}

fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its words, and what caused it.
    #[derive(Debug)]
    struct Fault(&'static str, Option<Box<Fault>>);

    impl std::fmt::Display for Fault {
        fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str(self.0)
        }
    }

    impl Error for Fault {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    fn fault(words: &[&'static str]) -> Fault {
        let mut words = words.iter().rev();
        let last = Fault(words.next().unwrap(), None);
        words.fold(last, |cause, words| Fault(words, Some(Box::new(cause))))
    }

    #[test]
    fn all_causes_are_told_once_and_in_one_line() {
        for (words, wanted) in [
            (&["no start"][..], "no start"),
            (&["no start", "no fork", "no memory"], "no start: no fork: no memory"),
            (&["a: b", "b", "c", "c"], "a: b: c"),
            (&["a", "", "c\n  d\n"], "a: c d"),
            (&["at\nline 2", "x"], "at line 2: x"),
        ] {
            assert_eq!(chain(&fault(words)), wanted, "{words:?}");
        }
        let fault = fault(&["transport", "no answer", "reset"]);
        assert_eq!(with_causes("it broke (reset)".into(), &fault), "it broke (reset): no answer");
    }
}
