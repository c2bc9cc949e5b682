//! Event files of TensorBoard.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value as Json;

use super::event::{self, Message};
use super::{Sink, numbers};
use crate::train::checkpoint::NamedTensor;

/// Writes one event file.
#[derive(Debug)]
pub struct TensorBoard {
    out: BufWriter<File>,
    histograms: bool,
}

/// Seconds since 1970.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

impl TensorBoard {
    /// Begins a file in the folder `tensorboard` of a run that goes on after `step`. `config` is
    /// shown as text.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn create(run: &Path, step: u64, config: &str, histograms: bool) -> io::Result<Self> {
        let folder = run.join("tensorboard");
        fs::create_dir_all(&folder)?;
        let time = now();
        // The moment and the process: a file of its own for each start.
        let name = format!("events.out.tfevents.{time:.6}.{}.wootz", std::process::id());
        let out = BufWriter::new(File::create_new(folder.join(name))?);
        let mut records = TensorBoard { out, histograms };
        records.write(&event::file_version(time))?;
        if step > 0 {
            records.write(&event::session_start(time, step + 1))?;
        }
        // Four spaces are code in Markdown.
        let code: Vec<String> = config.lines().map(|line| format!("    {line}")).collect();
        let text = event::text("config/text_summary", &code.join("\n"));
        records.write(&event::summary(time, step, &[text]))?;
        records.out.flush()?;
        Ok(records)
    }

    fn write(&mut self, event: &Message) -> io::Result<()> {
        self.out.write_all(&event.record())
    }
}

impl Sink for TensorBoard {
    fn record(&mut self, line: &Json) -> io::Result<()> {
        let Some(step) = line["step"].as_u64() else { return Ok(()) };
        let values: Vec<Message> =
            numbers(line).map(|(name, value)| event::scalar(name, value as f32)).collect();
        self.write(&event::summary(now(), step, &values))
    }

    fn rewound(&mut self, step: u64) -> io::Result<()> {
        self.write(&event::session_start(now(), step + 1))
    }

    fn wants_weights(&self) -> bool {
        self.histograms
    }

    fn weights(&mut self, step: u64, tensors: &[NamedTensor]) -> io::Result<()> {
        let values: Vec<Message> = (tensors.iter())
            .map(|tensor| {
                event::histogram(
                    &format!("weights/{}", tensor.name),
                    &bytemuck::pod_collect_to_vec(&tensor.bytes),
                )
            })
            .collect();
        self.write(&event::summary(now(), step, &values))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
