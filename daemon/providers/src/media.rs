//! Makes pictures fit for a model: known formats, bounded in pixels and bytes. Blocking; run off the async threads.
//!
//! A picture that a provider refuses would make every later request of the thread fail, so what can not be made to
//! fit becomes a text note instead.

use std::collections::{BTreeMap, VecDeque};
use std::io::Cursor;
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use image::{DynamicImage, ImageFormat, ImageReader, Limits};
use mcode_models::request::MediaData;

/// Longest side in pixels that Anthropic takes; others scale down themselves.
pub const MAX_SIDE_PIXELS: u32 = 8_000;
/// Longest side when a request holds more than [`MANY_IMAGES`].
pub const MAX_SIDE_PIXELS_MANY: u32 = 2_000;
/// Above this many pictures the smaller side holds.
pub const MANY_IMAGES: usize = 20;
/// Largest picture in base64, in bytes.
pub const MAX_BASE64_BYTES: usize = 5 * 1024 * 1024;
/// Largest document in base64, in bytes.
pub const MAX_DOCUMENT_BASE64_BYTES: usize = 20 * 1024 * 1024;
/// Side to which a picture with too many bytes is scaled first; halves until it fits.
const FIRST_SIDE_PIXELS: u32 = 2_000;
/// Most memory the decoder may take for one picture, in bytes.
const MAX_DECODED_BYTES: u64 = 512 * 1024 * 1024;
/// Most shrunken pictures that are kept for the next request of the thread.
const MAX_KEPT: usize = 16;

/// A picture or document as it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Prepared {
    /// MIME type after any conversion.
    pub(crate) media_type: String,
    /// The bytes in base64.
    pub(crate) base64: String,
}

impl Prepared {
    /// Whether it is a picture, not a document.
    pub(crate) fn is_image(&self) -> bool {
        self.media_type.starts_with("image/")
    }

    /// As a `data:` URL.
    pub(crate) fn data_url(&self) -> String {
        format!("data:{};base64,{}", self.media_type, self.base64)
    }
}

/// All media of a request by blob hash: ready, or why not (for the note to the model).
pub(crate) type PreparedMedia = BTreeMap<String, Result<Arc<Prepared>, String>>;

/// Shrunken pictures by blob hash and side, the oldest first.
type Kept = VecDeque<((String, u32), Arc<Prepared>)>;

/// Prepares media and remembers what was laborious.
#[derive(Debug, Default)]
pub(crate) struct MediaShop {
    kept: Mutex<Kept>,
}

impl MediaShop {
    /// Prepares everything in `media`.
    pub(crate) fn prepare(&self, media: &BTreeMap<String, MediaData>) -> PreparedMedia {
        let side = if media.len() > MANY_IMAGES { MAX_SIDE_PIXELS_MANY } else { MAX_SIDE_PIXELS };
        media.iter().map(|(hash, data)| (hash.clone(), self.prepare_one(hash, data, side))).collect()
    }

    fn prepare_one(&self, hash: &str, data: &MediaData, side: u32) -> Result<Arc<Prepared>, String> {
        let media_type = data.media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        if media_type == "application/pdf" {
            let base64 = STANDARD.encode(&data.bytes);
            if base64.len() > MAX_DOCUMENT_BASE64_BYTES {
                return Err(format!("the document is larger than {MAX_DOCUMENT_BASE64_BYTES} bytes"));
            }
            return Ok(Arc::new(Prepared { media_type, base64 }));
        }
        if !media_type.starts_with("image/") {
            return Err(format!("models do not take {media_type}"));
        }
        let key = (hash.to_owned(), side);
        if let Some((_, kept)) = self.lock().iter().find(|(kept, _)| *kept == key) {
            return Ok(Arc::clone(kept));
        }
        let (prepared, changed) = fit(&data.bytes, side)?;
        let prepared = Arc::new(prepared);
        if changed {
            let mut kept = self.lock();
            if kept.len() >= MAX_KEPT {
                kept.pop_front();
            }
            kept.push_back((key, Arc::clone(&prepared)));
        }
        Ok(prepared)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The picture within the bounds, and whether it had to be changed for that.
fn fit(bytes: &[u8], side: u32) -> Result<(Prepared, bool), String> {
    let unreadable = |error: &dyn std::fmt::Display| format!("the picture can not be read ({error})");
    let mut reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format().map_err(|error| unreadable(&error))?;
    let mut limits = Limits::default();
    limits.max_alloc = Some(MAX_DECODED_BYTES);
    reader.limits(limits);
    let format = reader.format().ok_or("the picture's format is not known")?;
    let (width, height) =
        ImageReader::with_format(Cursor::new(bytes), format).into_dimensions().map_err(|error| unreadable(&error))?;
    let small = base64_length(bytes.len()) <= MAX_BASE64_BYTES;
    let media_type = match format {
        ImageFormat::Png => "image/png",
        ImageFormat::Jpeg => "image/jpeg",
        ImageFormat::Gif => "image/gif",
        ImageFormat::WebP => "image/webp",
        other => return Err(format!("models do not take pictures of the format {other:?}")),
    };
    if small && width.max(height) <= side {
        let prepared = Prepared { media_type: media_type.to_owned(), base64: STANDARD.encode(bytes) };
        return Ok((prepared, false));
    }
    let picture = reader.decode().map_err(|error| unreadable(&error))?;
    let first = if small { side } else { side.min(FIRST_SIDE_PIXELS) };
    shrink(&picture, first).map(|prepared| (prepared, true))
}

fn shrink(picture: &DynamicImage, mut side: u32) -> Result<Prepared, String> {
    while side >= 64 {
        let longest = picture.width().max(picture.height());
        let smaller = if longest > side { picture.thumbnail(side, side) } else { picture.clone() };
        for (format, media_type) in [(ImageFormat::Png, "image/png"), (ImageFormat::Jpeg, "image/jpeg")] {
            let smaller = match format {
                ImageFormat::Jpeg => DynamicImage::ImageRgb8(smaller.to_rgb8()),
                _ => DynamicImage::ImageRgba8(smaller.to_rgba8()),
            };
            let mut out = Cursor::new(Vec::new());
            smaller
                .write_to(&mut out, format)
                .map_err(|error| format!("the picture can not be made smaller ({error})"))?;
            if base64_length(out.get_ref().len()) <= MAX_BASE64_BYTES {
                let base64 = STANDARD.encode(out.get_ref());
                return Ok(Prepared { media_type: media_type.to_owned(), base64 });
            }
        }
        side /= 2;
    }
    Err("the picture can not be made small enough".to_owned())
}

const fn base64_length(bytes: usize) -> usize {
    bytes.div_ceil(3) * 4
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png(width: u32, height: u32, noise: bool) -> MediaData {
        let mut state = 1u32;
        let picture = image::RgbImage::from_fn(width, height, |_, _| {
            if noise {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            }
            image::Rgb([(state >> 24) as u8, (state >> 16) as u8, (state >> 8) as u8])
        });
        let mut out = Cursor::new(Vec::new());
        DynamicImage::ImageRgb8(picture).write_to(&mut out, ImageFormat::Png).unwrap();
        MediaData { media_type: "image/png".into(), bytes: out.into_inner().into() }
    }

    fn prepare(pictures: Vec<MediaData>) -> Vec<Result<Arc<Prepared>, String>> {
        let media = pictures.into_iter().enumerate().map(|(index, data)| (format!("{index:03}"), data)).collect();
        MediaShop::default().prepare(&media).into_values().collect()
    }

    fn sides(prepared: &Prepared) -> (u32, u32) {
        let bytes = STANDARD.decode(&prepared.base64).unwrap();
        let picture = image::load_from_memory(&bytes).unwrap();
        (picture.width(), picture.height())
    }

    #[test]
    fn a_fitting_picture_is_sent_as_it_is() {
        let data = png(40, 30, false);
        let prepared = prepare(vec![data.clone()]).remove(0).unwrap();
        assert_eq!(STANDARD.decode(&prepared.base64).unwrap(), *data.bytes);
        assert_eq!(prepared.media_type, "image/png");
    }

    #[test]
    fn a_long_side_is_scaled() {
        let prepared = prepare(vec![png(9_000, 50, false)]).remove(0).unwrap();
        assert_eq!(sides(&prepared).0, MAX_SIDE_PIXELS);
        let many = prepare(vec![png(2_100, 10, false); MANY_IMAGES + 1]);
        assert!(many.iter().all(|one| sides(one.as_ref().unwrap()).0 == MAX_SIDE_PIXELS_MANY));
        let few = prepare(vec![png(2_100, 10, false); MANY_IMAGES]);
        assert!(few.iter().all(|one| sides(one.as_ref().unwrap()).0 == 2_100));
    }

    #[test]
    fn many_bytes_are_made_few() {
        let data = png(1_500, 1_200, true);
        assert!(base64_length(data.bytes.len()) > MAX_BASE64_BYTES);
        let prepared = prepare(vec![data]).remove(0).unwrap();
        assert!(prepared.base64.len() <= MAX_BASE64_BYTES);
    }

    #[test]
    fn what_is_no_picture_says_why() {
        let broken = MediaData { media_type: "image/png".into(), bytes: (*b"not a picture").into() };
        let video = MediaData { media_type: "video/mp4".into(), bytes: (*b"x").into() };
        let notes = prepare(vec![broken, video]);
        assert!(notes[0].as_ref().unwrap_err().contains("format is not known"));
        assert!(notes[1].as_ref().unwrap_err().contains("video/mp4"));
    }
}
