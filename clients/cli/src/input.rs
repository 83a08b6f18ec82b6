//! What a run is given: the prompt, what is piped in, pictures, and the schema of the answer.

use std::io;
use std::path::{Path, PathBuf};

use mcode_client::json::{json_struct, within};
use mcode_client::{ClientError, v1};
use mcode_proto::VALUE_DEPTH_MAX;

use crate::stdin::Piped;

/// Most bytes of one picture or document (as the daemon takes them).
pub(crate) const MEDIA_BYTES_MAX: u64 = 20 * 1024 * 1024;

/// Most bytes of a schema.
pub(crate) const SCHEMA_BYTES_MAX: u64 = 1024 * 1024;

/// Deepest nesting of a schema (as the daemon takes it).
const SCHEMA_DEPTH_MAX: usize = 100;

/// The parts of the input: words first, then pictures.
pub(crate) fn parts(
    prompt: &[String],
    piped: Option<Piped>,
    images: &[PathBuf],
) -> Result<Vec<v1::InputPart>, ClientError> {
    let prompt = prompt.join(" ");
    let mut parts = Vec::new();
    match (prompt.trim().is_empty(), piped) {
        (true, None) => {
            return Err(ClientError::usage("there is no prompt: no words were given and nothing was piped in")
                .hint("ask something with: mcode ask PROMPT"));
        }
        (true, Some(piped)) if piped.text.trim().is_empty() => {
            return Err(ClientError::usage("the prompt on standard input is blank")
                .hint("ask something with: mcode ask PROMPT"));
        }
        (true, Some(piped)) => parts.push(text(piped.text)),
        (false, None) => parts.push(text(prompt)),
        (false, Some(piped)) => {
            parts.push(text(prompt));
            // On lines of its own wherever the parts are joined.
            parts.push(text(format!("\n\n<stdin>\n{}\n</stdin>", piped.text.trim_end_matches('\n'))));
        }
    }
    for path in images {
        parts.push(v1::InputPart { part: Some(v1::input_part::Part::Media(media(path)?)) });
    }
    Ok(parts)
}

/// Words as a part of an input.
pub(crate) fn text(text: String) -> v1::InputPart {
    v1::InputPart { part: Some(v1::input_part::Part::Text(text)) }
}

fn media(path: &Path) -> Result<v1::Media, ClientError> {
    let data = read_file(path, MEDIA_BYTES_MAX, "the picture")?;
    let media_type = media_type(&data).ok_or_else(|| {
        ClientError::usage(format!("{} is no PNG, JPEG, GIF, WebP or PDF file", path.display()))
            .hint("convert it, or name the file in the prompt if it is text")
    })?;
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Ok(v1::Media { media_type: media_type.to_owned(), data, name })
}

/// The type of a file by how it begins, whatever it is called.
fn media_type(data: &[u8]) -> Option<&'static str> {
    match data {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        [b'%', b'P', b'D', b'F', b'-', ..] => Some("application/pdf"),
        _ => None,
    }
}

/// The JSON Schema in a file, in the one of two forms that it fits: fields, or text where it nests deep.
pub(crate) fn schema(path: &Path) -> Result<(Option<prost_types::Struct>, String), ClientError> {
    let data = read_file(path, SCHEMA_BYTES_MAX, "the schema")?;
    let shown = path.display();
    let too_deep = || {
        ClientError::usage(format!("the schema {shown} nests deeper than {SCHEMA_DEPTH_MAX} levels"))
            .hint("give parts of it a name under $defs, and name them with $ref")
    };
    let value: serde_json::Value = serde_json::from_slice(&data).map_err(|error| match error.to_string() {
        // The reader's own bound is above ours.
        text if text.contains("recursion limit") => too_deep(),
        text => ClientError::usage(format!("the schema {shown} is not JSON: {text}"))
            .hint("mend it at the place that is named"),
    })?;
    let Some(fields) = value.as_object() else {
        return Err(ClientError::usage(format!("the schema {shown} is not a JSON object"))
            .hint("a schema looks like this: {\"type\": \"object\", \"properties\": {…}}"));
    };
    match () {
        () if within(&value, VALUE_DEPTH_MAX) => Ok((Some(json_struct(fields)), String::new())),
        () if within(&value, SCHEMA_DEPTH_MAX) => Ok((None, value.to_string())),
        () => Err(too_deep()),
    }
}

/// A whole file of at most so many bytes; nothing else than a file, which would not end or not begin.
pub(crate) fn read_file(path: &Path, max: u64, what: &str) -> Result<Vec<u8>, ClientError> {
    let fault = |why: String| ClientError::usage(format!("{what} {} can not be read: {why}", path.display()));
    mcode_env::files::read_bounded(path, max).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => {
            fault(format!("it is larger than {} MB", max / (1024 * 1024))).hint("make it smaller")
        }
        io::ErrorKind::InvalidInput => fault(error.to_string()).hint("give the path of a file"),
        _ => fault(error.to_string()).hint("give the path of a file that is there"),
    })
}

/// An absolute folder that is there.
pub(crate) fn folder(base: &Path, path: &Path) -> Result<String, ClientError> {
    let full = base.join(path);
    let real = full.canonicalize().map_err(|error| {
        ClientError::usage(format!("the folder {} can not be used: {error}", full.display()))
            .hint("give a folder that exists")
    })?;
    if !real.is_dir() {
        return Err(ClientError::usage(format!("{} is not a folder", real.display())).hint("give a folder that exists"));
    }
    real.to_str().map(str::to_owned).ok_or_else(|| {
        ClientError::usage(format!("the folder {} is not UTF-8", real.display())).hint("give another folder")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(parts: &[v1::InputPart]) -> Vec<&str> {
        parts
            .iter()
            .map(|part| match &part.part {
                Some(v1::input_part::Part::Text(text)) => text.as_str(),
                Some(v1::input_part::Part::Media(media)) => media.media_type.as_str(),
                None => "",
            })
            .collect()
    }

    fn piped(text: &str) -> Option<Piped> {
        Some(Piped { text: text.into(), cut: false })
    }

    #[test]
    fn stdin_is_context_or_the_prompt() {
        let prompt = ["fix".to_owned(), "it".to_owned()];
        assert_eq!(words(&parts(&prompt, None, &[]).unwrap()), ["fix it"]);
        assert_eq!(words(&parts(&prompt, piped("log\n"), &[]).unwrap()), ["fix it", "\n\n<stdin>\nlog\n</stdin>"]);
        assert_eq!(words(&parts(&[], piped("do\n"), &[]).unwrap()), ["do\n"]);
        for piped in [None, piped(" \n")] {
            assert_eq!(parts(&[], piped, &[]).unwrap_err().exit_code(), 2);
        }
    }

    #[test]
    fn pictures_are_known_by_their_content() {
        let dir = tempfile::tempdir().unwrap();
        let good = dir.path().join("a.txt");
        std::fs::write(&good, b"\x89PNG\r\n\x1a\nrest").unwrap();
        assert_eq!(words(&parts(&["x".to_owned()], None, &[good]).unwrap()), ["x", "image/png"]);
        let bad = dir.path().join("b.png");
        std::fs::write(&bad, b"not a picture").unwrap();
        let error = parts(&["x".to_owned()], None, std::slice::from_ref(&bad)).unwrap_err();
        assert!(error.message.contains("b.png") && error.hint.is_some());
        assert_eq!(parts(&["x".to_owned()], None, &[dir.path().join("none")]).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn files_are_read_up_to_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, b"12345").unwrap();
        assert_eq!(read_file(&path, 5, "it").unwrap(), b"12345");
        assert!(read_file(&path, 4, "it").unwrap_err().message.contains("larger than"));
    }

    #[test]
    fn schemas_are_objects() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.json");
        for (text, fine) in [(r#"{"type":"object"}"#, true), ("[1]", false), ("{", false)] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(schema(&path).is_ok(), fine, "{text}");
        }
        for (levels, as_text) in [(VALUE_DEPTH_MAX, Some(false)), (64, Some(true)), (101, None), (5000, None)] {
            std::fs::write(&path, format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels))).unwrap();
            match schema(&path) {
                Ok((fields, text)) => {
                    assert_eq!((Some(fields.is_none()), Some(!text.is_empty())), (as_text, as_text), "{levels}");
                }
                Err(error) => {
                    assert!(as_text.is_none() && error.exit_code() == 2, "{levels}: {error:?}");
                    assert!(error.message.contains("deeper than 100 levels"), "{error:?}");
                }
            }
        }
    }
}
