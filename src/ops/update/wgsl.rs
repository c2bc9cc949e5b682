//! Updates on the GPU: one kernel generated from the code.

use super::Update;
use crate::ops::launch::Source;
use crate::ops::map::{declare, statements, uses};
use crate::ops::{Bind, GpuCall, Kernel, Launch};

/// Threads of a workgroup.
const THREADS: u32 = 256;

/// The launch of an update: its operands at bindings 2 and up, control, then the further results.
pub(super) fn launch(update: &Update, call: &GpuCall<'_>) -> Launch {
    let (operands, outs) = (update.operands, update.code.outs.len());
    let mut text = String::from("// @use lib/globals\n");
    text.push_str(&uses(&update.code));
    text.push_str("struct Dims { count: u32 }\n@group(0) @binding(0) var<uniform> dims: Dims;\n");
    declare(&mut text, "in", 0, call.ins, 2);
    declare(&mut text, "out", update.in_place, &call.outs[update.in_place..], 3 + operands);
    text.push_str(&format!(
        "@compute @workgroup_size({THREADS})\nfn update(@builtin(workgroup_id) group: vec3<u32>, \
         @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {{\n\
         let i = (group.y * groups.x + group.x) * {THREADS}u + local;\n\
         if (i >= dims.count || in{operands}[0] == 0.0) {{ return; }}\n"
    ));
    let load = |_, index: usize| match index {
        scale if scale == operands => format!("in{operands}[0]"),
        hyper if hyper > operands => {
            let at = hyper - operands - 1;
            format!("globals.hyper[{}][{}]", at / 4, at % 4)
        }
        one if call.ins[one].shape.elements() == 1 => format!("in{one}[0]"),
        other => format!("in{other}[i]"),
    };
    statements(&mut text, &update.code, load);
    for (index, reg) in update.code.outs.iter().enumerate() {
        let name = if index < update.in_place { "in" } else { "out" };
        text.push_str(&format!("{name}{index}[i] = r{reg};\n"));
    }
    text.push_str("}\n");
    let kernel = Kernel {
        source: Source::Generated { name: update.name.into(), text },
        entry: "update",
        constants: Vec::new(),
        replace: Vec::new(),
        half: Vec::new(),
    };
    let mut binds: Vec<Bind> = (0..update.in_place).map(Bind::Out).collect();
    binds.extend((update.in_place..operands + 1).map(Bind::In));
    binds.extend((update.in_place..outs).map(Bind::Out));
    let count = call.ins[0].shape.elements();
    Launch::flat(kernel, vec![count as u32], binds, count, THREADS)
}
