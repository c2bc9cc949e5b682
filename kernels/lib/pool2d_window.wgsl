// Windows of pooling: their extents inside the image, and the windows that reach over a pixel. The
// size of a kernel counts its gaps. Where ADAPTIVE is 1, window o of `count` goes from
// ⌊o·size/count⌋ up to ⌈(o + 1)·size/count⌉.

const ADAPTIVE: u32 = 0u;

struct Dims {
    planes: u32,
    in_rows: u32,
    in_cols: u32,
    out_rows: u32,
    out_cols: u32,
    kernel_rows: u32,
    kernel_cols: u32,
    stride_rows: u32,
    stride_cols: u32,
    pad_rows: u32,
    pad_cols: u32,
    // Step between the rows and the columns of a window.
    step_rows: u32,
    step_cols: u32,
    count_include_pad: u32,
}

@group(0) @binding(0) var<uniform> dims: Dims;

// First and one past the last input index of window o along an axis.
fn window(o: u32, stride: u32, kernel: u32, pad: u32, step: u32, size: u32, count: u32) -> vec2<u32> {
    if (ADAPTIVE == 1u) {
        return vec2<u32>(o * size / count, ((o + 1u) * size + count - 1u) / count);
    }
    let start = o * stride;
    let before = (max(start, pad) - start + step - 1u) / step * step;
    return vec2<u32>(start + before - pad, min(max(start + kernel, pad) - pad, size));
}

fn window_rows(o: u32) -> vec2<u32> {
    return window(o, dims.stride_rows, dims.kernel_rows, dims.pad_rows, dims.step_rows, dims.in_rows, dims.out_rows);
}

fn window_cols(o: u32) -> vec2<u32> {
    return window(o, dims.stride_cols, dims.kernel_cols, dims.pad_cols, dims.step_cols, dims.in_cols, dims.out_cols);
}

// First and one past the last window that reaches over input index i along an axis.
fn holders(i: u32, stride: u32, kernel: u32, pad: u32, size: u32, count: u32) -> vec2<u32> {
    if (ADAPTIVE == 1u) {
        return vec2<u32>(i * count / size, min(((i + 1u) * count + size - 1u) / size, count));
    }
    let padded = i + pad;
    let first = (max(padded + 1u, kernel) - kernel + stride - 1u) / stride;
    return vec2<u32>(first, min(padded / stride + 1u, count));
}

fn holder_rows(i: u32) -> vec2<u32> {
    return holders(i, dims.stride_rows, dims.kernel_rows, dims.pad_rows, dims.in_rows, dims.out_rows);
}

fn holder_cols(i: u32) -> vec2<u32> {
    return holders(i, dims.stride_cols, dims.kernel_cols, dims.pad_cols, dims.in_cols, dims.out_cols);
}
