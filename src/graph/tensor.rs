//! Shapes and element types of the values in a graph.

use std::fmt;

/// Element type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DType {
    /// 32-bit float: all arithmetic.
    F32,
    /// 16-bit float: how a program of mixed precision stores activations and their gradients.
    /// Only the plan gives a value this type, and only for a GPU; arithmetic stays in [`DType::F32`].
    F16,
    /// 32-bit signed integer: class indices and token ids.
    I32,
}

impl DType {
    /// Bytes of one element.
    pub const fn bytes(self) -> u64 {
        match self {
            DType::F32 | DType::I32 => 4,
            DType::F16 => 2,
        }
    }

    /// Whether it holds numbers rather than indices.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F16)
    }

    /// The name used in messages, configs and checkpoints.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F16 => "f16",
            DType::I32 => "i32",
        }
    }
}

/// The extents of a value, outermost first; row-major and contiguous. A scalar has no extents.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Shape(Vec<usize>);

impl Shape {
    /// A shape from its extents.
    pub fn new(dims: impl Into<Vec<usize>>) -> Self {
        Shape(dims.into())
    }

    /// The extents, outermost first.
    pub fn dims(&self) -> &[usize] {
        &self.0
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.0.iter().product()
    }

    /// Number of elements, if it is small enough to be thought of as memory: below 2⁴⁰.
    pub fn checked_elements(&self) -> Option<usize> {
        let product = self.0.iter().try_fold(1_usize, |n, d| n.checked_mul(*d))?;
        (product < 1 << 40).then_some(product)
    }

    /// Extent of the last axis (1 for a scalar).
    pub fn last(&self) -> usize {
        self.0.last().copied().unwrap_or(1)
    }

    /// Elements per step of each axis, row-major.
    pub fn strides(&self) -> Vec<usize> {
        let mut strides = vec![1; self.0.len()];
        for axis in (1..self.0.len()).rev() {
            strides[axis - 1] = strides[axis] * self.0[axis];
        }
        strides
    }

    /// Whether this shape can be repeated to fill `out`: axes are matched from the last one, and
    /// each is either equal or 1 (NumPy's broadcasting rule).
    pub fn broadcasts_to(&self, out: &Shape) -> bool {
        self.rank() <= out.rank()
            && self.0.iter().rev().zip(out.0.iter().rev()).all(|(&a, &b)| a == b || a == 1)
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<String> = self.0.iter().map(usize::to_string).collect();
        write!(f, "[{}]", dims.join(", "))
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Self {
        Shape(dims.to_vec())
    }
}

/// Shape and element type of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// Extents.
    pub shape: Shape,
    /// Element type.
    pub dtype: DType,
}

impl TensorType {
    /// A float tensor.
    pub fn f32(shape: impl Into<Shape>) -> Self {
        TensorType { shape: shape.into(), dtype: DType::F32 }
    }

    /// An integer tensor.
    pub fn i32(shape: impl Into<Shape>) -> Self {
        TensorType { shape: shape.into(), dtype: DType::I32 }
    }

    /// The numbers that stored bytes hold; indices by their bits.
    pub fn numbers(&self, bytes: &[u8]) -> Vec<f32> {
        match self.dtype {
            DType::F32 | DType::I32 => bytemuck::pod_collect_to_vec(bytes),
            DType::F16 => (bytes.chunks_exact(2).take(self.shape.elements()))
                .map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f32())
                .collect(),
        }
    }

    /// The stored bytes of numbers: the inverse of [`TensorType::numbers`].
    pub fn stored(&self, numbers: &[f32]) -> Vec<u8> {
        match self.dtype {
            DType::F32 | DType::I32 => bytemuck::cast_slice(numbers).to_vec(),
            DType::F16 => {
                let halves = numbers.iter().map(|v| half::f16::from_f32(*v).to_le_bytes());
                let mut bytes: Vec<u8> = halves.flatten().collect();
                bytes.resize(self.bytes() as usize, 0);
                bytes
            }
        }
    }

    /// Size in bytes, as a storage binding has it: a multiple of 4.
    pub fn bytes(&self) -> u64 {
        (self.shape.elements() as u64 * self.dtype.bytes()).next_multiple_of(4)
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype.name(), self.shape)
    }
}
