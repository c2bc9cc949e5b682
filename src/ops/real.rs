//! The number types of CPU kernels: `f32` to train, `f64` to judge, one source for both.

use std::fmt::Debug;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, DivAssign, Mul, MulAssign, Neg, Sub, SubAssign};

/// A CPU number type.
pub trait Real:
    Copy
    + Debug
    + Default
    + PartialOrd
    + Send
    + Sync
    + Sum
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
    + DivAssign
    + 'static
{
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// −∞.
    const NEG_INFINITY: Self;
    /// Nearest value.
    fn of(x: f64) -> Self;
    /// Widened.
    fn to_f64(self) -> f64;
    /// Square root.
    fn sqrt(self) -> Self;
    /// eˣ.
    fn exp(self) -> Self;
    /// eˣ − 1.
    fn exp_m1(self) -> Self;
    /// Natural logarithm.
    fn ln(self) -> Self;
    /// ln(1 + x).
    fn ln_1p(self) -> Self;
    /// Hyperbolic tangent.
    fn tanh(self) -> Self;
    /// The error function.
    fn erf(self) -> Self;
    /// Absolute value.
    fn abs(self) -> Self;
    /// The larger; NaN where `self` is.
    fn max(self, other: Self) -> Self;
    /// The smaller; NaN where `self` is.
    fn min(self, other: Self) -> Self;
    /// `C ← α·op(A)·op(B) + β·C` for one matrix, row strides and column strides in elements:
    /// see [`super::cpu::Gemm`].
    fn gemm(gemm: &super::cpu::Gemm<'_, Self>, c: &mut [Self]);
    /// Runs an op's kernel of this precision.
    fn run(op: &dyn super::Op, call: super::Call<'_, Self>);
}

macro_rules! real {
    ($t:ty, $run:ident, $exp:expr, $expm1:expr, $tanh:expr, $erf:expr) => {
        impl Real for $t {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const NEG_INFINITY: Self = <$t>::NEG_INFINITY;
            #[inline(always)]
            fn of(x: f64) -> Self {
                x as $t
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                <$t>::sqrt(self)
            }
            #[inline(always)]
            fn exp(self) -> Self {
                $exp(self)
            }
            #[inline(always)]
            fn exp_m1(self) -> Self {
                $expm1(self)
            }
            #[inline(always)]
            fn ln(self) -> Self {
                <$t>::ln(self)
            }
            #[inline(always)]
            fn ln_1p(self) -> Self {
                <$t>::ln_1p(self)
            }
            #[inline(always)]
            fn tanh(self) -> Self {
                $tanh(self)
            }
            #[inline(always)]
            fn erf(self) -> Self {
                $erf(self)
            }
            #[inline(always)]
            fn abs(self) -> Self {
                <$t>::abs(self)
            }
            #[inline(always)]
            fn max(self, other: Self) -> Self {
                if self < other { other } else { self }
            }
            #[inline(always)]
            fn min(self, other: Self) -> Self {
                if other < self { other } else { self }
            }
            fn gemm(gemm: &super::cpu::Gemm<'_, Self>, c: &mut [Self]) {
                super::cpu::gemm(gemm, c);
            }
            fn run(op: &dyn super::Op, call: super::Call<'_, Self>) {
                op.$run(call);
            }
        }
    };
}

real!(f32, cpu_f32, exp_f32, expm1_f32, tanh_f32, erf_f32);
real!(f64, cpu_f64, f64::exp, f64::exp_m1, f64::tanh, erf_f64);

/// eˣ for `f32`, without branches so that loops over it become SIMD: x = n·ln 2 + r with
/// |r| ≤ ln 2 / 2, a degree-6 polynomial for eʳ, and 2ⁿ by its exponent bits. Within 2 units in
/// the last place; 0 below −103, +∞ above 88.7; NaN stays NaN.
#[inline(always)]
pub fn exp_f32(x: f32) -> f32 {
    const LN2_HI: f32 = 0.693_359_4;
    const LN2_LO: f32 = -2.121_944_4e-4;
    let clamped = if x > 89.0 { 89.0 } else { x };
    let clamped = if clamped < -104.0 { -104.0 } else { clamped };
    const MAGIC: f32 = 12_582_912.0; // 1.5·2²³: adding it rounds to the nearest integer
    let shifted = clamped * std::f32::consts::LOG2_E + MAGIC;
    let n = shifted - MAGIC;
    let power = (shifted.to_bits() as i32).wrapping_sub(MAGIC.to_bits() as i32);
    let r = (clamped - n * LN2_HI) - n * LN2_LO;
    let mut p = 1.388_9e-3_f32;
    p = p * r + 8.333_5e-3;
    p = p * r + 4.166_666e-2;
    p = p * r + 0.166_666_65;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    // 2ⁿ in two factors, so that results down to the denormals and up to 2¹²⁸ come out right.
    let half = power >> 1;
    p * pow2(half) * pow2(power.wrapping_sub(half))
}

/// 2ⁿ for n in −126..=127, by its bits.
#[inline(always)]
fn pow2(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) << 23) as u32)
}

/// eˣ − 1 for `f32`, without branches: the Taylor series up to x⁸ where |x| < 0.5 (no
/// cancellation), and eˣ − 1 elsewhere. kernels/lib/math.wgsl has its twin.
#[inline(always)]
pub fn expm1_f32(x: f32) -> f32 {
    const NEAR: [f32; 7] =
        [1.0 / 40_320.0, 1.0 / 5_040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5];
    let near = x + x * x * NEAR.iter().fold(0.0, |p, c| p * x + c);
    if x.abs() < 0.5 { near } else { exp_f32(x) - 1.0 }
}

/// tanh for `f32`: an odd polynomial where |x| < 0.625 (no cancellation), and
/// 1 − 2/(e^{2|x|} + 1) elsewhere.
#[inline(always)]
pub fn tanh_f32(x: f32) -> f32 {
    let a = x.abs();
    let big = 1.0 - 2.0 / (exp_f32(2.0 * if a > 15.0 { 15.0 } else { a }) + 1.0);
    let s = x * x;
    let mut p = -5.703_949e-3_f32;
    p = p * s + 2.063_909e-2;
    p = p * s - 5.373_971e-2;
    p = p * s + 0.133_314_49;
    p = p * s - 0.333_332_8;
    let small = a + a * s * p;
    let magnitude = if a < 0.625 { small } else { big };
    let signed = if x < 0.0 { -magnitude } else { magnitude };
    if x.is_nan() { x } else { signed }
}

/// erf for `f32`, without branches: the Maclaurin series up to x¹⁷ where |x| < 0.75, and
/// 1 − t·P(t)·e^{−x²} with t = 1/(1 + |x|/2) elsewhere (the Chebyshev fit of Press et al.,
/// *Numerical Recipes*, "erfcc"). kernels/lib/math.wgsl has its twin.
#[inline(always)]
pub fn erf_f32(x: f32) -> f32 {
    const NEAR: [f32; 8] = [
        1.0 / 685_440.0,
        -1.0 / 75_600.0,
        1.0 / 9_360.0,
        -1.0 / 1_320.0,
        1.0 / 216.0,
        -1.0 / 42.0,
        0.1,
        -1.0 / 3.0,
    ];
    const FAR: [f32; 9] = [
        0.170_872_77,
        -0.822_152_23,
        1.488_515_9,
        -1.135_204,
        0.278_868_07,
        -0.186_288_06,
        0.096_784_18,
        0.374_091_96,
        1.000_023_7,
    ];
    let (a, s) = (x.abs(), x * x);
    let near = NEAR.iter().fold(0.0, |p, c| p * s + c);
    let near = std::f32::consts::FRAC_2_SQRT_PI * a * (1.0 + near * s);
    let b = if a > 9.0 { 9.0 } else { a };
    let t = 1.0 / (1.0 + 0.5 * b);
    let far = FAR.iter().fold(0.0, |p, c| p * t + c);
    let far = 1.0 - t * exp_f32(-b * b - 1.265_512_2 + t * far);
    let magnitude = if a < 0.75 { near } else { far };
    let signed = if x < 0.0 { -magnitude } else { magnitude };
    if x.is_nan() { x } else { signed }
}

/// erf for `f64`: the Maclaurin series where |x| < 2.5 and the continued fraction of erfc
/// elsewhere (Abramowitz & Stegun 7.1.6 and 7.1.14); relative error below 1e-14.
pub fn erf_f64(x: f64) -> f64 {
    let a = x.abs();
    let value = if a < 2.5 {
        let s = a * a;
        let (mut term, mut sum, mut n) = (a, a, 0.0);
        while term > sum * 1e-17 {
            n += 1.0;
            term *= 2.0 * s / (2.0 * n + 1.0);
            sum += term;
        }
        sum * (-s).exp() * std::f64::consts::FRAC_2_SQRT_PI
    } else if a < 6.0 {
        let mut tail = 0.0;
        for k in (1..60).rev() {
            tail = 0.5 * k as f64 / (a + tail);
        }
        1.0 - (-a * a).exp() / ((a + tail) * std::f64::consts::PI.sqrt())
    } else {
        1.0
    };
    if x.is_nan() { x } else { value.copysign(x) }
}
