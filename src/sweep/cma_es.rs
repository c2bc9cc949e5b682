//! Evolution strategy with covariance matrix adaptation (Hansen 2016, arXiv:1604.00772), in the
//! unit cube of the keys' places. The state of a generation is computed anew from all trials of
//! those before it.

use super::space::{Draw, Observed, assemble, at, free, place, unit};
use crate::config::sweep::Sweep;

/// The first standard deviation, of a cube of side 1, about its middle.
const FIRST_SIGMA: f64 = 0.3;
/// Tries to draw a point inside the cube before it is moved to its edge.
const TRIES: usize = 32;

/// The values of a trial; it waits for the trials of earlier generations.
pub fn draw(sweep: &Sweep, trial: usize, observed: &[Observed]) -> Draw {
    let keys: Vec<_> = free(sweep).collect();
    let mut state = State::new(keys.len());
    for generation in 0..trial / state.population {
        let numbers = generation * state.population..(generation + 1) * state.population;
        let ranked: Vec<&Observed> =
            observed.iter().filter(|seen| numbers.contains(&seen.number)).collect();
        if ranked.len() < state.population {
            return Draw::Wait;
        }
        let point = |seen: &&Observed| -> Vec<f64> {
            let value = |key: &String| seen.values.get(key);
            let places = keys.iter().map(|(key, p)| value(key).and_then(|v| place(p, v)));
            places.map(|place| place.unwrap_or(0.5)).collect()
        };
        let points: Vec<Vec<f64>> = ranked.iter().map(point).collect();
        state.learn(&points);
    }
    let point = state.draw(sweep.seed, trial);
    let mut next = point.into_iter();
    Draw::Values(assemble(sweep, |_, parameter| at(parameter, next.next().unwrap_or(0.5))))
}

struct State {
    population: usize,
    /// Of the better half, the best first; their sum is 1.
    weights: Vec<f64>,
    mean: Vec<f64>,
    sigma: f64,
    covariance: Vec<Vec<f64>>,
    path_sigma: Vec<f64>,
    path_c: Vec<f64>,
    generation: i32,
}

impl State {
    fn new(n: usize) -> Self {
        let population = 4 + (3.0 * (n as f64).ln()) as usize;
        let raw = |i: usize| ((population as f64 + 1.0) / 2.0).ln() - ((i + 1) as f64).ln();
        let total: f64 = (0..population / 2).map(raw).sum();
        State {
            population,
            weights: (0..population / 2).map(|i| raw(i) / total).collect(),
            mean: vec![0.5; n],
            sigma: FIRST_SIGMA,
            covariance: identity(n),
            path_sigma: vec![0.0; n],
            path_c: vec![0.0; n],
            generation: 0,
        }
    }

    fn draw(&self, seed: u64, trial: usize) -> Vec<f64> {
        let (values, vectors) = eigen(&self.covariance);
        let mut point = Vec::new();
        for attempt in 0..TRIES {
            let z = (0..self.mean.len()).map(|axis| {
                let [a, b] =
                    [0, 1].map(|part| unit(seed, trial, &format!("{attempt}/{axis}/{part}")));
                // Box and Muller (1958).
                (-2.0 * (1.0 - a).ln()).sqrt() * (2.0 * std::f64::consts::PI * b).cos()
            });
            let scaled: Vec<f64> = z.zip(&values).map(|(z, value)| z * value.sqrt()).collect();
            let moved = times(&vectors, &scaled);
            point = self.mean.iter().zip(moved).map(|(m, y)| m + self.sigma * y).collect();
            if point.iter().all(|x| (0.0..=1.0).contains(x)) {
                break;
            }
        }
        point.into_iter().map(|x| x.clamp(0.0, 1.0)).collect()
    }

    /// Takes in a generation's points, the best first.
    fn learn(&mut self, points: &[Vec<f64>]) {
        let n = self.mean.len() as f64;
        let mu_eff = 1.0 / self.weights.iter().map(|w| w * w).sum::<f64>();
        let c_sigma = (mu_eff + 2.0) / (n + mu_eff + 5.0);
        let damping = 1.0 + 2.0 * (((mu_eff - 1.0) / (n + 1.0)).sqrt() - 1.0).max(0.0) + c_sigma;
        let c_c = (4.0 + mu_eff / n) / (n + 4.0 + 2.0 * mu_eff / n);
        let c_1 = 2.0 / ((n + 1.3).powi(2) + mu_eff);
        let c_mu = 2.0 * (mu_eff - 2.0 + 1.0 / mu_eff) / ((n + 2.0).powi(2) + mu_eff);
        let c_mu = c_mu.min(1.0 - c_1);
        let expected = n.sqrt() * (1.0 - 1.0 / (4.0 * n) + 1.0 / (21.0 * n * n));

        let step = |point: &Vec<f64>| -> Vec<f64> {
            point.iter().zip(&self.mean).map(|(x, m)| (x - m) / self.sigma).collect()
        };
        let steps: Vec<Vec<f64>> = points.iter().take(self.weights.len()).map(step).collect();
        let axes = 0..self.mean.len();
        let weighted: Vec<f64> = axes
            .clone()
            .map(|axis| self.weights.iter().zip(&steps).map(|(w, y)| w * y[axis]).sum())
            .collect();

        let (values, vectors) = eigen(&self.covariance);
        let turned = times(&transposed(&vectors), &weighted);
        let shrunk: Vec<f64> = turned.iter().zip(&values).map(|(x, v)| x / v.sqrt()).collect();
        let whitened = times(&vectors, &shrunk);
        let push = (c_sigma * (2.0 - c_sigma) * mu_eff).sqrt();
        blend(&mut self.path_sigma, 1.0 - c_sigma, push, &whitened);
        let length = self.path_sigma.iter().map(|x| x * x).sum::<f64>().sqrt();
        self.generation += 1;
        let settled = (1.0 - (1.0 - c_sigma).powi(2 * self.generation)).sqrt();
        let h = f64::from(u8::from(length / settled < (1.4 + 2.0 / (n + 1.0)) * expected));
        let push = h * (c_c * (2.0 - c_c) * mu_eff).sqrt();
        blend(&mut self.path_c, 1.0 - c_c, push, &weighted);

        let kept = 1.0 - c_1 - c_mu + (1.0 - h) * c_1 * c_c * (2.0 - c_c);
        for (i, row) in self.covariance.iter_mut().enumerate() {
            for (j, c) in row.iter_mut().enumerate() {
                let rank_mu: f64 =
                    self.weights.iter().zip(&steps).map(|(w, y)| w * y[i] * y[j]).sum();
                *c = kept * *c + c_1 * self.path_c[i] * self.path_c[j] + c_mu * rank_mu;
            }
        }
        for axis in axes {
            self.mean[axis] += self.sigma * weighted[axis];
        }
        self.sigma *= (c_sigma / damping * (length / expected - 1.0)).exp();
    }
}

fn blend(path: &mut [f64], keep: f64, push: f64, by: &[f64]) {
    path.iter_mut().zip(by).for_each(|(p, x)| *p = keep * *p + push * x);
}

fn identity(n: usize) -> Vec<Vec<f64>> {
    (0..n).map(|i| (0..n).map(|j| f64::from(u8::from(i == j))).collect()).collect()
}

fn transposed(matrix: &[Vec<f64>]) -> Vec<Vec<f64>> {
    (0..matrix.len()).map(|j| matrix.iter().map(|row| row[j]).collect()).collect()
}

fn times(matrix: &[Vec<f64>], vector: &[f64]) -> Vec<f64> {
    matrix.iter().map(|row| row.iter().zip(vector).map(|(a, x)| a * x).sum()).collect()
}

/// Eigenvalues, at least 10⁻²⁰, and eigenvectors, as columns, of a symmetric matrix, by Jacobi's
/// rotations (Golub and Van Loan 2013, 8.5).
fn eigen(matrix: &[Vec<f64>]) -> (Vec<f64>, Vec<Vec<f64>>) {
    let n = matrix.len();
    let mut a = matrix.to_vec();
    let mut vectors = identity(n);
    for _ in 0..50 {
        let off: f64 =
            (0..n).flat_map(|i| (0..i).map(move |j| (i, j))).map(|(i, j)| a[i][j].powi(2)).sum();
        let size: f64 = (0..n).map(|i| a[i][i].powi(2)).sum();
        if off <= 1e-30 * size {
            break;
        }
        for p in 0..n {
            for q in p + 1..n {
                if a[p][q] == 0.0 {
                    continue;
                }
                let tau = (a[q][q] - a[p][p]) / (2.0 * a[p][q]);
                let t = tau.signum() / (tau.abs() + (1.0 + tau * tau).sqrt());
                let c = 1.0 / (1.0 + t * t).sqrt();
                let s = t * c;
                for row in a.iter_mut().chain(vectors.iter_mut()) {
                    (row[p], row[q]) = (c * row[p] - s * row[q], s * row[p] + c * row[q]);
                }
                let turn = |(x, y): (&f64, &f64)| (c * x - s * y, s * x + c * y);
                (a[p], a[q]) = a[p].iter().zip(&a[q]).map(turn).unzip();
            }
        }
    }
    ((0..n).map(|i| a[i][i].max(1e-20)).collect(), vectors)
}
