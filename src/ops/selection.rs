//! Which tile and split each product of matrices runs with, where that was chosen by measuring on
//! the device: the table, and what an op tells of the product that it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::MatrixUnits;
use super::Op;
use super::tile::{Choice, Problem};

/// A product of matrices that an op is on a GPU.
#[derive(Clone, Debug)]
pub struct Product {
    /// How the choice sees it.
    pub problem: Problem,
    /// The op without what follows the product. Its operands are the two factors.
    pub op: Arc<dyn Op>,
    /// Axes that are not summed over.
    pub free: Vec<Free>,
}

/// An axis of a factor that the result has too: a slice of the one is a slice of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Free {
    /// The factor, 0 or 1.
    pub factor: usize,
    /// Its axis.
    pub axis: usize,
    /// The result's axis.
    pub out: usize,
}

/// The choices that were made by measuring. Products that are not in it run with the cheapest choice
/// of the fixed cost model. Clones share the table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chosen(Option<Arc<BTreeMap<Problem, Choice>>>);

impl Chosen {
    /// The empty table.
    pub const NONE: Chosen = Chosen(None);

    /// The choice for a product.
    pub fn get(&self, problem: &Problem) -> Option<Choice> {
        self.0.as_ref()?.get(problem).copied()
    }

    /// The table with one more choice.
    #[must_use]
    pub fn with(&self, problem: Problem, choice: Choice) -> Self {
        let mut table = self.0.as_deref().cloned().unwrap_or_default();
        table.insert(problem, choice);
        Chosen(Some(Arc::new(table)))
    }

    /// Number of products in it.
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |table| table.len())
    }

    /// Whether nothing was chosen.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A choice as run.json and the cache keep it.
#[derive(Serialize, Deserialize)]
struct Row {
    kernel: String,
    layers: usize,
    m: usize,
    n: usize,
    k: usize,
    along_terms: [bool; 2],
    halves: [bool; 2],
    #[serde(skip_serializing_if = "Option::is_none")]
    matrix_units: Option<usize>,
    tile: [usize; 2],
    parts: usize,
}

impl Serialize for Chosen {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let row = |(problem, choice): (&Problem, &Choice)| Row {
            kernel: problem.kernel.to_string(),
            layers: problem.layers,
            m: problem.m,
            n: problem.n,
            k: problem.k,
            along_terms: problem.along_terms,
            halves: problem.halves,
            matrix_units: problem.units.map(MatrixUnits::side),
            tile: [choice.tile.rows, choice.tile.cols],
            parts: choice.parts,
        };
        serializer.collect_seq(self.0.iter().flat_map(|table| table.iter()).map(row))
    }
}

impl<'de> Deserialize<'de> for Chosen {
    /// Rows of tiles or kernels that this version does not have are left out.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let rows = Vec::<Row>::deserialize(deserializer)?;
        let table: BTreeMap<Problem, Choice> = rows.into_iter().filter_map(Row::known).collect();
        Ok(if table.is_empty() { Chosen::NONE } else { Chosen(Some(Arc::new(table))) })
    }
}

impl Row {
    fn known(self) -> Option<(Problem, Choice)> {
        let problem = Problem {
            kernel: self.kernel.parse().ok()?,
            layers: self.layers,
            m: self.m,
            n: self.n,
            k: self.k,
            along_terms: self.along_terms,
            halves: self.halves,
            units: match self.matrix_units {
                None => None,
                Some(side) => {
                    let known = [MatrixUnits::Side8, MatrixUnits::Side16];
                    Some(known.into_iter().find(|units| units.side() == side)?)
                }
            },
        };
        let same = |tile: &super::tile::Tile| [tile.rows, tile.cols] == self.tile;
        let tile = problem.tiles().into_iter().find(same)?;
        Some((problem, Choice { tile, parts: self.parts.max(1) }))
    }
}
