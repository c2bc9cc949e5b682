//! What a candidate's result is held against: a sample of it, computed on the CPU in double precision
//! from slices of the same factors.

use crate::device::agreement::{self, HALF_TOLERANCE, TOLERANCE};
use crate::graph::eval::{self, Tensor};
use crate::graph::{DType, Shape, TensorType};
use crate::ops::Domain;
use crate::ops::selection::Product;

/// Normal numbers that repeat, so that large factors take no time to draw: the period is prime, so no
/// two rows begin alike.
const PERIOD: usize = 4099;
/// Places of an axis that are looked at, on as many different places of a tile.
const PLACES: usize = 16;

/// A factor with its content.
pub(super) struct Factor {
    /// As it is stored.
    pub(super) bytes: Vec<u8>,
    /// One period of its numbers, as they are when read back.
    numbers: Vec<f64>,
}

/// A factor of this type, from a stream of random numbers.
pub(super) fn pattern(ty: &TensorType, stream: u32) -> Factor {
    let period = TensorType { shape: Shape::new([PERIOD]), dtype: ty.dtype };
    let values = agreement::draw(&period, Domain::Normal, stream);
    let drawn: Vec<f32> = values.f().iter().map(|v| *v as f32).collect();
    let width = match ty.dtype {
        DType::F16 => 2,
        DType::F32 | DType::I32 => 4,
    };
    let mut one = period.stored(&drawn);
    one.truncate(PERIOD * width);
    let numbers = period.numbers(&one).into_iter().map(f64::from).collect();
    let mut bytes: Vec<u8> =
        one.iter().copied().cycle().take(ty.shape.elements() * width).collect();
    bytes.resize(ty.bytes() as usize, 0);
    Factor { bytes, numbers }
}

/// The sampled elements of a result.
pub(super) struct Sample {
    /// Their flat indices.
    places: Vec<usize>,
    /// What they should be.
    values: Vec<f64>,
    /// Largest accepted difference.
    pub(super) tolerance: f64,
}

impl Sample {
    /// Computes the sample.
    pub(super) fn new(
        product: &Product,
        types: &[TensorType; 2],
        factors: &[Factor; 2],
    ) -> Result<Self, String> {
        let whole = product.op.infer(&[&types[0], &types[1]])?;
        let mut result = picks(&whole[0].shape, &[]);
        let slices = [0, 1].map(|factor| {
            let free: Vec<usize> =
                product.free.iter().filter(|f| f.factor == factor).map(|f| f.axis).collect();
            picks(&types[factor].shape, &free)
        });
        for free in &product.free {
            result[free.out] = slices[free.factor][free.axis].clone();
        }
        let kept = [0, 1].map(|factor| {
            let dims: Vec<usize> = slices[factor].iter().map(Vec::len).collect();
            TensorType::f32(Shape::new(dims))
        });
        let values = [0, 1].map(|factor| {
            let places = flat(&types[factor].shape, &slices[factor]);
            let numbers = &factors[factor].numbers;
            Tensor::F(places.into_iter().map(|at| numbers[at % PERIOD]).collect::<Vec<f64>>())
        });
        let ins = [&kept[0], &kept[1]];
        let outs = product.op.infer(&ins)?;
        let outs: Vec<&TensorType> = outs.iter().collect();
        let globals = agreement::globals();
        let operands = [&values[0], &values[1]];
        let mut found = eval::run_op::<f64>(product.op.as_ref(), &operands, &ins, &outs, &globals);
        let tolerance = if product.problem.units.is_some() { HALF_TOLERANCE } else { TOLERANCE };
        Ok(Sample {
            places: flat(&whole[0].shape, &result),
            values: std::mem::take(&mut found[0]),
            tolerance,
        })
    }

    /// The largest relative difference of a result, as its stored bytes.
    pub(super) fn difference(&self, bytes: &[u8]) -> f64 {
        let all: Vec<f32> = bytemuck::pod_collect_to_vec(bytes);
        let found: Vec<f32> = self.places.iter().map(|at| all[*at]).collect();
        agreement::difference(&[found], std::slice::from_ref(&self.values))
    }
}

/// The places looked at on each axis: some of the free ones, all of the others.
fn picks(shape: &Shape, free: &[usize]) -> Vec<Vec<usize>> {
    let axis = |(axis, extent): (usize, &usize)| match free.contains(&axis) {
        true => some_of(*extent),
        false => (0..*extent).collect(),
    };
    shape.dims().iter().enumerate().map(axis).collect()
}

/// Places spread over an axis, with every remainder by [`PLACES`] among them, the first and the last.
fn some_of(extent: usize) -> Vec<usize> {
    if extent <= PLACES {
        return (0..extent).collect();
    }
    let blocks = extent / PLACES;
    let mut places: Vec<usize> =
        (0..PLACES).map(|i| i + PLACES * (i * (blocks - 1) / (PLACES - 1))).collect();
    places.push(extent - 1);
    places.dedup();
    places
}

/// Flat indices of all combinations of places, in row-major order.
fn flat(shape: &Shape, places: &[Vec<usize>]) -> Vec<usize> {
    shape.dims().iter().zip(places).fold(vec![0], |starts, (extent, places)| {
        starts.iter().flat_map(|start| places.iter().map(move |p| start * extent + p)).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_cover_every_remainder_and_both_ends() {
        for extent in [17, 100, 1283, 50_257] {
            let places = some_of(extent);
            assert!(places.windows(2).all(|pair| pair[0] < pair[1]), "{places:?}");
            assert_eq!((places[0], places[places.len() - 1]), (0, extent - 1));
            let remainders: std::collections::BTreeSet<usize> =
                places.iter().map(|place| place % PLACES).collect();
            assert_eq!(remainders.len(), PLACES);
        }
        assert_eq!(some_of(3), [0, 1, 2]);
    }

    #[test]
    fn flat_indices_are_in_row_major_order() {
        let shape = Shape::new([3, 4]);
        assert_eq!(flat(&shape, &[vec![0, 2], vec![1, 3]]), [1, 3, 9, 11]);
    }
}
