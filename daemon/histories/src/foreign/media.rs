//! Pictures and documents in histories.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use mcode_events::{BlobError, BlobRef, Blobs};

/// The largest picture or document, in bytes.
const MEDIA_BYTES_MAX: usize = 20 * 1024 * 1024;

/// With padding or without: makers differ.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What kinds are shown to models, by how they begin.
const KINDS: [(&str, &[u8]); 5] = [
    ("image/png", b"\x89PNG\r\n\x1a\n"),
    ("image/jpeg", b"\xff\xd8\xff"),
    ("image/gif", b"GIF8"),
    ("image/webp", b"RIFF"),
    ("application/pdf", b"%PDF-"),
];

/// Keeps a picture or document that stands in base64; tells why it can not be taken. What it is its own first bytes say.
pub(crate) fn keep(data: &str, blobs: &dyn Blobs) -> Result<Result<BlobRef, &'static str>, BlobError> {
    let data = data.trim();
    if data.len() / 4 * 3 > MEDIA_BYTES_MAX {
        return Ok(Err("it is too large"));
    }
    let Ok(content) = BASE64.decode(data) else { return Ok(Err("it is no base64")) };
    let kind = KINDS.iter().find(|(_, begin)| content.starts_with(begin));
    match kind {
        Some((media_type, _)) => blobs.put(&content, media_type).map(Ok),
        None => Ok(Err("it is of a kind that is not shown to models")),
    }
}

/// The base64 of a data address.
pub(crate) fn data_of(address: &str) -> Option<&str> {
    let rest = address.strip_prefix("data:")?;
    let (head, data) = rest.split_once(',')?;
    head.ends_with(";base64").then_some(data)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Keeps what it is given, in memory.
    #[derive(Debug, Default)]
    struct Kept(Mutex<Vec<String>>);

    impl Blobs for Kept {
        fn put(&self, content: &[u8], media_type: &str) -> Result<BlobRef, BlobError> {
            self.0.lock().unwrap().push(media_type.to_owned());
            let hash = blake3::hash(content).to_hex().to_string();
            Ok(BlobRef { hash, size_bytes: content.len() as u64, media_type: media_type.to_owned() })
        }

        fn get(&self, hash: &str) -> Result<Vec<u8>, BlobError> {
            Err(BlobError::Missing(hash.to_owned()))
        }
    }

    #[test]
    fn what_a_picture_is_its_bytes_say() {
        let kept = Kept::default();
        let png = "iVBORw0KGgo";
        assert_eq!(keep(png, &kept).unwrap().unwrap().media_type, "image/png");
        assert_eq!(keep(&format!("{png}="), &kept).unwrap().unwrap().media_type, "image/png");
        assert_eq!(keep("PHN2Zz4=", &kept).unwrap().unwrap_err(), "it is of a kind that is not shown to models");
        assert_eq!(keep("no base64!", &kept).unwrap().unwrap_err(), "it is no base64");
        assert_eq!(keep("", &kept).unwrap().unwrap_err(), "it is of a kind that is not shown to models");
        assert_eq!(keep(&"A".repeat(28_000_000), &kept).unwrap().unwrap_err(), "it is too large");
        assert_eq!(*kept.0.lock().unwrap(), ["image/png", "image/png"]);
        assert_eq!(data_of("data:image/png;base64,AAAA"), Some("AAAA"));
        assert_eq!(data_of("data:image/png,AAAA"), None);
        assert_eq!(data_of("https://example.org/a.png"), None);
    }
}
