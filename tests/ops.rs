//! The generic checks of every op: gradients against finite differences in double precision, the
//! CPU in single precision and the GPU against the CPU in double precision. An op is checked by
//! standing in the table; a file of an op that is not in it fails here.

mod common;

use std::collections::BTreeSet;
use std::sync::{Mutex, OnceLock, PoisonError};

use libtest_mimic::{Arguments, Failed, Trial as Test};
use wootz::device::Executor;
use wootz::device::agreement::{HALF_TOLERANCE, TOLERANCE, Trial, difference};
use wootz::device::gpu::{self, GpuDevice, Options};
use wootz::ops::{Case, GpuLimits, Target, families};
use wootz::plan::Precision;

/// Largest accepted relative error of a gradient against central differences.
const GRADIENT_TOLERANCE: f64 = 1e-6;

fn main() {
    let arguments = Arguments::from_args();
    let mut tests =
        vec![Test::test("every_op_file_is_in_the_table", every_op_file_is_in_the_table)];
    for family in families() {
        let cases = (family.cases)();
        assert!(!cases.is_empty(), "`{}` has no cases", family.name);
        for case in cases {
            let name = format!("{}::{}", family.name, case.name);
            let (a, b, c, d) = (case.clone(), case.clone(), case.clone(), case);
            tests.push(Test::test(format!("gradient::{name}"), move || gradient(&a)));
            tests.push(Test::test(format!("cpu::{name}"), move || cpu(&b)));
            tests.push(Test::test(format!("gpu::{name}"), move || on_gpu(&c, Precision::Single)));
            // The program of the update is in single precision whatever the plan's is.
            if family.name != "update" {
                let half = move || on_gpu(&d, Precision::Mixed);
                tests.push(Test::test(format!("half::{name}"), half));
            }
        }
    }
    libtest_mimic::run(&arguments, tests).exit();
}

/// Files of src/ops that hold no op: the trait, and what ops are written with.
const NOT_OPS: [&str; 7] = ["cpu", "launch", "mod", "philox", "real", "selection", "tile"];

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
        Some(error) if error > GRADIENT_TOLERANCE => {
            Err(format!("the gradient is off by {error:.2e}").into())
        }
        None if case.differentiable => Err("nothing was differentiated".into()),
        _ => Ok(()),
    }
}

fn close(found: &[Vec<f32>], trial: &Trial) -> Result<(), Failed> {
    close_in(found, trial, Precision::Single)
}

fn close_in(found: &[Vec<f32>], trial: &Trial, precision: Precision) -> Result<(), Failed> {
    let error = difference(found, &trial.reference());
    let tolerance = match precision {
        Precision::Single => TOLERANCE,
        Precision::Mixed => HALF_TOLERANCE,
    };
    if error > tolerance {
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

/// The device, opened once: drivers take long to open one, and few open many at once.
fn open() -> Result<GpuDevice, Failed> {
    static DEVICE: OnceLock<Result<GpuDevice, String>> = OnceLock::new();
    let device =
        DEVICE.get_or_init(|| gpu::open(&common::gpu()).map_err(|error| error.to_string()));
    Ok(device.clone()?)
}

/// With bounds checks and without, over memory full of NaNs and again: right, and each the same
/// bits when repeated. (The two need not agree in bits: compilers contract their sums otherwise.)
///
/// In mixed precision the operands are numbers of half precision, so that what is lost is lost by
/// the op and its gradient.
fn on_gpu(case: &Case, precision: Precision) -> Result<(), Failed> {
    let trial = match precision {
        Precision::Single => Trial::new(case)?,
        Precision::Mixed => Trial::new(case)?.rounded_to_half(),
    };
    // One at a time: waiting for a device from several threads is a race inside of wgpu.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for checked in [true, false] {
        let device = open()?;
        // Kernels for devices that cannot store parts of vectors are run too.
        let limits = GpuLimits { stores_parts: !checked, ..device.limits() };
        let plan = trial.plan(&Target::Gpu(limits), precision)?;
        let mut executor = device.prepare(&plan, Options { checked, ..Options::default() })?;
        let first = trial.on(&mut executor, &plan, true)?;
        close_in(&first, &trial, precision)?;
        if bits(&first) != bits(&trial.on(&mut executor, &plan, false)?) {
            return Err("a repeat gives other bits".into());
        }
        assert_eq!(
            executor.usage().pages.iter().map(|(_, b)| b).sum::<u64>(),
            plan.pages.iter().map(|(_, b)| b).sum::<u64>()
        );
    }
    Ok(())
}

fn bits(run: &[Vec<f32>]) -> Vec<Vec<u32>> {
    run.iter().map(|values| values.iter().map(|v| v.to_bits()).collect()).collect()
}
