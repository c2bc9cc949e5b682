// Functions that stay accurate and finite where the built-in ones may not; NaN stays NaN.

// By bits: comparisons of a number with itself are folded away under fast math.
fn is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

// The larger; NaN where a is. Drivers may turn a plain comparison and choice into their own maximum,
// which drops NaN.
fn safe_max(a: f32, b: f32) -> f32 {
    return select(select(a, b, a < b), a, is_nan(a));
}

// The smaller; NaN where a is.
fn safe_min(a: f32, b: f32) -> f32 {
    return select(select(a, b, b < a), a, is_nan(a));
}

// tanh without overflow: 1 − 2/(e^{2|x|} + 1), and the odd polynomial near zero.
fn safe_tanh(x: f32) -> f32 {
    let a = abs(x);
    if (a < 0.625) {
        let s = x * x;
        var p = -5.703949e-3;
        p = p * s + 2.0639089e-2;
        p = p * s - 5.373971e-2;
        p = p * s + 0.13331449;
        p = p * s - 0.3333328;
        return x + x * s * p;
    }
    let y = 1.0 - 2.0 / (exp(2.0 * min(a, 15.0)) + 1.0);
    return select(select(y, -y, x < 0.0), x, is_nan(x));
}

// eˣ − 1: the Taylor series up to x⁸ near zero.
fn safe_expm1(x: f32) -> f32 {
    if (abs(x) < 0.5) {
        var p = 1.0 / 40320.0;
        p = 1.0 / 5040.0 + p * x;
        p = 1.0 / 720.0 + p * x;
        p = 1.0 / 120.0 + p * x;
        p = 1.0 / 24.0 + p * x;
        p = 1.0 / 6.0 + p * x;
        p = 0.5 + p * x;
        return x + x * x * p;
    }
    return select(exp(x) - 1.0, x, is_nan(x));
}

// ln(1 + x): 2·artanh(x/(2 + x)) as a series near zero.
fn safe_log1p(x: f32) -> f32 {
    if (abs(x) < 0.5) {
        let t = x / (2.0 + x);
        let s = t * t;
        var p = 1.0 / 15.0;
        p = 1.0 / 13.0 + p * s;
        p = 1.0 / 11.0 + p * s;
        p = 1.0 / 9.0 + p * s;
        p = 1.0 / 7.0 + p * s;
        p = 0.2 + p * s;
        p = 1.0 / 3.0 + p * s;
        return 2.0 * (t + t * s * p);
    }
    return select(log(1.0 + x), x, is_nan(x));
}

// 1/(1 + e⁻ˣ): the exponential is only ever of a negative number.
fn safe_sigmoid(x: f32) -> f32 {
    let e = exp(-min(abs(x), 88.0));
    return select(select(1.0 / (1.0 + e), e / (1.0 + e), x < 0.0), x, is_nan(x));
}

// erf: the Maclaurin series up to x¹⁷ near zero; elsewhere 1 − t·P(t)·e^{−x²} with
// t = 1/(1 + |x|/2) (the Chebyshev fit of Press et al., Numerical Recipes, "erfcc").
fn safe_erf(x: f32) -> f32 {
    let a = abs(x);
    if (a < 0.75) {
        let s = x * x;
        var p = 1.0 / 685440.0;
        p = -1.0 / 75600.0 + p * s;
        p = 1.0 / 9360.0 + p * s;
        p = -1.0 / 1320.0 + p * s;
        p = 1.0 / 216.0 + p * s;
        p = -1.0 / 42.0 + p * s;
        p = 0.1 + p * s;
        p = -1.0 / 3.0 + p * s;
        return 1.1283791670955126 * x * (1.0 + p * s);
    }
    let b = min(a, 9.0);
    let t = 1.0 / (1.0 + 0.5 * b);
    var p = 0.17087277;
    p = -0.82215223 + p * t;
    p = 1.48851587 + p * t;
    p = -1.13520398 + p * t;
    p = 0.27886807 + p * t;
    p = -0.18628806 + p * t;
    p = 0.09678418 + p * t;
    p = 0.37409196 + p * t;
    p = 1.00002368 + p * t;
    let y = 1.0 - t * exp(-b * b - 1.26551223 + t * p);
    return select(select(y, -y, x < 0.0), x, is_nan(x));
}
