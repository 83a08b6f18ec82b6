//! Changing a list of texts in place: its comments, breaks and order stay.

use toml_edit::{Array, RawString, Value};

fn raw(text: Option<&RawString>) -> String {
    text.and_then(RawString::as_str).unwrap_or_default().to_owned()
}

/// Adds a text to the end, on a line of its own where the others have one.
pub(crate) fn push(list: &mut Array, text: &str) {
    let last = list.iter().last().map(|value| raw(value.decor().prefix())).unwrap_or_default();
    let indent = last.rfind('\n').map(|at| last[at..].to_owned());
    let end = list.len().checked_sub(1).and_then(|at| list.get_mut(at)).map(|value| {
        let suffix = raw(value.decor().suffix());
        value.decor_mut().set_suffix("");
        suffix
    });
    let trailing = format!("{}{}", end.unwrap_or_default(), raw(Some(list.trailing())));
    // What stands behind the last text is about that one; the end of the list keeps its own line.
    let (before, after) = match trailing.rfind('\n') {
        Some(at) if trailing.contains('#') => (trailing[..at].to_owned(), trailing[at..].to_owned()),
        _ => (String::new(), trailing),
    };
    let mut value = Value::from(text);
    match indent {
        Some(indent) => value.decor_mut().set_prefix(format!("{before}{indent}")),
        None if list.is_empty() || !before.is_empty() => value.decor_mut().set_prefix(before),
        None => value.decor_mut().set_prefix(" "),
    }
    list.push_formatted(value);
    list.set_trailing(after);
}

/// Takes a text out, wherever it stands; `false` when it is not there.
pub(crate) fn pull(list: &mut Array, text: &str) -> bool {
    let mut removed = false;
    let found = |list: &Array| list.iter().position(|value| value.as_str() == Some(text));
    while let Some(at) = found(list) {
        let gone = list.remove(at);
        let (prefix, suffix) = (raw(gone.decor().prefix()), raw(gone.decor().suffix()));
        removed = true;
        // A comment before it is about what stands before it, or a heading.
        let comment = prefix.rfind('\n').map(|end| prefix[..end].to_owned()).filter(|text| text.contains('#'));
        match (list.get_mut(at), comment) {
            (Some(next), comment) => {
                let own = raw(next.decor().prefix());
                let kept = match comment {
                    Some(comment) => format!("{comment}{own}"),
                    None if at == 0 && !own.contains('#') => prefix,
                    None => own,
                };
                next.decor_mut().set_prefix(kept);
            }
            (None, comment) => {
                let end = format!("{}{suffix}{}", comment.unwrap_or_default(), raw(Some(list.trailing())));
                list.set_trailing(end);
            }
        }
    }
    removed
}

#[cfg(test)]
mod tests {
    use toml_edit::DocumentMut;

    use super::*;

    fn changed(text: &str, change: impl Fn(&mut Array)) -> String {
        let mut document: DocumentMut = text.parse().unwrap();
        change(document["a"].as_array_mut().unwrap());
        document.to_string()
    }

    #[test]
    fn a_text_is_added_where_the_others_stand() {
        for (before, after) in [
            ("a = []\n", "a = [\"x\"]\n"),
            ("a = [\"b\"]\n", "a = [\"b\", \"x\"]\n"),
            ("a = [\n  \"b\", # why b\n  \"c\",\n]\n", "a = [\n  \"b\", # why b\n  \"c\",\n  \"x\",\n]\n"),
            ("a = [\n  \"b\"\n]\n", "a = [\n  \"b\",\n  \"x\"\n]\n"),
            ("a = [\n  \"b\", # why b\n]\n", "a = [\n  \"b\", # why b\n  \"x\",\n]\n"),
        ] {
            assert_eq!(changed(before, |list| push(list, "x")), after);
        }
    }

    #[test]
    fn a_text_is_taken_out_and_comments_stay() {
        for (before, after) in [
            ("a = [\"x\"]\n", "a = []\n"),
            ("a = [\"x\", \"b\"]\n", "a = [\"b\"]\n"),
            ("a = [\n  \"b\", # why b\n  \"x\",\n  \"c\",\n]\n", "a = [\n  \"b\", # why b\n  \"c\",\n]\n"),
            ("a = [\n  \"x\", # why x\n  \"c\",\n]\n", "a = [ # why x\n  \"c\",\n]\n"),
            ("a = [\n  # head\n  \"x\",\n]\n", "a = [\n  # head\n]\n"),
            ("a = [\n  \"b\", # why b\n  \"x\"\n]\n", "a = [\n  \"b\" # why b\n]\n"),
        ] {
            assert_eq!(changed(before, |list| assert!(pull(list, "x"))), after);
        }
        assert_eq!(changed("a = [\"b\"]\n", |list| assert!(!pull(list, "x"))), "a = [\"b\"]\n");
    }
}
