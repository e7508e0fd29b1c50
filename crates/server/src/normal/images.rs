//! Images of requests: from data URLs, files below a folder and base64 to what stands for them in a prompt.
//!
//! One image is decoded at a time, whatever the number of requests: it may take seconds and a gigabyte. So decoding
//! takes one of the threads for requests' work and leaves the others to texts, and images of several requests take
//! turns. When a client leaves, the image that is being decoded is the last one of its request.

use super::answer::PromptInfo;
use super::beside::beside;
use super::media::Media;
use crate::disk::{self, Unread};
use crate::fault::Fault;
use crate::hold::Hold;
use crate::model::Model;
use arclight_engine::Prompt;
use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokenizer::{Message, Rendered};
use tokio::sync::Semaphore;
use vision::{Bounds, Picture, Piece};

/// The turn to decode.
static TURN: Semaphore = Semaphore::const_new(1);

/// Clients pad or do not.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// An image of a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Image {
    /// The field that has it.
    at: String,
    source: Source,
}

#[derive(Clone, Debug, PartialEq)]
enum Source {
    /// As the client wrote it.
    Base64(String),
    File(PathBuf),
    /// What stands for it in a prompt.
    Pieces(Arc<[Piece]>),
}

impl Image {
    /// An image in base64.
    pub(crate) fn base64(data: &str, at: impl Into<String>) -> Image {
        Image { at: at.into(), source: Source::Base64(data.to_owned()) }
    }

    /// What a URL means: data, or a file. Nothing is fetched.
    ///
    /// # Errors
    /// 400 for other URLs, and for files where clients may name none.
    pub(crate) fn url(url: &str, at: &str, media: &Media) -> Result<Image, Fault> {
        if let Some(data) = url.strip_prefix("data:") {
            return match data.split_once(',') {
                Some((kind, data)) if kind.ends_with(";base64") => Ok(Image::base64(data, at)),
                _ => {
                    Err(Fault::field(at, format!("{at}: a data URL of an image must be in base64")))
                }
            };
        }
        if let Some(path) = url.strip_prefix("file://") {
            if media.folder.is_none() {
                let message =
                    format!("{at}: this server reads no files (--media-path names a folder)");
                return Err(Fault::unsupported(at, message));
            }
            return Ok(Image { at: at.to_owned(), source: Source::File(path.into()) });
        }
        let message = format!(
            "{at}: this server fetches nothing from the network: send the image as a data URL \
             (data:image/png;base64,...)"
        );
        Err(Fault::unsupported(at, message))
    }

    /// Its file's bytes.
    fn bytes(&self, media: &Media) -> Result<Vec<u8>, Fault> {
        let fault = |what: String| Fault::field(self.at.as_str(), format!("{}: {what}", self.at));
        match &self.source {
            Source::Base64(data) => {
                BASE64.decode(data).map_err(|e| fault(format!("it is not in base64: {e}")))
            }
            Source::File(path) => {
                let missing = || fault("there is no such file below the server's folder".into());
                let path = within(media.folder.as_deref(), path).ok_or_else(missing)?;
                disk::read_plain(&path, media.bytes).map_err(|unread| match unread {
                    Unread::Missing | Unread::NotPlain => missing(),
                    Unread::TooLarge(bytes) => fault(format!(
                        "the file has {bytes} bytes, and {} are allowed",
                        media.bytes
                    )),
                    Unread::Io(error) => fault(format!("the file cannot be read: {error}")),
                })
            }
            Source::Pieces(_) => Err(Fault::internal("an image is decoded twice")),
        }
    }

    /// The same decoded, and the number of its pixels, of which `left` are allowed.
    fn decoded(self, model: &Model, media: &Media, left: u64) -> Result<(Image, u64), Fault> {
        let fault = |what: String| Fault::field(self.at.as_str(), format!("{}: {what}", self.at));
        let processor = model.processor.as_ref().ok_or_else(|| sees_nothing("messages"))?;
        let bounds = Bounds { pixels: media.pixels.min(left) };
        let picture = Picture::decode(&self.bytes(media)?, bounds).map_err(|e| match e {
            vision::Error::TooLarge { width, height, .. }
                if u64::from(width) * u64::from(height) <= media.pixels =>
            {
                fault(format!(
                    "the image has {width} by {height} pixels, and of the {} that the images of a request may have \
                     together {left} are left: send fewer or smaller images",
                    media.all_pixels
                ))
            }
            other => fault(other.to_string()),
        })?;
        let pixels = picture.width() as u64 * picture.height() as u64;
        let pieces = processor.pieces(&picture).map_err(|e| fault(e.to_string()))?;
        Ok((Image { at: self.at, source: Source::Pieces(pieces.into()) }, pixels))
    }
}

/// The images of a conversation, decoded one after the other.
///
/// # Errors
/// 400 when one cannot be taken, there are too many, or they have too many pixels together.
pub(super) async fn decode(
    model: &Hold<Model>,
    images: Vec<Image>,
    media: &Media,
) -> Result<Vec<Image>, Fault> {
    if !images.is_empty() && model.processor.is_none() {
        return Err(sees_nothing("messages"));
    }
    if images.len() > media.images {
        let message =
            format!("the request has {} images, and {} are allowed", images.len(), media.images);
        return Err(Fault::field("messages", message));
    }
    let mut left = media.all_pixels;
    let mut decoded = Vec::with_capacity(images.len());
    for image in images {
        let turn = TURN.acquire().await;
        let turn = turn.map_err(|_| Fault::internal("no image is decoded any more"))?;
        tracing::debug!(at = image.at, left, "an image is decoded");
        let media = media.clone();
        let work = move |model: &Model| {
            // It ends with the work, also where the client has left meanwhile.
            let _turn = turn;
            image.decoded(model, &media, left)
        };
        let (image, pixels) = beside(model.clone(), work).await?;
        left -= pixels;
        decoded.push(image);
    }
    Ok(decoded)
}

/// The path of something below a folder, without the links and dots that `path` has.
fn within(folder: Option<&Path>, path: &Path) -> Option<PathBuf> {
    let folder = folder?.canonicalize().ok()?;
    let path = folder.join(path).canonicalize().ok()?;
    path.starts_with(&folder).then_some(path)
}

/// The prompt that a text with marks becomes with images, which are [decoded](decode).
///
/// # Errors
/// 400 when the marks are not as many as the images.
pub(super) fn encode(
    model: &Model,
    prompt: &Rendered,
    images: &[Image],
) -> Result<PromptInfo, Fault> {
    let processor = model.processor.as_ref().ok_or_else(|| sees_nothing("messages"))?;
    let pieces = |image: &Image| match &image.source {
        Source::Pieces(pieces) => Ok(pieces.to_vec()),
        Source::Base64(_) | Source::File(_) => {
            Err(Fault::internal(format!("{}: the image was not decoded", image.at)))
        }
    };
    let pieces = images.iter().map(pieces).collect::<Result<Vec<_>, _>>()?;
    let whole = processor.compose(&prompt.text, &pieces);
    let whole = whole.map_err(|e| Fault::field("messages", e.to_string()))?;
    let text = prompt.plain().into_owned();
    let prompt = Prompt::of(&whole, |text, first| {
        model.tokenizer.encode_rendered(text, prompt.escape, first)
    })?;
    Ok(PromptInfo { text, tokens: prompt.tokens, images: prompt.images, added: 0 })
}

/// The message that shows images of results behind them.
pub(crate) fn shown_behind(images: usize) -> Message {
    let mut parts = vec![json!({"type": "text", "text": "What the tool has shown:"})];
    parts.extend((0..images).map(|_| json!({"type": "image"})));
    Message { content: parts.into(), ..Message::new("user", "") }
}

/// The fault of a request with images for a model without an encoder.
pub(crate) fn sees_nothing(at: &str) -> Fault {
    let message =
        "this model sees no images: the server was started without an image encoder (--mmproj)";
    Fault::unsupported(at, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_fetched_and_files_are_read_below_the_folder_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (inside, outside) = (folder.path().join("in"), folder.path().join("secret.png"));
        std::fs::create_dir(&inside).unwrap();
        std::fs::write(&outside, b"secret").unwrap();
        std::fs::write(inside.join("a.png"), b"picture").unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("link.png")).unwrap();
        let media_file = |name: &str| inside.join(name);
        let media = Media { folder: Some(inside.clone()), bytes: 7, ..Media::default() };
        let read = |url: &str| Image::url(url, "here", &media)?.bytes(&media);
        assert_eq!(read("file://a.png").unwrap(), b"picture");
        assert_eq!(read("data:image/png;base64,cGljdHVyZQ").unwrap(), b"picture");
        let pipe = std::process::Command::new("mkfifo").arg(media_file("pipe.png")).status();
        assert!(pipe.unwrap().success());
        std::os::unix::fs::symlink("/dev/zero", media_file("zero.png")).unwrap();
        std::os::unix::fs::symlink("/proc/self/environ", media_file("environ.png")).unwrap();
        std::os::unix::fs::symlink(folder.path(), media_file("up")).unwrap();
        std::os::unix::fs::symlink("deep/b.png", media_file("near.png")).unwrap();
        std::fs::create_dir(media_file("deep")).unwrap();
        std::fs::write(media_file("deep/b.png"), b"deeper").unwrap();
        // Links and dots that stay below the folder are followed, and so is a whole path.
        let whole = format!("file://{}", media_file("deep/../a.png").display());
        assert_eq!(read(&whole).unwrap(), b"picture");
        assert_eq!(read("file://near.png").unwrap(), b"deeper");
        for url in [
            "file://../secret.png",
            "file://deep/../../secret.png",
            "file://link.png",
            "file://up/secret.png",
            "file:///etc/passwd",
            "file://none",
            "file://",
            "file://.",
            "file://deep",
            "file://pipe.png",
            "file://zero.png",
            "file://environ.png",
            "file:///dev/zero",
            // The path is taken as it is.
            "file://%2e%2e/secret.png",
            "file://..%2fsecret.png",
            "file://%61.png",
            "file://localhost/a.png",
            "file://a.png\0",
        ] {
            assert!(read(url).unwrap_err().message.contains("no such file"), "{url}");
        }
        for url in ["http://a/b.png", "https://a/b.png", "ftp://a", ""] {
            assert!(read(url).unwrap_err().message.contains("fetches nothing"), "{url}");
        }
        assert!(read("data:image/png,x").unwrap_err().message.contains("base64"));
        assert!(read("data:image/png;base64,!").unwrap_err().message.contains("not in base64"));
        let none = Image::url("file://a.png", "here", &Media::default()).unwrap_err();
        assert!(none.message.contains("--media-path"));
        let small = Media { bytes: 6, ..media.clone() };
        let large = Image::url("file://a.png", "here", &small).unwrap().bytes(&small);
        assert!(large.unwrap_err().message.contains("7 bytes"));
        std::fs::File::create(media_file("hole.png")).unwrap().set_len(1 << 40).unwrap();
        assert!(read("file://hole.png").unwrap_err().message.contains("1099511627776 bytes"));
    }
}
