//! Words as people type them: what they mean to the index, and where they are in a text (pure).

/// Bytes of text around what fits, on each side, about.
const AROUND: usize = 80;

/// Words of a query that count.
const WORDS_MAX: usize = 16;

/// Bytes of a word that count.
const WORD_BYTES_MAX: usize = 200;

/// Part of a text, with what of it fits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snippet {
    /// The part, in one line.
    pub text: String,
    /// First byte and byte after the last of what fits.
    pub matches: Vec<(u32, u32)>,
}

/// A word of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word<'a> {
    pub(crate) text: &'a str,
    /// It stood in quotes: meant as it is.
    pub(crate) quoted: bool,
}

/// The words of a query: `"in quotes"` is one.
pub(crate) fn words(query: &str) -> Vec<Word<'_>> {
    let mut words = Vec::new();
    for (at, piece) in query.split('"').enumerate() {
        if at % 2 == 1 {
            words.push(Word { text: piece.trim(), quoted: true });
        } else {
            words.extend(piece.split_whitespace().map(|text| Word { text, quoted: false }));
        }
    }
    let words = words.into_iter().filter(|word| word.text.chars().any(char::is_alphanumeric));
    words.filter(|word| word.text.len() <= WORD_BYTES_MAX).take(WORDS_MAX).collect()
}

/// The query as FTS5 takes it; `None` when it has no word in it. The last word may be the beginning of one, unless it is
/// quoted.
pub(crate) fn expression(query: &str) -> Option<String> {
    let words = words(query);
    let last = words.len().checked_sub(1)?;
    let open_end = !query.trim_end().ends_with('"');
    let quoted = words.iter().enumerate().map(|(at, word)| {
        let star = if at == last && open_end { "*" } else { "" };
        format!("\"{}\"{star}", spaced(word.text).replace('"', " "))
    });
    Some(quoted.collect::<Vec<_>>().join(" "))
}

/// A text in which the characters of scripts without spaces are words of their own.
pub(crate) fn spaced(text: &str) -> String {
    if text.is_ascii() {
        return text.to_owned();
    }
    let mut spaced = String::with_capacity(text.len());
    for char in text.chars() {
        if stands_alone(char) {
            spaced.extend([' ', char, ' ']);
        } else {
            spaced.push(char);
        }
    }
    spaced
}

/// Chinese, Japanese and Korean writing, Thai and its neighbours.
const fn stands_alone(char: char) -> bool {
    matches!(char,
        '\u{0e00}'..='\u{0eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{2e80}'..='\u{9fff}'
        | '\u{ac00}'..='\u{d7af}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{323af}')
}

/// The part of a text where the words of a query are, or its beginning.
pub(crate) fn around(text: &str, query: &str) -> Snippet {
    let words: Vec<String> = words(query).into_iter().map(|word| word.text.to_lowercase()).collect();
    let folded = Folded::of(text);
    let first = words.iter().filter_map(|word| folded.find(word, 0)).min_by_key(|(start, _)| *start);
    let (start, end) = first.unwrap_or((0, 0));
    let from = boundary(text, start.saturating_sub(AROUND));
    let to = boundary(text, (end + AROUND).min(text.len()));
    let mut matches: Vec<(usize, usize)> = Vec::new();
    for word in &words {
        let mut at = from;
        while let Some((start, end)) = folded.find(word, at).filter(|(_, end)| *end <= to) {
            matches.push((start, end));
            at = end;
        }
    }
    in_one_line(text, (from, to), &joined(matches))
}

/// Places in their order; those that touch are one.
pub(crate) fn joined(mut places: Vec<(usize, usize)>) -> Vec<(usize, usize)> {
    places.sort_unstable();
    places.dedup_by(|next, before| {
        let touches = next.0 <= before.1;
        if touches {
            before.1 = before.1.max(next.1);
        }
        touches
    });
    places
}

/// The part with what is not visible made visible as spaces; the places are moved along.
pub(crate) fn in_one_line(text: &str, (from, to): (usize, usize), matches: &[(usize, usize)]) -> Snippet {
    let mut line = String::new();
    let place = |line: &str| u32::try_from(line.len()).unwrap_or(u32::MAX);
    line.extend((from > 0).then_some('…'));
    let mut marked = Vec::new();
    let mut open = None;
    let mut left = matches.iter().peekable();
    for (at, char) in text[from..to].char_indices().map(|(at, char)| (at + from, char)) {
        if let Some((start, _)) = open.filter(|(_, end)| at >= *end) {
            marked.push((start, place(&line)));
            open = None;
        }
        if open.is_none()
            && let Some((_, end)) = left.next_if(|(start, _)| *start <= at)
        {
            open = Some((place(&line), *end));
        }
        line.push(if char.is_whitespace() || char.is_control() { ' ' } else { char });
    }
    if let Some((start, _)) = open {
        marked.push((start, place(&line)));
    }
    line.extend((to < text.len()).then_some('…'));
    Snippet { text: line, matches: marked }
}

fn boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// A text in lower case, with where each of its bytes comes from.
struct Folded {
    text: String,
    from: Vec<u32>,
}

impl Folded {
    fn of(text: &str) -> Self {
        let (mut folded, mut from) = (String::with_capacity(text.len()), Vec::with_capacity(text.len() + 1));
        for (at, char) in text.char_indices() {
            folded.extend(char.to_lowercase());
            from.resize(folded.len(), u32::try_from(at).unwrap_or(u32::MAX));
        }
        from.push(u32::try_from(text.len()).unwrap_or(u32::MAX));
        Self { text: folded, from }
    }

    /// The first place of a word (in lower case) from a byte of the text on.
    fn find(&self, word: &str, from: usize) -> Option<(usize, usize)> {
        let begin = self.from.partition_point(|at| (*at as usize) < from);
        let found = begin + self.text.get(begin..)?.find(word)?;
        let end = found + word.len();
        // The end is where the next character of the text begins.
        let after = (end..self.from.len()).find(|at| self.from[*at] != self.from[end - 1])?;
        Some((self.from[found] as usize, self.from[after] as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(text: &str, query: &str) -> String {
        let snippet = around(text, query);
        let mut shown = snippet.text.clone();
        for (start, end) in snippet.matches.iter().rev() {
            shown.insert(*end as usize, ']');
            shown.insert(*start as usize, '[');
        }
        shown
    }

    #[test]
    fn what_people_type_is_no_syntax() {
        let cases = [
            ("cargo test", Some(r#""cargo" "test"*"#)),
            (r#""exit code" 101"#, Some(r#""exit code" "101"*"#)),
            (r#"a "b c""#, Some(r#""a" "b c""#)),
            ("foo OR bar) NEAR/3 -x", Some(r#""foo" "OR" "bar)" "NEAR/3" "-x"*"#)),
            ("\"unfinished phrase", Some(r#""unfinished phrase"*"#)),
            ("中文 x", Some(r#"" 中  文 " "x"*"#)),
            ("", None),
            ("\" - * \"", None),
        ];
        for (query, expected) in cases {
            assert_eq!(expression(query).as_deref(), expected, "{query}");
        }
        assert_eq!(words(&"w ".repeat(100)).len(), WORDS_MAX);
        assert!(words(&"w".repeat(WORD_BYTES_MAX + 1)).is_empty());
    }

    #[test]
    fn a_snippet_shows_where_it_fits() {
        assert_eq!(marked("The Parser fails", "parser FAIL"), "The [Parser] [fail]s");
        assert_eq!(marked("a\tb\nc\u{1b}[31m", "b"), "a [b] c [31m");
        assert_eq!(marked("İstanbul", "istanbul"), "İstanbul", "a letter that is longer in lower case is no fault");
        assert_eq!(marked("das Straßenfest", "fest"), "das Straßen[fest]");
        assert_eq!(marked("nothing of it", "elsewhere"), "nothing of it");
        let long = format!("{} needle {}", "é".repeat(500), "x".repeat(500));
        let shown = marked(&long, "needle");
        assert!(shown.starts_with('…') && shown.ends_with('…') && shown.contains("[needle]"), "{shown}");
        assert!(shown.len() < 2 * AROUND + 40, "{}", shown.len());
        assert_eq!(marked("aaaa", "aa a"), "[aaaa]");
        assert_eq!(marked("", "x"), "");
    }
}
