//! What is asked about as a secret is hidden from commands too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::path::Path;

use mcode_permissions::SECRET_PLACES;
use mcode_sandbox::layout::HIDDEN;

#[test]
fn every_place_of_secrets_that_is_asked_about_is_hidden_by_the_sandbox() {
    let hidden = |place: &Path| HIDDEN.iter().any(|hidden| place.starts_with(hidden));
    let shown: Vec<&str> = SECRET_PLACES.into_iter().filter(|place| !hidden(Path::new(place))).collect();
    assert_eq!(shown, Vec::<&str>::new());
}
