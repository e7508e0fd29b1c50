//! Headers: all there is to say of tensors before they have data.

use crate::graph::Graph;
use crate::operator::Node;
use crate::placement::Placement;
use crate::tensor::{Bundle, Domain};
use crate::weight::{Matrix, SplitBy, VectorId};
use gguf::TensorType;
use std::fmt;

/// What elements of a tensor are.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Element {
    /// As the file has them; packed in blocks of this type.
    Stored(TensorType),
    /// Activations, 32 bits each. Products quantise them for themselves.
    F32,
}

/// How many rows a tensor has.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Rows {
    /// So many.
    Fixed(usize),
    /// As the step says.
    Of(Domain),
}

/// The header of a tensor (ArcLight §2.2): all there is to say of it before it has data. It is derived from the graph,
/// which says each thing in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its name: that of the file, or the operator's with its number in the list.
    pub name: String,
    /// What its elements are.
    pub element: Element,
    /// Rows, and elements of a row, of all nodes together.
    pub shape: (Rows, usize),
    /// The operator that makes it; `None` for weights.
    pub operation: Option<&'static str>,
    /// Names of the tensors that it is made of.
    pub sources: Vec<String>,
    /// How nodes share it.
    pub placement: Placement,
    /// Elements of a row on each node, where it is not whole.
    pub widths: Vec<usize>,
    /// The layer that it belongs to; of weights, the first that reads it.
    pub layer: Option<usize>,
}

impl Graph {
    /// The headers of all tensors: those of the file that operators read, in the order in which they do, and each
    /// operator's result behind what it is made of.
    pub fn headers(&self) -> Vec<Header> {
        let mut headers: Vec<Header> = Vec::new();
        for (at, node) in self.ops().iter().enumerate() {
            let weights = self.weights_of(node);
            let activations =
                node.op.does().inputs().into_iter().map(|bundle| self.name_of(bundle));
            let sources = activations.chain(weights.iter().map(|header| header.name.clone()));
            let info = self.bundle(node.out);
            let made = Header {
                name: format!("%{at}"),
                element: Element::F32,
                shape: (Rows::Of(info.domain), info.width),
                operation: Some(node.op.name()),
                sources: sources.collect(),
                placement: info.placement,
                widths: info.widths.clone(),
                layer: node.layer,
            };
            for header in weights {
                if headers.iter().all(|other| other.name != header.name) {
                    headers.push(header);
                }
            }
            headers.push(made);
        }
        headers
    }

    fn name_of(&self, bundle: Bundle) -> String {
        let made = self.ops().iter().position(|node| node.out == bundle);
        made.map_or_else(String::new, |at| format!("%{at}"))
    }

    /// Weights that an operator reads.
    fn weights_of(&self, node: &Node) -> Vec<Header> {
        let matrices = [node.op.does().product(), node.op.does().table()];
        let matrices: Vec<&Matrix> =
            matrices.into_iter().flatten().map(|matrix| self.matrix(matrix)).collect();
        let within = |matrix: &&Matrix| -> Vec<VectorId> {
            matrix.parts.iter().flat_map(|part| [part.scale, part.bias]).flatten().collect()
        };
        let mut vectors = node.op.does().vectors();
        vectors.extend(matrices.iter().flat_map(within));
        let parts = matrices.iter().flat_map(|matrix| {
            let names: Vec<&str> = matrix.parts.iter().map(|part| &*part.name).collect();
            names.into_iter().map(|name| (name, Some(matrix.split)))
        });
        let vectors =
            vectors.iter().map(|vector| (&*self.tables.vectors[vector.0 as usize].name, None));
        let mut headers: Vec<Header> = Vec::new();
        for (name, split) in parts.chain(vectors) {
            let spec = self.tensors().iter().find(|spec| spec.name == name);
            // What all elements are the same of is in no file.
            let Some(spec) = spec.filter(|_| headers.iter().all(|other| other.name != name)) else {
                continue;
            };
            let placement = match split {
                Some(SplitBy::Rows | SplitBy::Cols) if self.nodes() > 1 => Placement::Split,
                _ => Placement::Replicated,
            };
            let rows = spec.rows * spec.experts.unwrap_or(1);
            headers.push(Header {
                name: name.to_owned(),
                element: Element::Stored(spec.ty),
                shape: (Rows::Fixed(rows), spec.cols),
                operation: None,
                sources: Vec::new(),
                placement,
                widths: vec![spec.cols],
                layer: node.layer,
            });
        }
        headers
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Element::Stored(ty) => ty.fmt(f),
            Element::F32 => TensorType::F32.fmt(f),
        }
    }
}

impl fmt::Display for Rows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rows::Fixed(rows) => write!(f, "{rows}"),
            Rows::Of(Domain::Tokens) => f.write_str("tokens"),
            Rows::Of(Domain::Outputs) => f.write_str("outputs"),
            Rows::Of(Domain::Slots(each)) => write!(f, "{each} tokens"),
        }
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Header { name, element, shape: (rows, width), operation, sources, .. } = self;
        let shape = format!("[{rows}, {width}]");
        let (element, placement) = (element.to_string(), self.placement.to_string());
        let operation = operation.unwrap_or("weight");
        write!(f, "{name:<32} {element:<7} {shape:<16} {operation:<12} {placement:<10}")?;
        write!(f, " {}", sources.join(", "))
    }
}
