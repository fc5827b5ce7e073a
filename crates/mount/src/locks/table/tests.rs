//! Property tests: the table against a model that has each byte's lock of each owner.

use proptest::prelude::*;

use super::*;

const OWNERS: u64 = 3;
/// Bytes of the model's file. Those from here to the last one of a file are one byte of the model.
const BYTES: u64 = 12;

/// By owner and byte.
type Model = [[Option<Kind>; BYTES as usize + 1]; OWNERS as usize];

fn any_span() -> impl Strategy<Value = Span> {
    (0..=BYTES, 0..=BYTES).prop_map(|(one, other)| {
        let last = one.max(other);
        Span { first: one.min(other), last: if last == BYTES { LAST } else { last } }
    })
}

fn any_kind() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::Read), Just(Kind::Write)]
}

fn indices(span: Span) -> RangeInclusive<usize> {
    span.first.min(BYTES) as usize..=span.last.min(BYTES) as usize
}

fn model_conflict(model: &Model, owner: Owner, span: Span, kind: Kind) -> bool {
    let others = model.iter().enumerate().filter(|(number, _)| *number as u64 != owner.0);
    others.flat_map(|(_, bytes)| &bytes[indices(span)]).any(|held| match held {
        None => false,
        Some(held) => *held == Kind::Write || kind == Kind::Write,
    })
}

/// What the table says of each byte.
fn as_model(table: &Table) -> Model {
    let mut model = Model::default();
    for (number, bytes) in model.iter_mut().enumerate() {
        for held in table.of(Owner(number as u64)) {
            for byte in &mut bytes[indices(held.span)] {
                assert_eq!(*byte, None, "locks of one owner overlap: {table:?}");
                *byte = Some(held.kind);
            }
        }
    }
    model
}

/// As few locks as can be: those of one owner and kind do not touch.
fn is_merged(table: &Table) -> bool {
    (0..OWNERS).all(|owner| {
        let held: Vec<_> = table.of(Owner(owner)).collect();
        held.windows(2).all(|pair| {
            let (one, other) = (pair[0], pair[1]);
            one.span.last < other.span.first
                && !(one.kind == other.kind && one.span.touches(other.span))
        })
    })
}

proptest! {
    #[test]
    fn the_table_is_the_model(
        steps in prop::collection::vec(
            (0..OWNERS, any_span(), prop::option::of(any_kind())),
            1..40,
        ),
        asked in (0..OWNERS, any_span(), any_kind()),
    ) {
        let (mut table, mut model) = (Table::default(), Model::default());
        for (owner, span, kind) in steps {
            let owner = Owner(owner);
            if let Some(kind) = kind {
                let conflict = table.conflict(owner, span, kind);
                prop_assert_eq!(conflict.is_some(), model_conflict(&model, owner, span, kind));
                if conflict.is_some() {
                    continue;
                }
            }
            table.set(owner, span, kind);
            model[owner.0 as usize][indices(span)].fill(kind);
            prop_assert_eq!(as_model(&table), model);
            prop_assert!(is_merged(&table), "{:?}", table);
        }
        let (owner, span, _) = asked;
        let owner = Owner(owner);
        let parts = table.parts(owner, span);
        prop_assert_eq!(parts.first().map(|(part, _)| part.first), Some(span.first));
        prop_assert_eq!(parts.last().map(|(part, _)| part.last), Some(span.last));
        prop_assert!(parts.windows(2).all(|pair| pair[0].0.last + 1 == pair[1].0.first));
        for (part, kind) in &parts {
            let bytes = &model[owner.0 as usize][indices(*part)];
            prop_assert!(bytes.iter().all(|held| held == kind), "{:?} {:?}", parts, table);
        }
        let has = parts.iter().any(|(_, kind)| kind.is_some());
        prop_assert_eq!(table.has(owner, span), has);
    }
}

#[test]
fn a_range_to_the_end_has_no_length_on_the_wire() {
    assert_eq!(Span::ALL.on_the_wire(), (0, 0));
    assert_eq!(Span::new(5, u64::MAX).unwrap().on_the_wire(), (5, 0));
    assert_eq!(Span::new(5, 5).unwrap().on_the_wire(), (5, 1));
    assert_eq!(Span::new(LAST, LAST).unwrap().on_the_wire(), (LAST, 0));
    assert_eq!(Span::new(6, 5), None);
    assert_eq!(Span::new(LAST + 1, u64::MAX), None);
}
