//! Threads by what they are called: titles and tags, as people remember them rather than as they are written.
//!
//! Each word of a query has to be there, perhaps with letters left out. All titles are looked at; ten thousand take some
//! tens of milliseconds.

use fuzzy_matcher::FuzzyMatcher;
use fuzzy_matcher::skim::SkimMatcherV2;
use mcode_ids::ThreadId;
use rusqlite::ToSql;

use crate::error::ReadError;
use crate::read::Reader;
use crate::snippet::{self, Snippet, Word};

/// Threads whose titles are looked at, those with the newest activity.
pub const TITLES_MAX: u32 = 50_000;

/// Threads that are found by their title at most.
pub const TITLE_HITS_MAX: usize = 500;

/// What a title has that is the very query; others have less.
pub(crate) const EXACT: u32 = 1_000_000;

/// How well a word has to be met, in hundredths of how well it meets itself: letters that only happen to come in this
/// order in a long title are no match.
const MET_MIN: i64 = 70;

/// A thread that is called about as a query says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Called {
    pub(crate) thread_id: ThreadId,
    pub(crate) at_ms: i64,
    /// Title and tags in one line.
    pub(crate) line: String,
    /// How well it fits; [`EXACT`] when the title is the query.
    pub(crate) score: u32,
}

/// A title before it is looked at.
#[derive(Debug, Clone)]
struct Title {
    thread: String,
    at_ms: i64,
    title: String,
    line: String,
}

impl Reader<'_> {
    /// Threads by their titles and tags, best first. `conditions` are those of a list, with its values.
    pub(crate) fn called(
        &self,
        query: &str,
        conditions: &str,
        values: &[Box<dyn ToSql>],
    ) -> Result<Vec<Called>, ReadError> {
        let words = snippet::words(query);
        let mut statement = self.connection.prepare_cached(&format!(
            "SELECT thread_id, updated_at, title, tags FROM threads WHERE {conditions}
             ORDER BY updated_at DESC, thread_id DESC LIMIT {TITLES_MAX}"
        ))?;
        let rows = statement.query_map(rusqlite::params_from_iter(values), |row| {
            let (title, tags): (String, String) = (row.get(2)?, row.get(3)?);
            let tags: Vec<String> = serde_json::from_str(&tags).unwrap_or_default();
            let line = tags.iter().fold(title.clone(), |line, tag| format!("{line} #{tag}"));
            Ok(Title { thread: row.get(0)?, at_ms: row.get(1)?, title, line })
        })?;
        let titles = rows.collect::<rusqlite::Result<Vec<_>>>()?;
        Ok(ranked(query, &words, &titles))
    }
}

/// The titles that fit, best first; of two that fit as well, the one that was used last.
fn ranked(query: &str, words: &[Word<'_>], titles: &[Title]) -> Vec<Called> {
    if words.is_empty() {
        return Vec::new();
    }
    let lines: Vec<&str> = titles.iter().map(|title| title.line.as_str()).collect();
    let mut scores: Vec<Option<u32>> = vec![Some(0); titles.len()];
    for word in words {
        let met = met(*word, &lines);
        for (score, met) in scores.iter_mut().zip(met) {
            *score = score.and_then(|score| Some(score + met?));
        }
    }
    let same = query.trim().to_lowercase();
    let mut called: Vec<Called> = titles
        .iter()
        .zip(scores)
        .filter_map(|(title, score)| {
            let score = if title.title.to_lowercase() == same { EXACT } else { score? };
            let thread_id = title.thread.parse().ok()?;
            Some(Called { thread_id, at_ms: title.at_ms, line: title.line.clone(), score })
        })
        .collect();
    called.sort_by(|a, b| b.score.cmp(&a.score).then(b.at_ms.cmp(&a.at_ms)).then(b.thread_id.cmp(&a.thread_id)));
    called.truncate(TITLE_HITS_MAX);
    called
}

/// How well a word is met by each line; `None` where it is not.
fn met(word: Word<'_>, lines: &[&str]) -> Vec<Option<u32>> {
    let matcher = SkimMatcherV2::default().ignore_case();
    let own = matcher.fuzzy_match(word.text, word.text).unwrap_or(0);
    let least = own * MET_MIN / 100;
    let plain = word.text.to_lowercase();
    let one = |line: &&str| {
        let score = matcher.fuzzy_match(line, word.text)?;
        let literal = || line.to_lowercase().contains(&plain);
        let met = if word.quoted { literal() } else { score >= least || literal() };
        met.then(|| u32::try_from(score).unwrap_or(0))
    };
    lines.iter().map(one).collect()
}

/// A line with what of it fits.
pub(crate) fn marked(line: &str, query: &str) -> Snippet {
    let matcher = SkimMatcherV2::default().ignore_case();
    let starts: Vec<usize> = line.char_indices().map(|(at, _)| at).chain([line.len()]).collect();
    let mut places: Vec<(usize, usize)> = Vec::new();
    for word in snippet::words(query) {
        let letters = matcher.fuzzy_indices(line, word.text).map(|(_, letters)| letters).unwrap_or_default();
        places.extend(letters.into_iter().filter_map(|at| Some((*starts.get(at)?, *starts.get(at + 1)?))));
    }
    snippet::in_one_line(line, (0, line.len()), &snippet::joined(places))
}

#[cfg(test)]
mod tests {
    use mcode_env::{IdGen, SeededIds};

    use super::*;

    const TITLES: &[(&str, &str)] = &[
        ("Parser error in the lexer", ""),
        ("Mend the failing test", " #ci"),
        ("An answer about parsers", ""),
        ("Explain daemon restart behaviour", " #later #Ops"),
        ("数据库迁移失败", ""),
        ("Naïve Größen", ""),
        ("test", ""),
        ("Refactor permission rules", ""),
    ];

    fn id(seed: u64) -> String {
        ThreadId::from_uuid(SeededIds::new(seed).next()).to_string()
    }

    fn found(query: &str) -> Vec<&'static str> {
        let titles: Vec<Title> = TITLES
            .iter()
            .enumerate()
            .map(|(at, (title, tags))| Title {
                thread: id(at as u64),
                at_ms: 0,
                title: (*title).to_owned(),
                line: format!("{title}{tags}"),
            })
            .collect();
        let called = ranked(query, &snippet::words(query), &titles);
        let title =
            |called: &Called| TITLES.iter().find(|(title, tags)| called.line == format!("{title}{tags}")).unwrap().0;
        called.iter().map(title).collect()
    }

    #[test]
    fn titles_are_found_as_people_remember_them() {
        for (query, expected) in [
            ("parser", vec!["Parser error in the lexer", "An answer about parsers"]),
            ("prsr err", vec!["Parser error in the lexer"]),
            ("permsn", vec!["Refactor permission rules"]),
            ("restart daemon", vec!["Explain daemon restart behaviour"]),
            ("ops", vec!["Explain daemon restart behaviour"]),
            ("迁移", vec!["数据库迁移失败"]),
            ("größen", vec!["Naïve Größen"]),
            ("\"daemon restart\"", vec!["Explain daemon restart behaviour"]),
            ("\"restart daemon\"", vec![]),
            ("haystack", vec![]),
            ("parser elsewhere", vec![]),
            ("nowhere-to-be-found", vec![]),
            ("", vec![]),
            ("\"", vec![]),
        ] {
            assert_eq!(found(query), expected, "{query}");
        }
    }

    #[test]
    fn the_very_title_comes_first() {
        assert_eq!(found("Test"), ["test", "Mend the failing test"]);
        assert_eq!(found("mend the failing TEST")[0], "Mend the failing test");
    }

    #[test]
    fn hostile_queries_and_titles_are_only_text() {
        let long = "x".repeat(5000);
        let line = format!("{long} ^a$ !b 'c \u{202e}\u{0}");
        let titles = [Title { thread: id(1), at_ms: 0, title: line.clone(), line: line.clone() }];
        for query in
            ["^a$", "!b", "'c", "\\", "a b c d e f g h i j k l m n o p q r s t u v w", &"y".repeat(199), "é\u{301}"]
        {
            drop(ranked(query, &snippet::words(query), &titles));
            drop(marked(&line, query));
        }
        let called = ranked("!b", &snippet::words("!b"), &titles);
        assert_eq!(called.len(), 1, "a sign is a letter, not an order");
    }

    #[test]
    fn what_fits_is_marked_in_any_script() {
        let marks = |line: &str, query: &str| {
            let snippet = marked(line, query);
            let part = |(start, end): &(u32, u32)| snippet.text[*start as usize..*end as usize].to_owned();
            snippet.matches.iter().map(part).collect::<Vec<_>>()
        };
        assert_eq!(marks("Naïve parser", "parser"), ["parser"]);
        assert_eq!(marks("数据库迁移失败", "迁移"), ["迁移"]);
        assert_eq!(marks("plant a tree", "plnt").concat(), "plnt");
    }
}
