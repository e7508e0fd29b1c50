//! Images of requests: from data URLs, files below a folder and base64 to what stands for them in a prompt.

use super::answer::PromptInfo;
use crate::fault::Fault;
use crate::state::Model;
use arclight_engine::Prompt;
use base64::Engine as _;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::json;
use std::path::{Path, PathBuf};
use tokenizer::{Message, Rendered};
use vision::{Bounds, Picture, Piece};

/// Clients pad or do not.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// An image of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    /// The field that has it.
    at: String,
    source: Source,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Source {
    /// As the client wrote it.
    Base64(String),
    File(PathBuf),
}

/// What images may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Media {
    /// Folder below which clients may name files; `None`: nowhere.
    pub folder: Option<PathBuf>,
    /// Pixels of an image at most.
    pub pixels: u64,
    /// Bytes of a file at most.
    pub bytes: u64,
    /// Images of a request at most.
    pub images: usize,
}

impl Default for Media {
    fn default() -> Media {
        Media { folder: None, pixels: Bounds::default().pixels, bytes: 16 << 20, images: 64 }
    }
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
                let path = within(media.folder.as_deref(), path).ok_or_else(|| {
                    fault("there is no such file below the server's folder".into())
                })?;
                let bytes = path.metadata().map_or(0, |file| file.len());
                if bytes > media.bytes {
                    return Err(fault(format!(
                        "the file has {bytes} bytes, and {} are allowed",
                        media.bytes
                    )));
                }
                std::fs::read(path).map_err(|e| fault(format!("the file cannot be read: {e}")))
            }
        }
    }
}

/// A file below a folder, whatever links and dots its path has.
fn within(folder: Option<&Path>, path: &Path) -> Option<PathBuf> {
    let folder = folder?.canonicalize().ok()?;
    let path = folder.join(path).canonicalize().ok()?;
    (path.starts_with(&folder) && path.is_file()).then_some(path)
}

/// The prompt that a text with marks and its images become.
///
/// # Errors
/// 400 when an image cannot be taken, or the marks are not as many as the images.
pub(super) fn encode(
    model: &Model,
    prompt: &Rendered,
    (images, media): (&[Image], &Media),
) -> Result<PromptInfo, Fault> {
    let processor = model.processor.as_ref().ok_or_else(|| sees_nothing("messages"))?;
    if images.len() > media.images {
        let message =
            format!("the request has {} images, and {} are allowed", images.len(), media.images);
        return Err(Fault::field("messages", message));
    }
    let pieces = |image: &Image| -> Result<Vec<Piece>, Fault> {
        let fault =
            |e: vision::Error| Fault::field(image.at.as_str(), format!("{}: {e}", image.at));
        let picture = Picture::decode(&image.bytes(media)?, Bounds { pixels: media.pixels });
        processor.pieces(&picture.map_err(fault)?).map_err(fault)
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
        let media = Media { folder: Some(inside), bytes: 7, ..Media::default() };
        let read = |url: &str| Image::url(url, "here", &media)?.bytes(&media);
        assert_eq!(read("file://a.png").unwrap(), b"picture");
        assert_eq!(read("data:image/png;base64,cGljdHVyZQ").unwrap(), b"picture");
        for url in ["file://../secret.png", "file://link.png", "file:///etc/passwd", "file://none"]
        {
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
    }
}
