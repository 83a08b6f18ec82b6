//! Threads by what they are called: titles and tags, as people remember them rather than as they are written.
//!
//! Each word of a query has to be there, with letters left out, and in longer words with one or two that are wrong. All
//! titles are looked at; ten thousand take a few milliseconds.

use frizbee::{CaseMatching, Config, Matcher, Matching, Pattern, PatternConfig, UnicodeMatching};
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

/// Letters of a word for one that may be wrong or missing.
const LETTERS_FOR_A_TYPO: usize = 4;

/// How well a word has to be met, in hundredths of how well it meets itself: letters that only happen to come in this
/// order in a long title are no match.
const MET_MIN: u32 = 58;

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
        if words.is_empty() {
            return Ok(Vec::new());
        }
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

fn matcher(word: Word<'_>) -> Matcher {
    let letters = word.text.chars().count();
    let typos = u16::try_from(letters / LETTERS_FOR_A_TYPO).unwrap_or(u16::MAX);
    let unicode = if word.text.is_ascii() { UnicodeMatching::Smart } else { UnicodeMatching::Always };
    let matching = if word.quoted { Matching::Substring } else { Matching::Fuzzy };
    let config =
        Config::default().casing(CaseMatching::Ignore).unicode(unicode).matching(matching).max_typos(Some(typos));
    // The word as it is: what other programs read as signs for patterns are letters here.
    Matcher::new(Pattern::new(word.text, PatternConfig::default()), &config)
}

/// How well a word is met by each line; `None` where it is not.
fn met(word: Word<'_>, lines: &[&str]) -> Vec<Option<u32>> {
    let mut matcher = matcher(word);
    let own = matcher.match_list(&[word.text]).first().map_or(0, |own| u32::from(own.score));
    let least = own * MET_MIN / 100;
    let plain = word.text.to_lowercase();
    let mut met = vec![None; lines.len()];
    for found in matcher.match_list(lines) {
        let at = found.index as usize;
        let (Some(place), Some(line)) = (met.get_mut(at), lines.get(at)) else { continue };
        let score = u32::from(found.score);
        if score >= least || line.to_lowercase().contains(&plain) {
            *place = Some(score);
        }
    }
    met
}

/// A line with what of it fits.
pub(crate) fn marked(line: &str, query: &str) -> Snippet {
    let starts: Vec<usize> = line.char_indices().map(|(at, _)| at).chain([line.len()]).collect();
    let mut places: Vec<(usize, usize)> = Vec::new();
    for word in snippet::words(query) {
        let mut matcher = matcher(word);
        let mut config = matcher.config().clone();
        // So that places are counted in characters whatever the line holds.
        config.unicode = UnicodeMatching::Always;
        matcher.set_config(config);
        for found in matcher.match_list_indices(&[line]) {
            let place = |at: &u32| Some((*starts.get(*at as usize)?, *starts.get(*at as usize + 1)?));
            places.extend(found.indices.iter().filter_map(place));
        }
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
            ("pasrer", vec!["Parser error in the lexer", "An answer about parsers"]),
            ("permisson", vec!["Refactor permission rules"]),
            ("restart daemon", vec!["Explain daemon restart behaviour"]),
            ("dmn rstrt", vec!["Explain daemon restart behaviour"]),
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
