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
    /// Bytes of that shape: a weight in its type, one row of an activation.
    pub bytes: usize,
    /// The operator that makes it; `None` for weights.
    pub operation: Option<&'static str>,
    /// Names of the tensors that it is made of.
    pub sources: Vec<String>,
    /// How nodes share it.
    pub placement: Placement,
    /// The dimension of a weight that nodes share, if it is split.
    pub cut: Option<SplitBy>,
    /// Elements of a row on each node, where it is not whole.
    pub widths: Vec<usize>,
    /// Bytes that are allocated for it on each node, or on the first alone where it is whole: the packed weight, one row of
    /// an activation. Activations of several layers share their buffers.
    pub allocated: Vec<usize>,
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
                bytes: info.width * size_of::<f32>(),
                operation: Some(node.op.name()),
                sources: sources.collect(),
                placement: info.placement,
                cut: None,
                widths: info.widths.clone(),
                allocated: info.row_bytes().collect(),
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
            let cut = |p| (!matrix.is_everywhere(p, self.nodes())).then_some(matrix.split);
            let parts = matrix.parts.iter().enumerate();
            parts.map(move |(p, part)| (&*part.name, cut(p)))
        });
        let vectors = vectors.iter().map(|vector| &self.tables.vectors[vector.0 as usize]);
        let vectors = vectors.map(|vector| (&*vector.name, None));
        let mut headers: Vec<Header> = Vec::new();
        for (name, cut) in parts.chain(vectors) {
            let spec = self.tensors().iter().find(|spec| spec.name == name);
            // What all elements are the same of is in no file.
            let Some(spec) = spec.filter(|_| headers.iter().all(|other| other.name != name)) else {
                continue;
            };
            let rows = spec.rows * spec.experts.unwrap_or(1);
            headers.push(Header {
                name: name.to_owned(),
                element: Element::Stored(spec.ty),
                shape: (Rows::Fixed(rows), spec.cols),
                bytes: spec.bytes(),
                operation: None,
                sources: Vec::new(),
                placement: if cut.is_some() { Placement::Split } else { Placement::Replicated },
                cut,
                widths: self.widths_of(name, spec.cols),
                allocated: (0..self.nodes()).map(|node| self.allocated(name, node)).collect(),
                layer: node.layer,
            });
        }
        headers
    }

    /// Elements of a row of a weight on each node.
    fn widths_of(&self, name: &str, whole: usize) -> Vec<usize> {
        let mut parts = self.parts_of(name).filter(|(matrix, _)| matrix.split == SplitBy::Cols);
        match parts.next() {
            Some((matrix, p)) => (0..self.nodes()).map(|n| matrix.cols(p, n).len()).collect(),
            None => vec![whole; self.nodes()],
        }
    }

    /// Bytes that a node has of a weight: packed in matrices, and as f32 in vectors.
    fn allocated(&self, name: &str, node: usize) -> usize {
        let packed = self.parts_of(name).map(|(matrix, p)| matrix.part_bytes(p, node));
        let vectors = self.tables.vectors.iter().filter(|vector| vector.name == name);
        packed.sum::<usize>() + vectors.map(|vector| vector.len * size_of::<f32>()).sum::<usize>()
    }

    /// The parts of matrices that a weight makes up.
    fn parts_of<'g>(&'g self, name: &'g str) -> impl Iterator<Item = (&'g Matrix, usize)> {
        let of = |matrix: &'g Matrix| (0..matrix.parts.len()).map(move |p| (matrix, p));
        self.matrices().iter().flat_map(of).filter(move |(m, p)| m.parts[*p].name == name)
    }
}

/// Bytes by node: those of one, if all have the same.
fn by_node(bytes: &[usize]) -> String {
    match bytes {
        [one] => one.to_string(),
        [first, rest @ ..] if rest.iter().all(|other| other == first) => {
            format!("{} × {first}", bytes.len())
        }
        _ => bytes.iter().map(usize::to_string).collect::<Vec<_>>().join(" | "),
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

impl Header {
    /// The titles of what [`Display`](fmt::Display) prints.
    pub fn titles() -> String {
        line([
            "tensor",
            "type",
            "shape",
            "bytes",
            "operation",
            "placement",
            "bytes by node",
            "made of",
        ])
    }
}

/// A line of columns.
fn line(
    [name, element, shape, bytes, operation, placement, allocated, sources]: [&str; 8],
) -> String {
    format!(
        "{name:<32} {element:<7} {shape:<16} {bytes:>12} {operation:<12} {placement:<10} {allocated:<20} {sources}"
    )
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Header { name, element, shape: (rows, width), operation, sources, .. } = self;
        let row = if operation.is_some() { " a row" } else { "" };
        let placement = match self.cut {
            Some(cut) => cut.to_string(),
            None => self.placement.to_string(),
        };
        let columns = [
            name,
            &element.to_string(),
            &format!("[{rows}, {width}]"),
            &format!("{}{row}", self.bytes),
            operation.unwrap_or("weight"),
            &placement,
            &format!("{}{row}", by_node(&self.allocated)),
            &sources.join(", "),
        ];
        f.write_str(line(columns).trim_end())
    }
}
