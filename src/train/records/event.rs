//! The bytes of TensorBoard's event files: records of TFRecord that hold messages of protobuf.
//! Written by hand because a handful of fields is needed. The fields are those of `event.proto`,
//! `summary.proto` and `tensor.proto` of TensorBoard; a field with its default value is left out, as
//! proto3 does.

/// A message of protobuf in the making.
#[derive(Clone, Debug, Default)]
pub struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn key(&mut self, field: u32, wire: u32) {
        self.varint(u64::from(field << 3 | wire));
    }

    /// An integer or an enum.
    pub fn integer(mut self, field: u32, value: u64) -> Self {
        if value != 0 {
            self.key(field, 0);
            self.varint(value);
        }
        self
    }

    /// A `double`.
    pub fn double(mut self, field: u32, value: f64) -> Self {
        if value.to_bits() != 0 {
            self.key(field, 1);
            self.0.extend(value.to_le_bytes());
        }
        self
    }

    /// A `float` of a `oneof`, which is written whatever its value.
    pub fn float_choice(mut self, field: u32, value: f32) -> Self {
        self.key(field, 5);
        self.0.extend(value.to_le_bytes());
        self
    }

    /// Text or bytes.
    pub fn bytes(mut self, field: u32, value: &[u8]) -> Self {
        self.key(field, 2);
        self.varint(value.len() as u64);
        self.0.extend(value);
        self
    }

    /// A message in this one.
    pub fn message(self, field: u32, value: &Message) -> Self {
        self.bytes(field, &value.0)
    }

    /// `repeated double`, packed.
    pub fn doubles(self, field: u32, values: &[f64]) -> Self {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        if bytes.is_empty() { self } else { self.bytes(field, &bytes) }
    }

    /// The message as one record of a TFRecord file: its length, a checksum of that, the bytes, and
    /// a checksum of those.
    pub fn record(&self) -> Vec<u8> {
        let length = (self.0.len() as u64).to_le_bytes();
        let mut record = length.to_vec();
        record.extend(masked_crc(&length).to_le_bytes());
        record.extend(&self.0);
        record.extend(masked_crc(&self.0).to_le_bytes());
        record
    }
}

/// An `Event`: when, at which step, and what.
pub fn event(wall_time: f64, step: u64) -> Message {
    Message::default().double(1, wall_time).integer(2, step)
}

/// The first event of a file.
pub fn file_version(wall_time: f64) -> Message {
    event(wall_time, 0).bytes(3, b"brain.Event:2")
}

/// The event that makes TensorBoard forget what an earlier file has of later steps.
pub fn session_start(wall_time: f64, step: u64) -> Message {
    event(wall_time, step).message(7, &Message::default().integer(1, 1))
}

/// An event with values.
pub fn summary(wall_time: f64, step: u64, values: &[Message]) -> Message {
    let add = |summary: Message, value| summary.message(1, value);
    event(wall_time, step).message(5, &values.iter().fold(Message::default(), add))
}

/// A number.
pub fn scalar(tag: &str, value: f32) -> Message {
    Message::default().bytes(1, tag.as_bytes()).float_choice(2, value)
}

/// Text, which TensorBoard shows as Markdown.
pub fn text(tag: &str, content: &str) -> Message {
    const STRING: u64 = 7;
    let plugin = Message::default().bytes(1, b"text");
    let one = Message::default().message(2, &Message::default().integer(1, 1));
    let tensor = Message::default().integer(1, STRING).message(2, &one);
    let tensor = tensor.bytes(8, content.as_bytes());
    let metadata = Message::default().message(1, &plugin);
    Message::default().bytes(1, tag.as_bytes()).message(8, &tensor).message(9, &metadata)
}

/// The distribution of the finite values of a tensor over `limits` of buckets.
pub fn histogram(tag: &str, values: &[f32]) -> Message {
    let limits = limits();
    let mut counts = vec![0.0; limits.len()];
    let (mut min, mut max) = (f64::INFINITY, f64::NEG_INFINITY);
    let (mut number, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for value in values.iter().map(|value| f64::from(*value)).filter(|value| value.is_finite()) {
        let bucket = limits.partition_point(|limit| *limit < value);
        counts[bucket.min(limits.len() - 1)] += 1.0;
        (min, max) = (min.min(value), max.max(value));
        (number, sum, squares) = (number + 1.0, sum + value, squares + value * value);
    }
    if number == 0.0 {
        (min, max) = (0.0, 0.0);
    }
    // Empty buckets at both ends say nothing.
    let first = counts.iter().position(|count| *count > 0.0).unwrap_or(0).saturating_sub(1);
    let last = counts.iter().rposition(|count| *count > 0.0).unwrap_or(0);
    let histogram = Message::default()
        .double(1, min)
        .double(2, max)
        .double(3, number)
        .double(4, sum)
        .double(5, squares)
        .doubles(6, &limits[first..=last])
        .doubles(7, &counts[first..=last]);
    Message::default().bytes(1, tag.as_bytes()).message(5, &histogram)
}

/// Upper limits of a histogram's buckets, each a tenth larger than the one before, on both sides of
/// zero: TensorFlow's own.
fn limits() -> Vec<f64> {
    let mut positive = Vec::new();
    let mut limit = 1e-12;
    while limit < 1e20 {
        positive.push(limit);
        limit *= 1.1;
    }
    let mut limits: Vec<f64> = positive.iter().rev().map(|limit| -limit).collect();
    limits.push(0.0);
    limits.extend(positive);
    limits.push(f64::MAX);
    limits
}

/// CRC-32C (Castagnoli) of some bytes, rotated and shifted as TFRecord does.
fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(0xA282_EAD8)
}

fn crc32c(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut at = 0;
        while at < 256 {
            let (mut crc, mut bit) = (at as u32, 0);
            while bit < 8 {
                crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82F6_3B78 } else { crc >> 1 };
                bit += 1;
            }
            table[at] = crc;
            at += 1;
        }
        table
    };
    !bytes
        .iter()
        .fold(!0, |crc, byte| TABLE[((crc ^ u32::from(*byte)) & 0xFF) as usize] ^ (crc >> 8))
}
