//! The generic checks of every op: gradients against finite differences in double precision, the
//! CPU in single precision and the GPU against the CPU in double precision. An op is checked by
//! standing in the table; a file of an op that is not in it fails here.

mod common;

use std::collections::BTreeSet;

use libtest_mimic::{Arguments, Failed, Trial as Test};
use wootz::device::Executor;
use wootz::device::agreement::{TOLERANCE, Trial, difference};
use wootz::device::gpu::{self, Options};
use wootz::ops::{Case, Target, families};

/// Largest accepted relative error of a gradient against central differences.
const GRADIENT_TOLERANCE: f64 = 1e-6;

fn main() {
    let arguments = Arguments::from_args();
    let mut tests = vec![Test::test("every_op_file_is_in_the_table", every_op_file_is_in_the_table)];
    for family in families() {
        let cases = (family.cases)();
        assert!(!cases.is_empty(), "`{}` has no cases", family.name);
        for case in cases {
            let name = format!("{}::{}", family.name, case.name);
            let (a, b, c) = (case.clone(), case.clone(), case);
            tests.push(Test::test(format!("gradient::{name}"), move || gradient(&a)));
            tests.push(Test::test(format!("cpu::{name}"), move || cpu(&b)));
            tests.push(Test::test(format!("gpu::{name}"), move || on_gpu(&c)));
        }
    }
    libtest_mimic::run(&arguments, tests).exit();
}

/// Files of src/ops that hold no op: the trait, and what ops are written with.
const NOT_OPS: [&str; 6] = ["cpu", "launch", "mod", "philox", "real", "update"];

fn every_op_file_is_in_the_table() -> Result<(), Failed> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/ops");
    let mut files = BTreeSet::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        files.insert(path.file_stem().unwrap_or_default().to_string_lossy().into_owned());
    }
    NOT_OPS.iter().for_each(|name| _ = files.remove(*name));
    let table: BTreeSet<String> = families().iter().map(|family| family.name.to_owned()).collect();
    if files != table {
        return Err(format!("files {files:?}\ntable {table:?}").into());
    }
    Ok(())
}

fn gradient(case: &Case) -> Result<(), Failed> {
    let trial = Trial::new(case)?;
    match trial.gradient_error() {
        Some(error) if error > GRADIENT_TOLERANCE => Err(format!("the gradient is off by {error:.2e}").into()),
        None if case.differentiable => Err("nothing was differentiated".into()),
        _ => Ok(()),
    }
}

fn close(found: &[Vec<f32>], trial: &Trial) -> Result<(), Failed> {
    let error = difference(found, &trial.reference());
    if error > TOLERANCE {
        return Err(format!("differs from double precision by {error:.2e}").into());
    }
    Ok(())
}

/// In single precision, as a graph and through the executor with reused memory: the same bits.
fn cpu(case: &Case) -> Result<(), Failed> {
    let trial = Trial::new(case)?;
    let plain = trial.cpu();
    close(&plain, &trial)?;
    let planned = trial.on_cpu_executor()?;
    close(&planned, &trial)
}

/// With bounds checks, twice over memory full of NaNs, and without: right, and the same bits.
fn on_gpu(case: &Case) -> Result<(), Failed> {
    let trial = Trial::new(case)?;
    let mut found: Vec<Vec<Vec<f32>>> = Vec::new();
    for checked in [true, false] {
        let device = gpu::open(&common::gpu())?;
        let plan = trial.plan(&Target::Gpu(device.limits()))?;
        let mut executor = device.prepare(&plan, Options { checked, ..Options::default() })?;
        found.push(trial.on(&mut executor, &plan, true)?);
        found.push(trial.on(&mut executor, &plan, false)?);
        assert_eq!(executor.usage().pages.iter().map(|(_, b)| b).sum::<u64>(), plan.pages.iter().map(|(_, b)| b).sum::<u64>());
    }
    close(&found[0], &trial)?;
    let bits = |run: &Vec<Vec<f32>>| -> Vec<Vec<u32>> { run.iter().map(|v| v.iter().map(|x| x.to_bits()).collect()).collect() };
    if found.iter().any(|run| bits(run) != bits(&found[0])) {
        return Err("repeats or bounds checks change bits".into());
    }
    Ok(())
}
