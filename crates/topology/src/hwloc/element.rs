//! An element of a document, and errors that name it.

use crate::Error;
use crate::bitmap::Bitmap;
use std::fmt;

/// An element; its attributes are read with the faults they may have.
#[derive(Clone, Copy)]
pub(super) struct Element<'a>(roxmltree::Node<'a, 'a>);

impl<'a> Element<'a> {
    pub(super) fn new(node: roxmltree::Node<'a, 'a>) -> Self {
        Self(node)
    }

    pub(super) fn tag(self) -> &'a str {
        self.0.tag_name().name()
    }

    pub(super) fn attr(self, name: &str) -> Option<&'a str> {
        self.0.attribute(name)
    }

    pub(super) fn text(self) -> &'a str {
        self.0.text().unwrap_or_default()
    }

    /// The elements of this name directly within.
    pub(super) fn children(self, tag: &'a str) -> impl Iterator<Item = Element<'a>> {
        let elements = self.0.children().filter(|n| n.is_element());
        elements.map(Element).filter(move |e| e.tag() == tag)
    }

    /// All elements within, in the order of the document, itself first.
    pub(super) fn descendants(self) -> impl Iterator<Item = Element<'a>> {
        self.0.descendants().filter(|n| n.is_element()).map(Element)
    }

    /// The value of the `<info>` of this name directly within.
    pub(super) fn info(self, name: &str) -> Option<&'a str> {
        let mut infos = self.children("info");
        infos.find(|i| i.attr("name") == Some(name))?.attr("value")
    }

    pub(super) fn fault(self, fault: impl fmt::Display) -> Error {
        let position = self.0.document().text_pos_at(self.0.range().start);
        let element = match self.attr("type") {
            Some(kind) => format!("{} {}", self.tag(), shorten(kind)),
            None => self.tag().to_owned(),
        };
        Error::Hwloc { line: position.row, element, fault: fault.to_string() }
    }

    /// The number an attribute holds, `None` without the attribute.
    pub(super) fn number<T: std::str::FromStr>(self, name: &str) -> Result<Option<T>, Error> {
        let Some(text) = self.attr(name) else { return Ok(None) };
        let number = text.trim().parse().ok();
        let fault = || self.fault(format!("{name}={:?} is no number that fits", shorten(text)));
        number.ok_or_else(fault).map(Some)
    }

    /// The number the system gave the object; `None` when it gave none, which is written as -1 of
    /// 32 bits or not at all.
    pub(super) fn os_index(self) -> Result<Option<u32>, Error> {
        let index = self.number::<i64>("os_index")?;
        match index {
            None | Some(-1) | Some(0xffff_ffff) => Ok(None),
            Some(n) => match u32::try_from(n) {
                Ok(n) => Ok(Some(n)),
                Err(_) => Err(self.fault(format!("os_index=\"{n}\" is no number that fits"))),
            },
        }
    }

    /// The set an attribute holds, `None` without the attribute.
    pub(super) fn set(self, name: &str) -> Result<Option<Bitmap>, Error> {
        let Some(text) = self.attr(name) else { return Ok(None) };
        let fault = |why| self.fault(format!("{name}={:?} is no set: {why}", shorten(text)));
        Bitmap::parse(text).map(Some).map_err(fault)
    }
}

/// Attributes may be long; messages quote their beginning.
fn shorten(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
