// Attention to every position of a sample: the other form is lib/attention_segments.

fn in_segment(head_index: u32, q: u32, k: u32) -> bool {
    return true;
}
