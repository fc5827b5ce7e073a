//! Events of the state that clients have, as a killed server leaves them: whatever they are, they come
//! to a state that can tell itself, and which comes to the same again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use steadfast_state::{Image, Settings, State};

fn restored(image: &Image) -> State {
    let state = State::new(Settings::new(1));
    state.restore(1, image.clone());
    state
}

fn told(state: &State) -> Image {
    state.begin_keeping();
    state.note_all();
    let mut events = Vec::new();
    state.take_events(&mut events);
    let mut image = Image::default();
    image.add(&events).expect("what a state tells are events");
    image
}

fuzz_target!(|input: &[u8]| {
    let mut image = Image::default();
    // What comes before the first that is no event counts.
    let _ = image.add(input);
    let state = restored(&image);
    state.tick(1_000_000);
    let again = told(&state);
    assert_eq!(told(&restored(&again)), again);
});
