//! Waiting for what is told, as samples are judged.

use super::super::violations;
use super::cast::Cast;
use super::told::{self, Told};
use gpukill_tests::harness::{becomes, eventually};
use serde_json::Value;

/// So many samples are judged after all was told that should be, and nothing more
/// may be.
const MORE: usize = 2;

impl Cast {
    /// What was told of by now, in order.
    pub(super) fn told(&self) -> Vec<Told> {
        let document = violations(&self.stage);
        told::told(document["records"].as_array().unwrap().iter().rev(), self)
    }

    /// What would have been told, had these rules not been in force.
    fn replayed(&self) -> Vec<Told> {
        told::told(self.replay()["records"].as_array().unwrap().iter(), self)
    }

    /// The same rules, tried on all that was.
    fn replay(&self) -> Value {
        let since = ["guard", "replay", "--since", "1h", "-o", "json"];
        self.stage.json(&since)
    }

    /// Waits until this is told of, and that it is all that is told of, also later.
    /// After each sample something changes.
    pub(super) fn tells_while(
        &mut self,
        expected: impl IntoIterator<Item = Told>,
        mut changes: impl FnMut(&mut Self),
    ) {
        let mut expected: Vec<Told> = expected.into_iter().collect();
        expected.sort();
        let mut turn = |cast: &mut Self| {
            changes(cast);
            cast.show();
            cast.samples(1);
            cast.told()
        };
        becomes(&expected, || turn(self));
        for _ in 0..MORE {
            assert_eq!(turn(self), expected, "it did not stay so");
        }
        becomes(&expected, || self.replayed());
    }

    /// Waits until this is told of, and that it is all that is told of, also later.
    pub(super) fn tells(&self, expected: impl IntoIterator<Item = Told>) {
        let mut expected: Vec<Told> = expected.into_iter().collect();
        expected.sort();
        becomes(&expected, || self.told());
        self.samples(MORE);
        assert_eq!(self.told(), expected, "it did not stay so");
        // What was stored tells the same, once it is.
        becomes(&expected, || self.replayed());
    }

    /// Waits until so many more samples are judged.
    pub(super) fn samples(&self, more: usize) {
        let judged_at = || {
            let status = self.stage.json(&["guard", "status", "-o", "json"]);
            status["judged_at"].clone()
        };
        let mut last = judged_at();
        for _ in 0..more {
            last = eventually("another sample is judged", || {
                let now = judged_at();
                (now != last).then_some(now)
            });
        }
    }

    /// Of which rules something could not be judged, and why.
    pub(super) fn unjudged(&self) -> Vec<String> {
        let report = self.replay();
        let unjudged = report["not_judged"].as_array().unwrap().iter();
        let said = unjudged.map(|it| {
            let said = [&it["rule"], &it["why"]].map(|it| it.as_str().unwrap());
            self.named(&said.join(": "))
        });
        said.collect()
    }

    /// That these could not be judged, among others.
    pub(super) fn leaves_unjudged(&self, expected: &[&str]) {
        becomes(&Vec::<&str>::new(), || {
            let found = self.unjudged();
            let is_judged = |it: &&&str| !found.iter().any(|found| found == *it);
            expected.iter().filter(is_judged).copied().collect()
        });
    }
}
