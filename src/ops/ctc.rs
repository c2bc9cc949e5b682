//! Connectionist temporal classification (Graves et al. 2006): −log of the probability that the
//! classes of all time steps, repeats and blanks taken out, read as the labels. The forward and the
//! backward variables give the loss and its gradient together, so both are computed at once.

use crate::cpu_by_eval;
use crate::graph::{DType, Graph, ShapeError, TensorType};
use crate::ops::cpu::{fold_lanes, par_rows};
use crate::ops::launch::fold_groups;
use crate::ops::map;
use crate::ops::{
    Bind, Call, Case, Domain, GpuCall, Grad, GradCall, Kernel, Launch, Op, Real, ScratchCall,
};

/// Operands: logits `[batch, time, classes]` and labels i32 `[batch, labels]`, each row ended by its
/// first blank or negative number. Results: the loss of each sample over its number of labels,
/// `[batch]`, and its gradient with respect to the logits. A label that is no class gives NaN.
#[derive(Clone, Debug, PartialEq)]
pub struct Ctc {
    /// The class that stands for no label.
    pub blank: i32,
    /// Whether a sample whose labels do not fit into its time counts as 0 instead of as infinite.
    pub zero_infinity: bool,
}

/// Stands for the logarithm of 0.
const NEVER: f64 = -1e30;

/// log Σ eˣ of three.
fn log_sum<R: Real>(a: R, b: R, c: R) -> R {
    let top = a.max(b).max(c);
    if top < R::of(NEVER / 2.0) {
        return R::of(NEVER);
    }
    top + ((a - top).exp() + (b - top).exp() + (c - top).exp()).ln()
}

/// Extents, and where things are in a sample's scratch: for each step and state the log of the
/// paths through it, the backward variables of two steps, log Σ eˣ of each step, the loss.
#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    time: usize,
    classes: usize,
    labels: usize,
}

impl Sizes {
    fn of(ins: &[&TensorType]) -> Self {
        let d = ins[0].shape.dims();
        Sizes { batch: d[0], time: d[1], classes: d[2], labels: ins[1].shape.last() }
    }

    /// States of the longest sample: its labels with blanks around them.
    fn states(&self) -> usize {
        2 * self.labels + 1
    }

    fn scratch(&self) -> usize {
        self.time * self.states() + 2 * self.states() + self.time + 1
    }
}

/// One sample.
struct Sample<'a, R> {
    x: &'a [R],
    labels: &'a [i32],
    blank: usize,
    sizes: Sizes,
}

impl<R: Real> Sample<'_, R> {
    fn states(&self) -> usize {
        2 * self.labels.len() + 1
    }

    /// The class of a state.
    fn class(&self, state: usize) -> usize {
        if state.is_multiple_of(2) { self.blank } else { self.labels[state / 2] as usize }
    }

    /// Whether a path may go from `state` to the next but one.
    fn skips(&self, state: usize) -> bool {
        state % 2 == 1 && state + 2 < self.states() && self.class(state) != self.class(state + 2)
    }

    /// Fills the scratch.
    fn run(&self, scratch: &mut [R]) {
        let Sizes { time, classes, .. } = self.sizes;
        let (wide, states) = (self.sizes.states(), self.states());
        let never = R::of(NEVER);
        let (paths, rest) = scratch.split_at_mut(time * wide);
        let (back, rest) = rest.split_at_mut(2 * wide);
        let (totals, loss) = rest.split_at_mut(time);
        for (t, total) in totals.iter_mut().enumerate() {
            let x = &self.x[t * classes..(t + 1) * classes];
            let top = x.iter().copied().fold(R::NEG_INFINITY, R::max);
            *total = top + fold_lanes(classes, |c| (x[c] - top).exp()).ln();
        }
        let log_p = |t: usize, s: usize| self.x[t * classes + self.class(s)] - totals[t];
        for t in 0..time {
            for s in 0..states {
                let before = |step: usize, open: bool| match (t, s.checked_sub(step)) {
                    (1.., Some(from)) if open => paths[(t - 1) * wide + from],
                    _ => never,
                };
                let skip = s >= 2 && self.skips(s - 2);
                let mut sum = log_sum(before(0, true), before(1, true), before(2, skip));
                if t == 0 && s < 2 {
                    sum = R::ZERO;
                }
                paths[t * wide + s] = (sum + log_p(t, s)).max(never);
            }
        }
        let end = |back: usize| match states.checked_sub(back) {
            Some(s) => paths[(time - 1) * wide + s],
            None => never,
        };
        loss[0] = -log_sum(end(1), end(2), never);
        for t in (0..time).rev() {
            let (now, next) = ((t % 2) * wide, ((t + 1) % 2) * wide);
            for s in 0..states {
                let after = |step: usize, open: bool| {
                    let there = t + 1 < time && s + step < states && open;
                    if there { back[next + s + step] } else { never }
                };
                let mut sum = log_sum(after(0, true), after(1, true), after(2, self.skips(s)));
                if t + 1 == time && s + 2 >= states {
                    sum = R::ZERO;
                }
                // Both variables hold this step's probability: it is in their product once.
                back[now + s] = (sum + log_p(t, s)).max(never);
                paths[t * wide + s] += sum;
            }
        }
    }
}

impl Ctc {
    /// A row of labels up to its end.
    fn labels<'a>(&self, row: &'a [i32]) -> &'a [i32] {
        let end = row.iter().position(|label| *label < 0 || *label == self.blank);
        &row[..end.unwrap_or(row.len())]
    }

    fn eval<R: Real>(&self, call: Call<'_, R>) {
        let (x, targets) = (call.f(0), call.i(1));
        let sizes = Sizes::of(call.in_types);
        let Sizes { batch, time, classes, labels } = sizes;
        let each = sizes.scratch();
        let blank = self.blank as usize;
        let labels_of = |n: usize| self.labels(&targets[n * labels..(n + 1) * labels]);
        let is_known = |n: usize| labels_of(n).iter().all(|label| (*label as usize) < classes);
        let sample = |n: usize| {
            let x = &x[n * time * classes..(n + 1) * time * classes];
            Sample { x, labels: labels_of(n), blank, sizes }
        };
        let scratch = &mut call.scratch[..batch * each];
        par_rows(scratch, each, 1, |n, scratch| {
            if is_known(n) {
                sample(n).run(scratch);
            }
        });
        let scratch = &*scratch;
        let [loss, dx] = call.outs else { unreachable!("two results") };
        let count = |n: usize| R::of(labels_of(n).len().max(1) as f64);
        let fits = |n: usize| scratch[(n + 1) * each - 1] < R::of(-NEVER / 2.0);
        for (n, loss) in loss.iter_mut().enumerate() {
            *loss = match (is_known(n), is_known(n) && fits(n)) {
                (false, _) => R::of(f64::NAN),
                (true, true) => scratch[(n + 1) * each - 1] / count(n),
                (true, false) if self.zero_infinity => R::ZERO,
                (true, false) => R::of(f64::INFINITY),
            };
        }
        par_rows(dx, time * classes, 1, |n, dx| {
            dx.fill(R::ZERO);
            if !is_known(n) || !fits(n) {
                return;
            }
            let sample = sample(n);
            let own = &scratch[n * each..(n + 1) * each];
            let loss = own[each - 1];
            for (t, dx) in dx.chunks_exact_mut(classes).enumerate() {
                let total = own[each - 1 - time + t];
                let x = &sample.x[t * classes..(t + 1) * classes];
                dx.iter_mut().zip(x).for_each(|(d, x)| *d = (*x - total).exp());
                for s in 0..sample.states() {
                    dx[sample.class(s)] -= (own[t * sizes.states() + s] + loss).exp();
                }
                dx.iter_mut().for_each(|d| *d /= count(n));
            }
        });
    }
}

impl Op for Ctc {
    fn name(&self) -> &'static str {
        "ctc"
    }

    fn infer(&self, ins: &[&TensorType]) -> Result<Vec<TensorType>, String> {
        let (x, labels) = (ins[0].shape.dims(), ins[1].shape.dims());
        let fits = x.len() == 3 && labels.len() == 2 && x[0] == labels[0];
        if !fits || ins[1].dtype != DType::I32 || self.blank < 0 || self.blank as usize >= x[2] {
            return Err(format!(
                "expected logits [batch, time, classes] with the blank {} among the classes, and \
                 i32 labels [batch, labels], got {} and {}",
                self.blank, ins[0], ins[1]
            ));
        }
        Ok(vec![TensorType::f32([x[0]]), TensorType::f32(ins[0].shape.clone())])
    }

    fn grad(&self, graph: &mut Graph, call: &GradCall<'_>) -> Result<Vec<Grad>, ShapeError> {
        let labels = Grad::Stops("labels are class indices");
        let (Some(d_loss), None) = (call.d_outs[0], call.d_outs[1]) else {
            return Ok(vec![Grad::Stops("second derivatives are not built"), labels]);
        };
        let batch = graph.shape(d_loss).elements();
        let d_loss = graph.reshape(d_loss, [batch, 1, 1])?;
        Ok(vec![Grad::Flows(map::mul(graph, call.outs[1], d_loss)?), labels])
    }

    fn flops(&self, ins: &[&TensorType], _outs: &[&TensorType]) -> u64 {
        let sizes = Sizes::of(ins);
        (sizes.batch * sizes.time * (6 * sizes.classes + 24 * sizes.states())) as u64
    }

    cpu_by_eval!();

    fn gpu(&self, call: &GpuCall<'_>) -> Vec<Launch> {
        let sizes = Sizes::of(call.ins);
        let Sizes { batch, time, classes, labels } = sizes;
        let mut dims: Vec<u32> =
            [batch, time, classes, labels].iter().map(|size| *size as u32).collect();
        dims.extend([self.blank as u32, u32::from(self.zero_infinity)]);
        let binds = vec![Bind::In(0), Bind::In(1), Bind::Scratch, Bind::Out(0), Bind::Out(1)];
        vec![Launch { kernel: Kernel::file("ctc", "ctc"), dims, binds, grid: fold_groups(batch) }]
    }

    fn scratch(&self, call: &ScratchCall<'_>) -> usize {
        let sizes = Sizes::of(call.ins);
        sizes.batch * sizes.scratch()
    }
}

/// Uses that the generic checks run over.
pub fn cases() -> Vec<Case> {
    let case = |name: &'static str, dims: [usize; 3], labels: usize, ids: Domain, blank: i32| {
        let ins = vec![
            (TensorType::f32(dims), Domain::Normal),
            (TensorType::i32([dims[0], labels]), ids),
        ];
        Case::graph(name, ins, move |graph, ins| {
            let op = Ctc { blank, zero_infinity: true };
            Ok(vec![graph.apply(std::sync::Arc::new(op), ins)?[0]])
        })
    };
    vec![
        case("one", [1, 1, 2], 1, Domain::Index(1), 1),
        case("short", [3, 7, 5], 3, Domain::Index(4), 4),
        // Blanks among the labels end them, some at once.
        case("ended", [11, 13, 5], 4, Domain::Index(5), 0),
        case("padded", [5, 17, 7], 5, Domain::IndexOr(6, -100), 6),
        case("does_not_fit", [3, 2, 5], 4, Domain::Index(4), 4),
        case("long", [2, 71, 3], 33, Domain::Index(2), 2),
        case("many_classes", [2, 5, 301], 2, Domain::Index(300), 300),
    ]
}
