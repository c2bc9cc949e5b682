//! The formulas of updates, written with operators over a [`Number`]: plain numbers on the CPU, and
//! [`X`], which builds scalar [`Code`].

use std::cell::RefCell;
use std::ops::{Add, Div, Mul, Sub};

use super::{AVERAGE, NOISE, Settings};
use crate::ops::Real;
use crate::ops::map::{Binary, Code, Instr, Reg, Unary};

/// A number of one element.
pub trait Number:
    Copy
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Add<f64, Output = Self>
    + Sub<f64, Output = Self>
    + Mul<f64, Output = Self>
    + Div<f64, Output = Self>
{
    /// A constant.
    fn constant(self, value: f64) -> Self;
    /// Square root.
    fn sqrt(self) -> Self;
    /// Absolute value.
    fn abs(self) -> Self;
    /// The larger.
    fn max(self, other: Self) -> Self;
    /// The smaller.
    fn min(self, other: Self) -> Self;
    /// 1 where it is above the other, else 0.
    fn above(self, other: Self) -> Self;

    /// 1, 0 or −1.
    #[inline(always)]
    fn sign(self) -> Self {
        let zero = self.constant(0.0);
        self.above(zero) - zero.above(self)
    }

    /// The mean with weight `rate` on `to`: x + rate·(to − x).
    #[inline(always)]
    fn towards(self, to: Self, rate: f64) -> Self {
        self + (to - self) * rate
    }
}

/// A number of the CPU.
#[derive(Clone, Copy, Debug)]
pub struct Plain<R>(pub R);

impl<R: Real> Number for Plain<R> {
    #[inline(always)]
    fn constant(self, value: f64) -> Self {
        // As the GPU has it.
        Plain(R::of(f64::from(value as f32)))
    }

    #[inline(always)]
    fn sqrt(self) -> Self {
        Plain(self.0.sqrt())
    }

    #[inline(always)]
    fn abs(self) -> Self {
        Plain(self.0.abs())
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        Plain(self.0.max(other.0))
    }

    #[inline(always)]
    fn min(self, other: Self) -> Self {
        Plain(self.0.min(other.0))
    }

    #[inline(always)]
    fn above(self, other: Self) -> Self {
        Plain(if self.0 > other.0 { R::ONE } else { R::ZERO })
    }
}

/// A number while the code that computes it is written.
#[derive(Clone, Copy, Debug)]
pub struct X<'c> {
    code: &'c RefCell<Code>,
    reg: Reg,
}

impl<'c> X<'c> {
    fn input(code: &'c RefCell<Code>, index: usize) -> Self {
        X { code, reg: code.borrow_mut().input(index) }
    }

    fn unary(self, f: Unary) -> Self {
        X { reg: self.code.borrow_mut().unary(f, self.reg), ..self }
    }

    fn binary(self, f: Binary, other: Self) -> Self {
        X { reg: self.code.borrow_mut().binary(f, self.reg, other.reg), ..self }
    }

    /// A standard normal number (Box & Muller 1958): √(−2 ln(1 − u)) · cos 2πv, the cosine as
    /// 1 − 2·sin²(π·(½ − |v − ½|)) with the sine by its series.
    fn normal(self, stream: u32) -> Self {
        let uniform =
            |stream| X { reg: self.code.borrow_mut().push(Instr::Random(stream)), ..self };
        let (one, half) = (self.constant(1.0), self.constant(0.5));
        let radius = ((one - uniform(stream)).unary(Unary::Log) * -2.0).sqrt();
        let angle = (half - (uniform(stream + 1) - half).abs()) * std::f64::consts::PI;
        let square = angle * angle;
        let mut sine = self.constant(SINE[SINE.len() - 1]);
        for factor in SINE.iter().rev().skip(1) {
            sine = sine * square + *factor;
        }
        let sine = sine * angle;
        radius * (one - sine * sine * 2.0)
    }
}

/// The series of sin x / x in x²: within 2 · 10⁻⁸ up to π/2.
const SINE: [f64; 7] = [
    1.0,
    -1.0 / 6.0,
    1.0 / 120.0,
    -1.0 / 5_040.0,
    1.0 / 362_880.0,
    -1.0 / 39_916_800.0,
    1.0 / 6_227_020_800.0,
];

impl Number for X<'_> {
    fn constant(self, value: f64) -> Self {
        X { reg: self.code.borrow_mut().constant(value as f32), ..self }
    }

    fn sqrt(self) -> Self {
        self.unary(Unary::Sqrt)
    }

    fn abs(self) -> Self {
        self.unary(Unary::Abs)
    }

    fn max(self, other: Self) -> Self {
        self.binary(Binary::Max, other)
    }

    fn min(self, other: Self) -> Self {
        self.binary(Binary::Min, other)
    }

    fn above(self, other: Self) -> Self {
        self.binary(Binary::Greater, other)
    }
}

macro_rules! operators {
    ($($operator:ident $method:ident),*) => {$(
        impl<'c> $operator for X<'c> {
            type Output = X<'c>;
            fn $method(self, other: X<'c>) -> X<'c> {
                self.binary(Binary::$operator, other)
            }
        }

        impl<'c> $operator<f64> for X<'c> {
            type Output = X<'c>;
            fn $method(self, other: f64) -> X<'c> {
                self.binary(Binary::$operator, self.constant(other))
            }
        }

        impl<R: Real> $operator for Plain<R> {
            type Output = Plain<R>;
            #[inline(always)]
            fn $method(self, other: Plain<R>) -> Plain<R> {
                Plain(self.0.$method(other.0))
            }
        }

        impl<R: Real> $operator<f64> for Plain<R> {
            type Output = Plain<R>;
            #[inline(always)]
            fn $method(self, other: f64) -> Plain<R> {
                Plain(self.0.$method(self.constant(other).0))
            }
        }
    )*};
}

operators!(Add add, Sub sub, Mul mul, Div div);

/// What an update's formula is written with.
#[derive(Debug)]
pub struct Scalars<'s, N> {
    operands: Vec<N>,
    scale: N,
    hyper: [N; 8],
    settings: &'s Settings,
}

impl<'s, N: Number> Scalars<'s, N> {
    /// The scale of `GradScale` and the numbers of `Globals::hyper`.
    pub(super) fn new(scale: N, hyper: [N; 8], settings: &'s Settings) -> Self {
        Scalars { operands: Vec::new(), scale, hyper, settings }
    }

    /// An operand of the update.
    pub fn operand(&self, index: usize) -> N {
        self.operands[index]
    }

    /// The scalar `index` that the rule computed for this step, from 0.
    #[inline(always)]
    pub fn scalar(&self, index: usize) -> N {
        self.hyper[1 + index]
    }

    /// The learning rate of the group.
    #[inline(always)]
    pub fn lr(&self) -> N {
        self.hyper[0] * self.settings.lr_factor
    }

    /// How far the average moves to the parameters in this step.
    pub fn average_weight(&self) -> N {
        self.hyper[AVERAGE]
    }

    /// λ of the group.
    #[inline(always)]
    pub fn weight_decay(&self) -> f64 {
        self.settings.weight_decay
    }

    /// The mean gradient from a sum over the window: scaled (and so clipped by the norm), then
    /// clipped by value.
    #[inline(always)]
    pub(super) fn mean(&self, sum: N) -> N {
        let g = sum * self.scale;
        match self.settings.clip_value {
            Some(limit) => g.min(g.constant(limit)).max(g.constant(-limit)),
            None => g,
        }
    }

    /// The gradient with weight decay added to it: g + λ·p.
    #[inline(always)]
    pub fn coupled(&self, g: N, p: N) -> N {
        if self.weight_decay() == 0.0 { g } else { g + p * self.weight_decay() }
    }

    /// Parameters after weight decay apart from the gradient: p·(1 − lr·λ).
    #[inline(always)]
    pub fn shrunk(&self, p: N) -> N {
        if self.weight_decay() == 0.0 {
            return p;
        }
        p * (p.constant(1.0) - self.lr() * self.weight_decay())
    }
}

impl<'c> Scalars<'c, X<'c>> {
    /// The mean gradient from operand `index`, with noise.
    pub fn gradient(&self, index: usize) -> X<'c> {
        let g = self.mean(self.operand(index));
        match self.settings.noise {
            Some(stream) => g + self.hyper[NOISE] * g.normal(stream),
            None => g,
        }
    }
}

/// Code over `operands` operands, the scale and the step's scalars, with one result for each
/// number that `formula` gives.
pub(super) fn code(
    operands: usize,
    settings: &Settings,
    formula: impl for<'c> FnOnce(&Scalars<'c, X<'c>>) -> Vec<X<'c>>,
) -> Code {
    let cell = RefCell::new(Code::new());
    let input = |index| X::input(&cell, index);
    let scalars = Scalars {
        operands: (0..operands).map(input).collect(),
        scale: input(operands),
        hyper: std::array::from_fn(|index| input(operands + 1 + index)),
        settings,
    };
    let outs = formula(&scalars).into_iter().map(|x| x.reg).collect();
    let mut code = cell.take();
    code.outs = outs;
    code.pruned()
}
