//! Ways to multiply that have a limit of their own.

use gguf::TensorType;

use crate::acts::ActKind;
use crate::matmul::Line;

/// What is multiplied, by the instructions that do it.
///
/// Of x86-64 without VNNI products of few bits are added in 16 bits before sums are widened: eight of 4 bits, four of
/// 5 bits, two of 6 bits, one of 7 bits; of 8 bits the sign is taken over first. Elsewhere one instruction
/// multiplies all of them ([`Kernels::product`](crate::Kernels::product)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Product {
    /// Weights of up to 4 bits with activations of 8.
    Int4,
    /// MXFP4 and NVFP4, whose steps take 5 bits.
    Int5,
    /// Weights of 5 and 6 bits.
    Int6,
    /// Weights that are unpacked to 7 bits.
    Int7,
    /// Weights of 8 bits, and those that are looked up as such.
    Int8,
    /// Pairs of bfloat16, or bfloat16 that is widened.
    Bf16,
    /// Half floats that are widened.
    F16,
    /// Single precision.
    F32,
}

impl Product {
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();

    /// All, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::Int4,
        Self::Int5,
        Self::Int6,
        Self::Int7,
        Self::Int8,
        Self::Bf16,
        Self::F16,
        Self::F32,
    ];

    /// That of matrices of a type.
    pub const fn of(ty: TensorType) -> Self {
        match Line::of(ty) {
            Line::Q4_0 | Line::Q4_1 | Line::Q4K | Line::Q2K | Line::Q3K | Line::Tq2_0 => Self::Int4,
            Line::Mxfp4 | Line::Nvfp4 => Self::Int5,
            Line::Q5_0 | Line::Q5_1 | Line::Q5K | Line::Q6K => Self::Int6,
            Line::Wide => Self::Int7,
            Line::Q8_0 | Line::Iq4Nl | Line::Iq4Xs => Self::Int8,
            Line::Bf16 => Self::Bf16,
            Line::F16 => Self::F16,
            Line::F32 => Self::F32,
        }
    }

    /// The activations that it takes.
    pub const fn acts(self) -> ActKind {
        match self {
            Self::Int4 | Self::Int5 | Self::Int6 | Self::Int7 | Self::Int8 => ActKind::Q8,
            Self::Bf16 => ActKind::Bf16,
            Self::F16 | Self::F32 => ActKind::F32,
        }
    }

    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Int4 => "int4",
            Self::Int5 => "int5",
            Self::Int6 => "int6",
            Self::Int7 => "int7",
            Self::Int8 => "int8",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::F32 => "f32",
        }
    }
}

/// What there is of every product: multiply-accumulates, or how many there are in a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Products<T>([T; Product::COUNT]);

impl<T: Copy> Products<T> {
    /// With the figure of each.
    pub fn new(of: impl FnMut(Product) -> T) -> Self {
        Self(Product::ALL.map(of))
    }

    /// Each figure made another.
    pub fn map<U>(self, of: impl FnMut(T) -> U) -> Products<U> {
        Products(self.0.map(of))
    }

    /// All with their figures.
    pub fn iter(&self) -> impl Iterator<Item = (Product, T)> + '_ {
        Product::ALL.into_iter().zip(self.0)
    }
}

impl<T> std::ops::Index<Product> for Products<T> {
    type Output = T;

    fn index(&self, product: Product) -> &T {
        &self.0[product as usize]
    }
}

impl<T> std::ops::IndexMut<Product> for Products<T> {
    fn index_mut(&mut self, product: Product) -> &mut T {
        &mut self.0[product as usize]
    }
}
