//! What a builder bounds.

use mcode_env::{SeededIds, Timestamp};
use mcode_events::{BlobRef, Blobs};

use super::*;
use crate::foreign::Maker;

/// Nothing is kept in these tests.
#[derive(Debug)]
struct Nowhere;

impl Blobs for Nowhere {
    fn put(&self, _: &[u8], _: &str) -> Result<BlobRef, BlobError> {
        Err(BlobError::Missing(String::new()))
    }

    fn get(&self, hash: &str) -> Result<Vec<u8>, BlobError> {
        Err(BlobError::Missing(hash.to_owned()))
    }
}

fn told(most: (usize, u64)) -> Result<Imported, ForeignError> {
    let found = Found {
        maker: Maker::Codex,
        id: "x".to_owned(),
        title: String::new(),
        cwd: String::new(),
        updated_at_ms: 5,
        messages: None,
        path: "x".into(),
    };
    let ids = SeededIds::new(1);
    let reading = Reading { ids: &ids, blobs: &Nowhere, now: Timestamp::from_millis(1_000) };
    let mut builder = Builder::new(&found, reading);
    builder.most = most;
    for number in 0..20 {
        builder.user(Some(number), vec![Part::text("0123456789")]);
        builder.answer(Some(number), None, None);
        builder.part(Part::text("0123456789"));
    }
    builder.finish(&found)
}

#[test]
fn a_thread_has_so_many_events_and_so_much_text() {
    assert_eq!(told((EVENTS_MAX, THREAD_BYTES_MAX)).unwrap().report.messages, 40);
    let told = |most| told(most).unwrap_err().to_string();
    assert_eq!(told((50, 1_000)), "x has too many messages and calls, more than is taken (50)");
    assert_eq!(told((1_000, 300)), "x has too many bytes of text, more than is taken (300)");
}
