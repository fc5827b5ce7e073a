//! What a wish comes down to: a batch, and what is told beside it.

use steadfast_catalog::manage::{Batch, DefaultsSpec, GroupSpec};
use steadfast_catalog::{Catalog, Wanted, exports, ganesha, places_in, planned};
use steadfast_control::Refusal;
use steadfast_control::api::{Document, Import, ImportForm, Mistake, Plan, Wish};
use steadfast_shares::Inherited;

use super::state::State;
use crate::configuration::directory_problem;

/// A wish as operations.
#[derive(Debug, Default)]
pub(super) struct ComesTo<'a> {
    pub(super) batch: Batch,
    /// What is not taken over as it was, and may have been meant.
    pub(super) warnings: Vec<Mistake>,
    /// What has mistakes, and became no operation.
    mistakes: Vec<Mistake>,
    /// Where each operation of an import was written.
    places: Vec<String>,
    /// What the operations are of.
    document: Option<&'a Document>,
}

impl<'a> ComesTo<'a> {
    /// What a wish comes down to as things are.
    ///
    /// # Errors
    /// The mistakes, if it is to be done as a whole.
    pub(super) fn of(state: &mut State, wish: &'a Wish) -> Result<Self, Refusal> {
        let catalog = state.store.catalog();
        let comes = match wish {
            Wish::Batch(batch) => Self { batch: batch.clone(), ..Self::default() },
            Wish::Document(document) => Self::of_document(catalog, document),
            Wish::Import(import) => Self::of_import(catalog, import),
        };
        comes.checked(|batch| state.store.try_out(batch).err().unwrap_or_default())
    }

    /// Refuses what has mistakes and is to be done as a whole. `refused` tells what is wrong with a batch as
    /// things are.
    fn checked(mut self, refused: impl FnOnce(&Batch) -> Vec<Mistake>) -> Result<Self, Refusal> {
        if !self.batch.partial && !self.mistakes.is_empty() {
            // The lines of an import that are understood may have others, and all are to be mended at once. In a
            // document the rest depends on what is not understood.
            if !self.places.is_empty() {
                let others = self.placed(refused(&self.batch));
                self.mistakes.extend(others);
            }
            return Err(Refusal::mistaken(self.mistakes));
        }
        // An import has warned of them with their places.
        if self.places.is_empty() {
            self.warnings.extend(self.batch.warnings());
        }
        Ok(self)
    }

    fn of_document(catalog: &Catalog, document: &'a Document) -> Self {
        let (wanted, errors) = Wanted::parse(&document.document);
        let mistakes = errors.into_iter().map(|error| Mistake {
            place: format!("{}:{}", document.name, error.place),
            what: error.what,
            suggestion: error.suggestion,
            operation: None,
        });
        Self {
            batch: Batch {
                operations: wanted.operations(catalog),
                comment: document.comment.clone(),
                partial: document.partial,
            },
            mistakes: mistakes.collect(),
            document: Some(document),
            ..Self::default()
        }
    }

    fn of_import(catalog: &Catalog, wanted: &Import) -> Self {
        let texts: Vec<(&str, &str)> =
            wanted.exports.iter().map(|file| (file.name.as_str(), file.text.as_str())).collect();
        let file = catalog.file(&wanted.group);
        let inherited =
            inherited(catalog.defaults(), file.map(steadfast_catalog::GroupFile::group));
        let (group, is_new) = (wanted.group.as_str(), file.is_none());
        let imported = match wanted.form {
            ImportForm::Exports => exports::import(&texts, group, is_new, &inherited, &real_path),
            ImportForm::Ganesha => ganesha::import(&texts, group, is_new, &inherited),
        };
        Self {
            batch: Batch {
                operations: imported.operations,
                comment: wanted.comment.clone(),
                partial: wanted.partial,
            },
            warnings: imported.warnings,
            mistakes: imported.mistakes,
            places: imported.places,
            document: None,
        }
    }

    /// Mistakes of operations, told of where these were written.
    pub(super) fn placed(&self, mut mistakes: Vec<Mistake>) -> Vec<Mistake> {
        let places = self.places_of(&mistakes);
        for (mistake, place) in mistakes.iter_mut().zip(places) {
            if let Some(place) = place {
                mistake.place = format!("{place}: {}", mistake.place);
            }
        }
        mistakes
    }

    /// `FILE:LINE:COLUMN` of the operation of each mistake, or of the field that it is in.
    fn places_of(&self, mistakes: &[Mistake]) -> Vec<Option<String>> {
        let Some(document) = self.document else {
            let place = |mistake: &Mistake| {
                let place = self.places.get(mistake.operation?)?;
                (!place.is_empty()).then(|| place.clone())
            };
            return mistakes.iter().map(place).collect();
        };
        let operation = |mistake: &Mistake| self.batch.operations.get(mistake.operation?);
        // `share "/a": options[0]`
        let field = |place| str::rsplit_once(place, ": ").map_or("", |(_, field)| field);
        let asked: Vec<_> = mistakes
            .iter()
            .filter_map(|mistake| Some((operation(mistake)?, field(&mistake.place))))
            .collect();
        let mut places = places_in(&document.document, &asked).into_iter();
        let told = |mistake| {
            operation(mistake)?;
            let place = places.next()??;
            Some(format!("{}:{place}", document.name))
        };
        mistakes.iter().map(told).collect()
    }

    /// All that was left out: what became no operation, and these operations.
    pub(super) fn left_out(&mut self, operations: Vec<Mistake>) -> Vec<Mistake> {
        let operations = self.placed(operations);
        let mut all = std::mem::take(&mut self.mistakes);
        all.extend(operations);
        all
    }
}

/// What an import would do for a server that shares nothing yet.
///
/// # Errors
/// The mistakes, if it is to be done as a whole.
pub fn planned_alone(import: &Import, defaults: DefaultsSpec) -> Result<Plan, Vec<Mistake>> {
    let mut catalog = Catalog::new("shares.d", defaults, Vec::new());
    let comes = ComesTo::of_import(&catalog, import);
    let mut comes = comes
        .checked(|batch| catalog.try_out(batch).err().unwrap_or_default())
        .map_err(|refusal| refusal.mistakes)?;
    let applied = catalog.apply(&comes.batch).map_err(|mistakes| comes.placed(mistakes))?;
    let mistakes = comes.left_out(applied.left_out);
    let faults = applied.changes.iter().filter_map(|change| {
        let share = change.new.as_ref()?;
        let what = directory_problem(share.directory())?;
        Some(Mistake { place: (*share.path).into(), what, ..Mistake::default() })
    });
    let mut warnings = std::mem::take(&mut comes.warnings);
    warnings.extend(faults);
    Ok(Plan { sequence: 0, changes: planned(&applied.edits), mistakes, warnings })
}

/// Where a path leads to that has symbolic links: exportfs(8) exports that, and clients mount it by
/// either name.
pub(crate) fn real_path(path: &str) -> Option<String> {
    let real = std::fs::canonicalize(path).ok()?.into_os_string().into_string().ok()?;
    (real != path).then_some(real)
}

/// What shares of a group inherit. What is wrong with it is told elsewhere.
fn inherited(defaults: &DefaultsSpec, group: Option<&GroupSpec>) -> Inherited {
    let (inherited, _) = Inherited::default().with(&defaults.options, &defaults.clients, &[]);
    match group {
        Some(group) => group.inherited(&inherited).0,
        None => inherited,
    }
}
