//! Every kernel variant that the ops' cases launch is parsed, validated against the floor of every
//! WebGPU device, and translated to MSL, SPIR-V and HLSL.

use std::collections::BTreeSet;

use wootz::device::agreement::Trial;
use wootz::kernels::{FILES, assemble, check};
use wootz::ops::launch::Source;
use wootz::ops::{Case, GpuCall, GpuLimits, Kernel, MatrixUnits, Target, families};
use wootz::plan::Precision;

/// All launches of all cases, gradients included: each kernel with the number of its operands and
/// the words of its dims.
fn variants() -> Vec<(Kernel, usize, usize)> {
    let half = GpuLimits { half: true, ..GpuLimits::FLOOR };
    let on = |units| GpuLimits { matrix: Some(units), ..half.clone() };
    let kinds = [
        (GpuLimits::FLOOR, Precision::Single),
        (GpuLimits { stores_parts: true, ..GpuLimits::FLOOR }, Precision::Single),
        (half.clone(), Precision::Mixed),
        (on(MatrixUnits::Side8), Precision::Mixed),
        (on(MatrixUnits::Side16), Precision::Mixed),
    ];
    let mut all: Vec<(Kernel, usize, usize)> = vec![(Kernel::file("canary", "canary"), 1, 0)];
    let cases: Vec<Case> = families().iter().flat_map(|family| (family.cases)()).collect();
    for (case, (limits, precision)) in
        cases.iter().flat_map(|case| kinds.iter().map(move |kind| (case, kind)))
    {
        let trial = Trial::new(case).expect("the case fits");
        let plan =
            trial.plan(&Target::Gpu(limits.clone()), *precision).expect("the case can be planned");
        for step in &plan.programs[0].steps {
            let (ins, outs): (Vec<_>, Vec<_>) =
                (step.in_types.iter().collect(), step.out_types.iter().collect());
            for launch in step.op.gpu(&GpuCall { ins: &ins, outs: &outs, limits }) {
                assert!(
                    launch.grid.iter().all(|n| (1..=limits.grid).contains(n)),
                    "{}: grid {:?}",
                    launch.kernel.name(),
                    launch.grid
                );
                assert!(
                    launch.binds.len() <= limits.storage_bindings as usize,
                    "{}: {} operands",
                    launch.kernel.name(),
                    launch.binds.len()
                );
                let variant = (launch.kernel, launch.binds.len(), launch.dims.len());
                if !all.contains(&variant) {
                    all.push(variant);
                }
            }
        }
    }
    all
}

#[test]
fn every_variant_is_valid_and_translates() {
    let variants = variants();
    assert!(variants.len() > 50, "only {} variants", variants.len());
    let mut files = BTreeSet::new();
    for (kernel, operands, words) in &variants {
        let assembled = assemble(kernel).expect("a kernel that can be put together");
        let checked = check(&assembled)
            .unwrap_or_else(|error| panic!("{}: {error}\n{}", kernel.name(), assembled.text));
        let (storage, uniforms) = (checked.storage(kernel.entry), checked.uniforms(kernel.entry));
        let last = storage.last().map_or(0, |b| *b as usize - 1);
        assert!(
            last <= *operands,
            "{}: storage bindings {storage:?} for {operands} operands",
            kernel.name()
        );
        assert!(uniforms.iter().all(|b| *b < 2), "{}: uniforms at {uniforms:?}", kernel.name());
        assert!(*words <= 64, "{}: {words} words of dims", kernel.name());
        assert!(
            checked.entries().any(|entry| entry == kernel.entry),
            "{} has no `{}`",
            kernel.name(),
            kernel.entry
        );
        let translated = checked
            .translate(kernel.entry)
            .unwrap_or_else(|error| panic!("{}: {error}", kernel.name()));
        assert!(translated.msl.contains("kernel void"), "{}", kernel.name());
        assert!(translated.spirv.len() > 20, "{}", kernel.name());
        let hlsl = translated.hlsl.is_some_and(|hlsl| hlsl.contains("numthreads"));
        assert!(hlsl || assembled.text.contains("coop_mat"), "{}", kernel.name());
        if let Source::File(stem) = kernel.source {
            files.insert(stem);
        }
    }
    let unused: Vec<&str> = FILES
        .iter()
        .map(|(stem, _)| *stem)
        .filter(|stem| !stem.starts_with("lib/") && !files.contains(stem))
        .collect();
    assert!(unused.is_empty(), "no case launches {unused:?}");
}

#[test]
fn every_file_is_in_the_table() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/kernels");
    let mut found = BTreeSet::new();
    for (folder, prefix) in [(folder.to_owned(), ""), (format!("{folder}/lib"), "lib/")] {
        for entry in std::fs::read_dir(folder).expect("the folder") {
            let path = entry.expect("an entry").path();
            if path.extension().is_some_and(|e| e == "wgsl") {
                found.insert(format!(
                    "{prefix}{}",
                    path.file_stem().expect("a stem").to_string_lossy()
                ));
            }
        }
    }
    let table: BTreeSet<String> = FILES.iter().map(|(stem, _)| (*stem).to_owned()).collect();
    assert_eq!(found, table);
}
