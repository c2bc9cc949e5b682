//! Scalar code: what one element of an elementwise map computes, in single-assignment form.
//!
//! Layers write it with [`Code`]'s builder methods; gradients are derived from it
//! ([`Code::derivative`]); fusion splices one into another ([`Code::splice`]).

use std::collections::HashMap;

/// A scalar value: an index into [`Code::instrs`].
pub type Reg = u32;

/// A function of one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unary {
    /// −x
    Neg,
    /// eˣ
    Exp,
    /// eˣ − 1, accurate near 0.
    Expm1,
    /// ln x
    Log,
    /// ln(1 + x), accurate near 0.
    Log1p,
    /// √x
    Sqrt,
    /// 1/x
    Recip,
    /// tanh x
    Tanh,
    /// The error function.
    Erf,
    /// 1/(1 + e⁻ˣ)
    Sigmoid,
    /// |x|
    Abs,
}

/// A function of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binary {
    /// a + b
    Add,
    /// a − b
    Sub,
    /// a · b
    Mul,
    /// a / b
    Div,
    /// The larger.
    Max,
    /// The smaller.
    Min,
    /// 1 where a > b, else 0.
    Greater,
}

/// One instruction. Operands are earlier registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Instr {
    /// The map's input, by index, at this element.
    Input(u32),
    /// A constant, by its bits.
    Const(u32),
    /// A function of one register.
    Unary(Unary, Reg),
    /// A function of two registers.
    Binary(Binary, Reg, Reg),
    /// A uniform number in [0, 1): Philox of (seed, step, micro-batch, this stream, the element's
    /// flat index in the map's output). The same stream gives the same numbers again, so masks are
    /// recomputed and never stored.
    Random(u32),
}

/// Scalar code with one or more results.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Code {
    /// Instructions in order.
    pub instrs: Vec<Instr>,
    /// The results, one for each output of the map.
    pub outs: Vec<Reg>,
}

impl Code {
    /// Empty code.
    pub fn new() -> Self {
        Code::default()
    }

    /// Code of one result, written by `build`.
    pub fn of(build: impl FnOnce(&mut Code) -> Reg) -> Self {
        let mut code = Code::new();
        let out = build(&mut code);
        code.outs.push(out);
        code
    }

    /// Appends an instruction, or finds it if it is there already. Arithmetic with 0 and 1 that
    /// changes no bit of a finite result is folded away.
    pub fn push(&mut self, instr: Instr) -> Reg {
        if let Some(same) = self.simplified(instr) {
            return same;
        }
        if let Some(found) = self.instrs.iter().position(|i| *i == instr) {
            return found as Reg;
        }
        self.instrs.push(instr);
        (self.instrs.len() - 1) as Reg
    }

    fn simplified(&self, instr: Instr) -> Option<Reg> {
        let is = |reg: Reg, value: f32| self.instrs[reg as usize] == Instr::Const(value.to_bits());
        match instr {
            Instr::Binary(Binary::Mul, a, b) if is(b, 1.0) => Some(a),
            Instr::Binary(Binary::Mul, a, b) if is(a, 1.0) => Some(b),
            Instr::Binary(Binary::Div, a, b) if is(b, 1.0) => Some(a),
            Instr::Binary(Binary::Add, a, b) if is(b, 0.0) => Some(a),
            Instr::Binary(Binary::Add, a, b) if is(a, 0.0) => Some(b),
            _ => None,
        }
    }

    /// Input `index`.
    pub fn input(&mut self, index: usize) -> Reg {
        self.push(Instr::Input(index as u32))
    }

    /// A constant.
    pub fn constant(&mut self, value: f32) -> Reg {
        self.push(Instr::Const(value.to_bits()))
    }

    /// `f(a)`.
    pub fn unary(&mut self, f: Unary, a: Reg) -> Reg {
        self.push(Instr::Unary(f, a))
    }

    /// `f(a, b)`.
    pub fn binary(&mut self, f: Binary, a: Reg, b: Reg) -> Reg {
        self.push(Instr::Binary(f, a, b))
    }

    /// a + b.
    pub fn add(&mut self, a: Reg, b: Reg) -> Reg {
        self.binary(Binary::Add, a, b)
    }

    /// a − b.
    pub fn sub(&mut self, a: Reg, b: Reg) -> Reg {
        self.binary(Binary::Sub, a, b)
    }

    /// a · b.
    pub fn mul(&mut self, a: Reg, b: Reg) -> Reg {
        self.binary(Binary::Mul, a, b)
    }

    /// a · constant.
    pub fn scale(&mut self, a: Reg, by: f32) -> Reg {
        let by = self.constant(by);
        self.mul(a, by)
    }

    /// a + constant.
    pub fn offset(&mut self, a: Reg, by: f32) -> Reg {
        let by = self.constant(by);
        self.add(a, by)
    }

    /// 1 where a > b, else 0.
    pub fn greater(&mut self, a: Reg, b: Reg) -> Reg {
        self.binary(Binary::Greater, a, b)
    }

    /// Number of inputs that the code reads: one more than the highest index.
    pub fn inputs(&self) -> usize {
        self.instrs
            .iter()
            .map(|i| if let Instr::Input(index) = i { *index as usize + 1 } else { 0 })
            .max()
            .unwrap_or(0)
    }

    /// Whether it draws random numbers: such code is bound to the shape it was written for.
    pub fn is_random(&self) -> bool {
        self.instrs.iter().any(|i| matches!(i, Instr::Random(_)))
    }

    /// Arithmetic instructions: the FLOPs of one element, counting every function as one.
    pub fn arithmetic(&self) -> usize {
        self.instrs.iter().filter(|i| matches!(i, Instr::Unary(..) | Instr::Binary(..))).count()
    }

    /// Appends `other`, its input `i` standing for register `inputs[i]` of this code; returns its
    /// results' registers.
    pub fn splice(&mut self, other: &Code, inputs: &[Reg]) -> Vec<Reg> {
        let mut to: Vec<Reg> = Vec::with_capacity(other.instrs.len());
        for instr in &other.instrs {
            let at = |reg: &Reg| to[*reg as usize];
            let new = match instr {
                Instr::Input(index) => inputs[*index as usize],
                Instr::Const(_) | Instr::Random(_) => self.push(*instr),
                Instr::Unary(f, a) => {
                    let a = at(a);
                    self.unary(*f, a)
                }
                Instr::Binary(f, a, b) => {
                    let (a, b) = (at(a), at(b));
                    self.binary(*f, a, b)
                }
            };
            to.push(new);
        }
        other.outs.iter().map(|out| to[*out as usize]).collect()
    }

    /// Drops instructions that no result needs.
    #[must_use]
    pub fn pruned(&self) -> Code {
        let mut live = vec![false; self.instrs.len()];
        self.outs.iter().for_each(|out| live[*out as usize] = true);
        for index in (0..self.instrs.len()).rev() {
            if !live[index] {
                continue;
            }
            match self.instrs[index] {
                Instr::Unary(_, a) => live[a as usize] = true,
                Instr::Binary(_, a, b) => {
                    live[a as usize] = true;
                    live[b as usize] = true;
                }
                _ => {}
            }
        }
        let mut code = Code::new();
        let mut to = vec![0; self.instrs.len()];
        for (index, instr) in self.instrs.iter().enumerate().filter(|(i, _)| live[*i]) {
            to[index] = code.push(match *instr {
                Instr::Unary(f, a) => Instr::Unary(f, to[a as usize]),
                Instr::Binary(f, a, b) => Instr::Binary(f, to[a as usize], to[b as usize]),
                leaf => leaf,
            });
        }
        code.outs = self.outs.iter().map(|out| to[*out as usize]).collect();
        code
    }

    /// The gradient with respect to input `wrt` of a code with one result: code whose inputs are
    /// this code's, followed by the result's cotangent. Reverse accumulation over the
    /// instructions; `Greater`, `Max` and `Min` pass the gradient to the side that was taken
    /// (to b where they are equal), so relu has gradient 0 at 0 as in PyTorch.
    ///
    /// Where fewer of the inputs are needed if the result itself is at hand (relu, tanh, sigmoid),
    /// the code reads the result as one more input after the cotangent.
    #[must_use]
    pub fn derivative(&self, wrt: usize, inputs: usize) -> Code {
        let plain = self.plain_derivative(wrt, inputs);
        let mut by_result = plain.clone();
        let result = self.outs[0] as usize;
        if matches!(self.instrs[result], Instr::Unary(..) | Instr::Binary(..)) {
            by_result.instrs[result] = Instr::Input(inputs as u32 + 1);
        }
        let by_result = by_result.pruned();
        let reads = |code: &Code| {
            code.pruned()
                .instrs
                .iter()
                .filter(|i| matches!(i, Instr::Input(at) if (*at as usize) < inputs))
                .count()
        };
        if reads(&by_result) < reads(&plain) { by_result } else { plain.pruned() }
    }

    /// The derivative over the instructions of this code, which it begins with.
    fn plain_derivative(&self, wrt: usize, inputs: usize) -> Code {
        let mut code = Code { instrs: self.instrs.clone(), outs: Vec::new() };
        let seed = code.input(inputs);
        let mut grads: HashMap<Reg, Reg> = HashMap::from([(self.outs[0], seed)]);
        let mut total = None;
        for index in (0..self.instrs.len()).rev() {
            let reg = index as Reg;
            let Some(d) = grads.get(&reg).copied() else { continue };
            for (operand, part) in code.local_gradients(self.instrs[index], reg, d) {
                let sum = match grads.get(&operand) {
                    Some(old) => code.add(*old, part),
                    None => part,
                };
                grads.insert(operand, sum);
            }
            if self.instrs[index] == Instr::Input(wrt as u32) {
                total = Some(d);
            }
        }
        let out = total.unwrap_or_else(|| code.constant(0.0));
        code.outs = vec![out];
        code
    }

    /// The cotangents that instruction `instr` (whose value is `y`, cotangent `d`) hands to its
    /// operands.
    fn local_gradients(&mut self, instr: Instr, y: Reg, d: Reg) -> Vec<(Reg, Reg)> {
        match instr {
            Instr::Input(_) | Instr::Const(_) | Instr::Random(_) => Vec::new(),
            Instr::Unary(f, a) => vec![(a, self.unary_gradient(f, a, y, d))],
            Instr::Binary(f, a, b) => self.binary_gradient(f, a, b, y, d),
        }
    }

    fn unary_gradient(&mut self, f: Unary, a: Reg, y: Reg, d: Reg) -> Reg {
        let one = self.constant(1.0);
        let slope = match f {
            Unary::Neg => return self.unary(Unary::Neg, d),
            Unary::Exp => y,
            Unary::Expm1 => self.add(y, one),
            Unary::Log => self.unary(Unary::Recip, a),
            Unary::Log1p => {
                let shifted = self.add(a, one);
                self.unary(Unary::Recip, shifted)
            }
            Unary::Sqrt => {
                let half = self.constant(0.5);
                self.binary(Binary::Div, half, y)
            }
            Unary::Recip => {
                let square = self.mul(y, y);
                self.unary(Unary::Neg, square)
            }
            Unary::Tanh => {
                let square = self.mul(y, y);
                self.sub(one, square)
            }
            Unary::Erf => {
                // d/dx erf(x) = 2/√π · e^(−x²)
                let square = self.mul(a, a);
                let minus = self.unary(Unary::Neg, square);
                let bell = self.unary(Unary::Exp, minus);
                self.scale(bell, std::f32::consts::FRAC_2_SQRT_PI)
            }
            Unary::Sigmoid => {
                let rest = self.sub(one, y);
                self.mul(y, rest)
            }
            Unary::Abs => {
                let zero = self.constant(0.0);
                let above = self.greater(a, zero);
                let below = self.greater(zero, a);
                self.sub(above, below)
            }
        };
        self.mul(d, slope)
    }

    fn binary_gradient(&mut self, f: Binary, a: Reg, b: Reg, y: Reg, d: Reg) -> Vec<(Reg, Reg)> {
        match f {
            Binary::Add => vec![(a, d), (b, d)],
            Binary::Sub => vec![(a, d), (b, self.unary(Unary::Neg, d))],
            Binary::Mul => vec![(a, self.mul(d, b)), (b, self.mul(d, a))],
            Binary::Div => {
                let da = self.binary(Binary::Div, d, b);
                let square = self.mul(b, b);
                let ratio = self.binary(Binary::Div, a, square);
                let minus = self.unary(Unary::Neg, ratio);
                vec![(a, da), (b, self.mul(d, minus))]
            }
            Binary::Max => self.choice_gradient(a, b, y, b, d),
            Binary::Min => self.choice_gradient(a, b, b, y, d),
            Binary::Greater => Vec::new(),
        }
    }

    /// `d` to `a` where `big > small`, else to `b`.
    fn choice_gradient(&mut self, a: Reg, b: Reg, big: Reg, small: Reg, d: Reg) -> Vec<(Reg, Reg)> {
        let one = self.constant(1.0);
        let taken = self.greater(big, small);
        let other = self.sub(one, taken);
        vec![(a, self.mul(d, taken)), (b, self.mul(d, other))]
    }
}
